"""A batch/v1 Job of one pod, for `nnodes: 1`. The Job controller retries the pod when its cluster node is lost."""

from __future__ import annotations

from elastic_infra.config import JobConfig
from elastic_infra.config.overlays import TRAINING_CONTAINER
from elastic_infra.config.values import Late
from elastic_infra.launcher import exit_codes
from elastic_infra.manifests.environment import container_environment
from elastic_infra.manifests.identity import run_id, taken_on, without_launcher
from elastic_infra.manifests.metadata import SKIP_AWAIT, workload_metadata
from elastic_infra.manifests.model import Manifest, Value, without_none
from elastic_infra.manifests.pod import pod_template
from elastic_infra.manifests.storage import mounted


def single_pod_job(name: str, config: JobConfig, launcher: str | Late | None) -> Manifest:
    """The Job, with the launcher in standalone mode."""
    policy = config.run_policy
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": workload_metadata(name, config, _wait(config)),
        "spec": without_none(
            template=_template(name, config, launcher),
            backoffLimit=config.backoff_limit,
            podFailurePolicy={"rules": _failure_rules()},
            ttlSecondsAfterFinished=policy.ttl_seconds_after_finished,
            activeDeadlineSeconds=policy.active_deadline_seconds,
            suspend=policy.suspend,
            managedBy=policy.managed_by,
        ),
    }


def _template(name: str, config: JobConfig, launcher: str | Late | None) -> dict[str, Value]:
    storage = mounted(name, config, launcher)
    torchrun: dict[str, Value] = {
        "PET_MAX_RESTARTS": str(config.elastic.max_restarts),
        "PET_NPROC_PER_NODE": str(config.nproc_per_node),
    }
    arguments: list[Value] = ["--standalone"]
    draft = pod_template(
        name, config, storage, arguments=arguments, environment=container_environment(name, config, torchrun)
    )
    torchrun["PET_RDZV_ID"] = config.elastic.rdzv_id or run_id(name, without_launcher(draft), *taken_on(config))
    environment = container_environment(name, config, torchrun)
    template = pod_template(name, config, storage, arguments=arguments, environment=environment)
    spec = template["spec"]
    return {**template, "spec": {**(spec if isinstance(spec, dict) else {}), "restartPolicy": "Never"}}


def _failure_rules() -> list[Value]:
    # https://kubernetes.io/docs/concepts/workloads/controllers/job/#pod-failure-policy
    codes: dict[str, Value] = {
        "containerName": TRAINING_CONTAINER,
        "operator": "In",
        "values": list(exit_codes.PERMANENT),
    }
    return [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"action": "FailJob", "onExitCodes": codes},
    ]


def _wait(config: JobConfig) -> dict[str, str]:
    timeout = {"pulumi.com/timeoutSeconds": str(config.wait_timeout_seconds)}
    if config.wait_for == "none":
        return SKIP_AWAIT
    return (
        timeout if config.wait_for == "succeeded" else {**timeout, "pulumi.com/waitFor": "jsonpath={.status.ready}=1"}
    )
