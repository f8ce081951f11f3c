"""What every batch/v1 Job of this package has, a TrainJob's too: pods, and what the controller makes of failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from elastic_infra.config import JobConfig
from elastic_infra.config.overlays import TRAINING_CONTAINER
from elastic_infra.config.values import Late
from elastic_infra.launcher import exit_codes
from elastic_infra.manifests import health
from elastic_infra.manifests.environment import container_environment
from elastic_infra.manifests.figures import NO_LIMIT
from elastic_infra.manifests.gang import job_annotations
from elastic_infra.manifests.identity import run_id, taken_on, without_launcher
from elastic_infra.manifests.metadata import SKIP_AWAIT, workload_metadata
from elastic_infra.manifests.model import Manifest, Value, without_none
from elastic_infra.manifests.pod import pod_template


def batch_job(
    name: str,
    config: JobConfig,
    launcher: str | Late | None,
    *,
    arguments: list[Value],
    torchrun: Mapping[str, Value],
    shape: Mapping[str, Value],
) -> Manifest:
    """A Job.

    Args:
        arguments: the launcher's own options, before the script.
        torchrun: the launcher's `PET_*` variables, without the run id.
        shape: what the spec says of the number of pods, which is one without it.
    """
    policy = config.run_policy
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": workload_metadata(
            name, config, {**job_annotations(config), **_wait(config, shape.get("parallelism", 1))}
        ),
        "spec": {
            **shape,
            **without_none(
                template=job_template(name, config, launcher, arguments, torchrun),
                **failure_handling(config, TRAINING_CONTAINER),
                ttlSecondsAfterFinished=policy.ttl_seconds_after_finished,
                activeDeadlineSeconds=policy.active_deadline_seconds,
                suspend=policy.suspend,
                managedBy=policy.managed_by,
            ),
        },
    }


def indexed_shape() -> dict[str, Value]:
    """What the spec of a Job of several nodes has beside their number."""
    return {
        # One node that has succeeded proves that the training has; the others are told to end.
        "successPolicy": {"rules": [{"succeededCount": 1}]},
        # Without a limit for each index the controller delays all new pods by the failures of the whole job.
        "backoffLimitPerIndex": NO_LIMIT,
        # The one value that a pod failure policy allows: a pod is replaced once it has ended.
        "podReplacementPolicy": "Failed",
    }


def failure_handling(config: JobConfig, container: str) -> dict[str, Value]:
    """What a Job does about pods that fail.

    Args:
        container: name of the training container.
    """
    return {
        "backoffLimit": config.backoff_limit if config.backoff_limit >= 0 else NO_LIMIT,
        "podFailurePolicy": {"rules": _failure_rules(config, container)},
    }


def job_template(
    name: str, config: JobConfig, launcher: str | Late | None, arguments: list[Value], torchrun: Mapping[str, Value]
) -> dict[str, Value]:
    """The template of a Job's pods, with the id of their run."""

    def made(variables: Mapping[str, Value]) -> dict[str, Value]:
        environment = container_environment(name, config, variables)
        return pod_template(name, config, launcher, arguments=arguments, environment=environment)

    own = config.elastic.rdzv_id or run_id(name, without_launcher(made(torchrun)), *taken_on(config))
    template = made({**torchrun, "PET_RDZV_ID": own})
    spec = template["spec"]
    # A pod failure policy allows no other: the Job controller makes a failed pod anew.
    return {**template, "spec": {**(spec if isinstance(spec, dict) else {}), "restartPolicy": "Never"}}


def _failure_rules(config: JobConfig, container: str) -> list[Value]:
    # https://kubernetes.io/docs/concepts/workloads/controllers/job/#pod-failure-policy
    is_verified_first = config.launcher.verify and config.health_check is not None
    return [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        _fails_the_job(container, exit_codes.PERMANENT),
        *([_fails_the_job(health.CONTAINER, (exit_codes.USAGE,))] if is_verified_first else []),
    ]


def _fails_the_job(container: str, codes: Sequence[int]) -> Value:
    on_codes: dict[str, Value] = {"containerName": container, "operator": "In", "values": [*codes]}
    return {"action": "FailJob", "onExitCodes": on_codes}


def _wait(config: JobConfig, pods: Value) -> dict[str, str]:
    timeout = {"pulumi.com/timeoutSeconds": str(config.wait_timeout_seconds)}
    if config.wait_for == "none":
        return SKIP_AWAIT
    if config.wait_for == "succeeded":
        return timeout
    return {**timeout, "pulumi.com/waitFor": f"jsonpath={{.status.ready}}={pods}"}
