"""The elasticity of the job: nodes, processes, rendezvous (with the names of Flyte's `Elastic`)."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field

from elastic_infra.config.base import Part, Shorthand
from elastic_infra.config.placement import Toleration
from elastic_infra.config.values import (
    Count,
    InputImage,
    InputStr,
    Int,
    LabelKey,
    LabelValue,
    Port,
    Quantity,
    Seconds,
    Whole,
)

MAX_NODES: Final = 10_000
_RANGE: Final = re.compile(r"([0-9]{1,5})(?::([0-9]{1,5}))?")


def node_range(nnodes: str) -> tuple[int, int]:
    """``"2:4"`` is ``(2, 4)``, ``"3"`` is ``(3, 3)``.

    Raises:
        ValueError: the text is no number or range of numbers, a number is below 1, or the maximum is below the minimum.
    """
    match = _RANGE.fullmatch(nnodes)
    if match is None:
        message = 'must be a number of nodes such as 4, or a range such as "2:4".'
        raise ValueError(message)
    low, high = int(match[1]), int(match[2] or match[1])
    if not 1 <= low <= high <= MAX_NODES:
        message = f"the minimum ({low}) must be at least 1 and at most the maximum ({high}); the limit is {MAX_NODES}."
        raise ValueError(message)
    return low, high


def _is_range(nnodes: str) -> str:
    low, high = node_range(nnodes)
    return f"{low}:{high}" if ":" in nnodes else str(low)


def _count_to_text(value: object) -> object:
    if isinstance(value, bool):
        return value
    return str(int(value)) if isinstance(value, int | float) and value == value // 1 else value


_COUNT_SCHEMA: Final = {"type": "integer", "minimum": 1}


def _is_nproc(text: str) -> str:
    if text != "auto" and not (re.fullmatch(r"[0-9]{1,4}", text) and int(text) >= 1):
        message = 'must be a number of processes from 1 to 9999, or "auto" (one a GPU).'
        raise ValueError(message)
    return text if text == "auto" else str(int(text))


class RdzvConfigs(Part):
    """Time budgets of a rendezvous round (torchrun's `--rdzv-conf`)."""

    timeout: Seconds = 900
    """Seconds for a whole rendezvous with the `static` and `etcd` backends. 900 as in Flyte, for slow image pulls."""

    join_timeout: Seconds = 900
    """Seconds a node waits for the minimum of nodes, and for a store that does not answer. 900 as in Flyte; a node that
    cannot join by then exits 200, which the operator retries."""

    last_call_timeout: Seconds = 5
    """Seconds a round stays open after the minimum has joined. torch's 30 runs in full whenever fewer than the
    maximum of nodes come, so the default is short: late nodes join the next round at little cost."""


class Elastic(Part):
    """Nodes, processes and rendezvous of the job."""

    nnodes: Annotated[str, AfterValidator(_is_range), Shorthand(_count_to_text, _COUNT_SCHEMA)] = "1"
    """Number of nodes (`4`), or a range (`"2:4"`) in which training goes on while nodes come and go. 1 as in Flyte."""

    node_unit: Count = 1
    """Nodes train in multiples of this number, and a node beyond the last whole multiple waits. The minimum, the
    initial number and the maximum are multiples, and the autoscaler adds whole multiples. 1: any number."""

    world_sizes: Annotated[tuple[Annotated[Whole, Field(ge=1)], ...], Field(max_length=64)] = ()
    """Numbers of workers that the script can use, such as `[8, 16, 32]`; nodes beyond the largest that can be made up
    wait. Empty: any. A script that fails to start with one number on two nodes, having trained with another, is not
    given that number again."""

    initial_nodes: Count | None = None
    """Nodes the job is created with. Default: the maximum, as in Flyte; the minimum when autoscaling is on, or
    `placement.kueue.mode` is `elastic`. Given, and without autoscaling or such a mode, it is the job's size as long as
    it stands: a change of it restarts the job, and `up` takes any other size back (of a TrainJob, whose size no object
    of the stack holds, it leaves another one). Left out, `elastic-infra scale`
    moves the job within `nnodes`, and Pulumi leaves its size alone."""

    elastic_job_set: bool = False
    """The number of nodes of a TrainJob moves within `nnodes`, through the JobSet that Trainer makes of it: by
    `elastic-infra scale`, or with `autoscaling.policy: capacity`. JobSet allows that only where its alpha feature gate
    `ElasticJobSet` is on, which is off by default and which `elastic-infra check` looks for. Only for target
    'trainjob'; without it a TrainJob keeps the maximum of nodes."""

    nproc_per_node: Annotated[str, AfterValidator(_is_nproc), Shorthand(_count_to_text, _COUNT_SCHEMA)] = "auto"
    """Worker processes on each node. `auto` is the GPU count, or 1 without GPUs (torch's own `auto` would count
    the cluster node's cores)."""

    rdzv_backend: Literal["c10d", "etcd", "etcd-v2"] = "c10d"
    """The store where nodes meet. `c10d` is the launcher's own store. With the etcd backends, which need
    `rdzv_endpoint`, torchrun itself runs the job, and `elastic-infra explain` lists the features that are missing
    then."""

    rdzv_endpoint: InputStr | None = None
    """`host:port` of an etcd server. Refused with `c10d`, since `rendezvous` gives the endpoint of that backend."""

    rdzv_id: InputStr | None = None
    """Name of the run in the store. Default `<name>-<hash of the workload>`: a changed job never meets the old one. A
    value that is known late (a Pulumi `Output`) has no part in the hash: where only such a value changes, `up` makes
    the store anew with the job. Where the value is a secret, or the store an etcd server, the store stays: change
    `run_policy.rerun` as well, or the job may meet the old one."""

    rdzv_configs: RdzvConfigs = RdzvConfigs()
    """Time budgets of a round."""

    max_restarts: Int = 3
    """Restarts of the worker group that failures may cost, over the whole job; a membership change costs none.
    3 as in flyte-sdk."""

    monitor_interval: Annotated[float, Field(gt=0, le=3600)] = 3.0
    """Seconds between the agent's looks at its workers. Exits are seen at once for any value; 3 as in flyte-sdk."""

    start_method: Literal["spawn", "fork", "forkserver"] = "spawn"
    """How function entrypoints start their processes. Only `spawn` is safe with CUDA."""

    @property
    def min_nodes(self) -> int:
        """The fewest nodes that train."""
        return node_range(self.nnodes)[0]

    @property
    def max_nodes(self) -> int:
        """The most nodes that train."""
        return node_range(self.nnodes)[1]

    @property
    def is_range(self) -> bool:
        """Whether the number of nodes may change while the job runs."""
        return self.min_nodes < self.max_nodes


class RendezvousResources(Part):
    """Request and limit of the store pod."""

    cpu: Quantity = "500m"
    """CPU of the store pod; it answers small messages only."""

    memory: Quantity = "256Mi"
    """Memory of the store pod. The default is enough for some 3,800 nodes: a node takes up to 64 KiB, most of it in the
    kernel, for what it has not read yet."""


class Rendezvous(Part):
    """Where the rendezvous store lives. Only for the `c10d` backend."""

    host: Literal["dedicated", "worker0"] | None = None
    """`dedicated`: a small pod for the store alone, so that no training node is special; default when `nnodes` is a
    range. `worker0`: on the first node, as with torchrun; default otherwise."""

    port: Port = 29400
    """TCP port of the store. 29400 is torchrun's."""

    image: InputImage | None = None
    """Image of the store pod, which needs only python3. Default: the job's image."""

    resources: RendezvousResources = RendezvousResources()
    """Request and limit of the store pod."""

    node_selector: dict[LabelKey, LabelValue] = {}
    """Labels that the cluster node of the store pod must have. `placement` is for the training nodes alone, so that the
    store is on none of their GPUs; where all cluster nodes are of its kind, repeat it here."""

    tolerations: tuple[Toleration, ...] = ()
    """Taints that the store pod accepts, besides 30 s for a cluster node that is not ready."""
