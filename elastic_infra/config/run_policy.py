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
    """Delete the finished job after this long. Unset, because the next `pulumi refresh` and `up` would train again."""

    active_deadline_seconds: Seconds | None = None
    """End the job after this long. The operator looks only when something happens (kubeflow/trainer#3358)."""

    backoff_limit: Annotated[Whole, Field(ge=-1, le=1_000_000)] | None = None
    """Container restarts, summed over all pods, that fail the job. Default 3 for each of the most nodes; -1 means
    no limit; 0 fails at the first."""

    suspend: bool | None = None
    """Hold the job without pods. Unset leaves it to others (a queue)."""

    scheduling_policy: SchedulingPolicy | None = None
    """Gang settings of the operator."""

    managed_by: Literal["kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue"] | None = None
    """Controller that reconciles the job; a change restarts it."""

    restart_policy: Literal["OnFailure", "ExitCode"] = "OnFailure"
    """`OnFailure`: the kubelet restarts the container in place. `ExitCode`: the operator recreates the pod for exit
    codes from 128, and fails the job for lower ones."""

    rerun: Annotated[str, Field(max_length=253)] = ""
    """Any text; changing it runs a finished job again (and restarts a running one)."""

    on_restart: Literal["replace", "refuse"] = "replace"
    """What `pulumi up` does with a change that cannot be rolled out in place: `replace` restarts the job from its
    checkpoint; `refuse` fails with the cause and leaves the job alone."""
