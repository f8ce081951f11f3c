"""What is allowed but likely to surprise: said once, by the CLI and by `pulumi up`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from elastic_infra.config.errors import Fault

if TYPE_CHECKING:
    from elastic_infra.config.job import JobConfig


def warnings(config: JobConfig) -> tuple[Fault, ...]:
    """Every warning, each with its reason and the way out."""
    return (*_lifetime(config), *_restarts(config), *_memory(config), *_progress(config))


def _lifetime(config: JobConfig) -> Iterator[Fault]:
    policy = config.run_policy
    if policy.ttl_seconds_after_finished is not None:
        yield Fault(
            "run_policy.ttl_seconds_after_finished",
            "the finished job will be deleted, so the next `pulumi refresh` and `up` train again. "
            "Unset it to keep the job.",
        )
    if policy.active_deadline_seconds is not None and not config.is_single_pod:
        yield Fault(
            "run_policy.active_deadline_seconds",
            "the training operator looks at it only when something happens (kubeflow/trainer#3358): expect it late.",
        )


def _restarts(config: JobConfig) -> Iterator[Fault]:
    policy = config.run_policy
    if config.is_single_pod:
        return
    if 0 <= config.backoff_limit < config.elastic.max_nodes:
        yield Fault(
            "run_policy.backoff_limit",
            f"({config.backoff_limit}) counts container restarts of all pods together; below the maximum of nodes "
            f"({config.elastic.max_nodes}) one bad event can fail the job.",
        )
    if policy.restart_policy == "ExitCode":
        yield Fault(
            "run_policy.restart_policy",
            "under 'ExitCode' retries are not counted (kubeflow/trainer#2045), and a job failed by an exit code "
            "below 128 is never deleted by its ttl.",
        )


def _memory(config: JobConfig) -> Iterator[Fault]:
    shm = config.shared_memory
    if shm.enabled and shm.size is None and config.resources.memory is None:
        yield Fault(
            "shared_memory",
            "without resources.memory or a size, /dev/shm may fill the cluster node's memory. Set one of the two.",
        )


def _progress(config: JobConfig) -> Iterator[Fault]:
    if config.storage.checkpoint is None and not config.storage.mounts:
        yield Fault("storage.checkpoint", "without a checkpoint volume a replaced pod starts again at step 0.")
