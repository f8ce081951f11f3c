"""The PyTorchJob: worker-only, elastic, spelt for the training operator v1.

Source of the fields: https://github.com/kubeflow/trainer/blob/v1.9.4/pkg/apis/kubeflow.org/v1/pytorch_types.go
"""

from __future__ import annotations

from elastic_infra.config import JobConfig
from elastic_infra.config.names import ObjectNames
from elastic_infra.config.values import Late
from elastic_infra.manifests.autoscaler import metrics
from elastic_infra.manifests.environment import container_environment
from elastic_infra.manifests.identity import run_id, taken_on, without_launcher
from elastic_infra.manifests.metadata import workload_metadata
from elastic_infra.manifests.model import Manifest, Value, without_none
from elastic_infra.manifests.pod import pod_template
from elastic_infra.manifests.rendezvous import rendezvous_settings


def pytorch_job(name: str, config: JobConfig, launcher: str | Late | None) -> Manifest:
    """The job; `initial_nodes` is only where it starts, an autoscaler or a person moves it within the range."""
    template = pod_template(
        name,
        config,
        launcher,
        arguments=_arguments(config),
        environment=container_environment(name, config, {}),
    )
    policy = _elastic_policy(name, config)
    run_policy = _run_policy(config)
    whole: list[Value] = [without_launcher(template), policy, str(config.nproc_per_node), *taken_on(config)]
    identity = run_id(name, *whole, config.restart_policy)
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": workload_metadata(name, config, _wait(config)),
        "spec": {
            "elasticPolicy": {**policy, "rdzvId": config.elastic.rdzv_id or identity},
            "nprocPerNode": str(config.nproc_per_node),
            "pytorchReplicaSpecs": {
                "Worker": {
                    "replicas": config.initial_nodes,
                    "restartPolicy": config.restart_policy,
                    "template": template,
                }
            },
            "runPolicy": run_policy,
        },
    }


def _arguments(config: JobConfig) -> list[Value]:
    """Options that must win over the operator's PET_RDZV_ENDPOINT: the command line beats the environment."""
    endpoint = config.elastic.rdzv_endpoint
    return [] if endpoint is None else ["--rdzv-endpoint", endpoint]


def _elastic_policy(name: str, config: JobConfig) -> dict[str, Value]:
    elastic, scaling = config.elastic, config.autoscaling
    dedicated = config.rendezvous_host == "dedicated"
    return without_none(
        minReplicas=elastic.min_nodes,
        maxReplicas=elastic.max_nodes,
        rdzvBackend=elastic.rdzv_backend,
        rdzvHost=ObjectNames(name).rendezvous if dedicated else None,
        rdzvPort=config.rendezvous.port if config.rendezvous_host != "none" else None,
        rdzvConf=[{"key": key, "value": value} for key, value in rendezvous_settings(config).items()],
        maxRestarts=elastic.max_restarts,
        metrics=metrics(scaling) if scaling is not None and scaling.owner == "operator" else None,
    )


def _run_policy(config: JobConfig) -> Value:
    policy = config.run_policy
    return without_none(
        cleanPodPolicy=policy.clean_pod_policy,
        backoffLimit=config.backoff_limit if config.backoff_limit >= 0 else None,
        ttlSecondsAfterFinished=policy.ttl_seconds_after_finished,
        activeDeadlineSeconds=policy.active_deadline_seconds,
        suspend=policy.suspend,
        schedulingPolicy=_scheduling_policy(config),
        managedBy=policy.managed_by,
    )


def _scheduling_policy(config: JobConfig) -> Value:
    policy = config.run_policy.scheduling_policy
    if policy is None:
        return None
    return without_none(
        minAvailable=policy.min_available or config.elastic.min_nodes,
        queue=policy.queue,
        priorityClass=policy.priority_class,
        scheduleTimeoutSeconds=policy.schedule_timeout_seconds,
    )


def _wait(config: JobConfig) -> dict[str, str]:
    # https://github.com/pulumi/pulumi-kubernetes/blob/v4.32.0/provider/pkg/metadata/overrides.go
    if config.wait_for == "none":
        return {}
    condition = "Running" if config.wait_for == "running" else "Succeeded"
    return {
        "pulumi.com/timeoutSeconds": str(config.wait_timeout_seconds),
        "pulumi.com/waitFor": f"condition={condition}",
    }
