"""Life and end of the job."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from elastic_infra.config.base import Part
from elastic_infra.config.values import Int, Seconds, Whole


class SchedulingPolicy(Part):
    """The operator's gang settings; ignored unless the operator runs with a gang scheduler."""

    min_available: Annotated[Whole, Field(ge=1, le=10_000)] | None = None
    """Pods that must be schedulable together. Default `min_nodes`, so that a scale-up never waits for a full gang."""

    queue: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    """Volcano queue. Cannot be changed on a live job, so a change restarts it."""

    priority_class: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    """Priority class of the gang."""

    schedule_timeout_seconds: Seconds | None = None
    """Seconds a gang may wait (scheduler-plugins only)."""


class RunPolicy(Part):
    """Life and end of the job."""

    clean_pod_policy: Literal["None", "Running", "All"] = "Running"
    """Pods deleted when the job ends. `Running` frees GPUs and keeps finished pods for their logs; the operator's
    own default keeps running pods alive."""

    ttl_seconds_after_finished: Int | None = None
    """Delete the finished job after so many seconds. Unset, because the next `pulumi refresh` and `up` would train
    again. A job that has failed under `restart_policy: ExitCode` stays, because the operator records no completion time
    for it."""

    active_deadline_seconds: Seconds | None = None
    """End the job after so many seconds. The operator checks only at other events (kubeflow/trainer#3358)."""

    backoff_limit: Annotated[Whole, Field(ge=-1, le=1_000_000)] | None = None
    """Container restarts in place, summed over all pods, that fail the job. Default 3 for each of the most nodes; -1
    means no limit; 0 fails at the first. Pods that are recreated (`restart_policy: ExitCode`) are not counted. Of a
    batch/v1 Job: failed pods, which are recreated; pods that the cluster takes away are not counted."""

    suspend: bool | None = None
    """Hold the job without pods. Unset leaves the field to other controllers (a queue)."""

    scheduling_policy: SchedulingPolicy | None = None
    """Gang settings of the operator."""

    managed_by: Literal["kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue"] | None = None
    """Controller that reconciles the job; a change restarts it."""

    restart_policy: Literal["OnFailure", "ExitCode"] | None = None
    """What follows when a pod's container fails. Default `ExitCode`; `OnFailure` with the etcd backends, since torchrun
    exits with 1 for any failure. `ExitCode`: the operator fails the job at once for exit codes below 128, where a retry
    cannot help, and recreates the pod for others: three nodes free their GPUs 3 s after exit 1, and are whole again 4 s
    after exit 200. Its cost: a new pod has to be scheduled, and one that cannot run (an image without Python) is
    recreated without a pause and without a bound (kubeflow/trainer#2045); `ttl_seconds_after_finished` deletes no job
    that has failed. `OnFailure`: the kubelet restarts the container in place after any code: whole again 1 s after
    exit 200, but the GPUs are held for 56 s after exit 1, until `backoff_limit` is reached. The figures are measured by
    `benchmarks.cluster.restart_policy`."""

    rerun: Annotated[str, Field(max_length=253)] = ""
    """Any text; changing it runs a finished job again (and restarts a running one)."""

    on_restart: Literal["replace", "refuse"] = "replace"
    """What `pulumi up` does with a change that cannot be rolled out in place: `replace` restarts the job from its
    checkpoint; `refuse` fails with the cause and does not touch the job."""
