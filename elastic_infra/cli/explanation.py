"""The explanation of a config in numbers and words. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from elastic_infra.config import Autoscaling, Initializer, JobConfig
from elastic_infra.config.names import ObjectNames
from elastic_infra.config.time_budgets import Budget, budgets
from elastic_infra.config.values import quantity
from elastic_infra.config.workdir import amount, archive, size
from elastic_infra.launcher.command_line.plan import MISSING_UNDER_TORCHRUN, OUR_BACKEND
from elastic_infra.manifests.health import looked_at
from elastic_infra.manifests.initializers import is_shared
from elastic_infra.manifests.service import service_name
from elastic_infra.preview.deltas import container_restarts

_MIB = 2**20
_GIB = 2**30
_DEFAULT_SHARED_MEMORY = 64 * _MIB
"""What a container has at /dev/shm without a volume there, as container runtimes make it."""


@dataclasses.dataclass(frozen=True)
class Span:
    """A number that moves with the number of nodes."""

    minimum: int
    initial: int
    maximum: int

    def __str__(self) -> str:
        if self.minimum == self.maximum:
            return str(self.maximum)
        return f"{self.minimum} to {self.maximum}, {self.initial} at first"


@dataclasses.dataclass(frozen=True)
class Explanation:
    """A job in numbers and words.

    Attributes:
        workload: kind of the Kubernetes object.
        scaled_by: what changes the number of nodes while the job runs.
        processes_per_node: workers on each node.
        processes: all workers (the world size).
        node_unit: nodes train in multiples of it.
        world_sizes: the numbers of workers that the script can use; empty means any.
        gpus: all accelerators.
        gpu_resource: the extended resource they are; None without accelerators.
        cpu: request and limit of each node; None means no limit.
        memory: the same for memory, shared memory included.
        shared_memory: the limit of /dev/shm, "memory limit", "unlimited" or "off".
        snapshot_bytes: the largest state of which the two snapshots in memory (`training.ElasticState`) fit into
            /dev/shm; what training itself takes of the memory comes on top. None without a limit.
        rendezvous: host:port of the store inside the cluster; None for a single pod.
        rendezvous_host: the place of the store.
        container_restarts: how many, over all pods, fail the job; in words where no number bounds them.
        group_restarts: how many failures of the worker group the job survives.
        health_check: what is looked at before a pod trains on a cluster node; None without a check.
        initializers: what is fetched before the training starts, and where to.
        code: local code that the pods get, and where; None for the image's alone.
        checkpoint: where checkpoints are mounted; None without a volume.
        missing: the launcher's features that this job lacks; None for most jobs.
    """

    name: str
    namespace: str
    workload: str
    nodes: Span
    scaled_by: str
    processes_per_node: int
    processes: Span
    node_unit: int
    world_sizes: tuple[int, ...]
    gpus: Span | None
    gpu_resource: str | None
    cpu: str | None
    memory: str | None
    shared_memory: str
    snapshot_bytes: int | None
    rendezvous: str | None
    rendezvous_host: str
    group_restarts: int
    container_restarts: int | str
    initializers: tuple[str, ...]
    health_check: str | None
    code: str | None
    checkpoint: str | None
    missing: str | None
    budgets: tuple[Budget, ...]

    def facts(self) -> Iterator[tuple[str, str]]:
        """Label and text of all facts except the budgets."""
        yield "workload", f"{self.workload} in namespace {self.namespace}"
        unit = f", in multiples of {self.node_unit}" if self.node_unit > 1 else ""
        yield "nodes", f"{self.nodes}{unit}; {self.scaled_by}"
        sizes = f", of which only {', '.join(map(str, self.world_sizes))} train" if self.world_sizes else ""
        yield "processes", f"{self.processes} ({self.processes_per_node} a node){sizes}"
        if self.gpus is not None:
            yield "GPUs", f"{self.gpus} ({self.gpu_resource})"
        yield "a node has", f"{self.cpu or 'no limit of'} CPU, {self.memory or 'no limit of'} memory"
        yield "shared memory", self.shared_memory
        if self.missing is None:
            yield "snapshots in memory", self._snapshots()
        yield "rendezvous", f"{self.rendezvous_host}: {self.rendezvous}" if self.rendezvous else "inside the pod"
        containers = f"of containers, over all pods: {self.container_restarts}"
        yield "restarts", f"{self.group_restarts} of the workers; {containers}"
        if self.health_check is not None:
            yield "health check", self.health_check
        for each in self.initializers:
            yield "initializer", each
        if self.code is not None:
            yield "code", self.code
        yield "checkpoints", self.checkpoint or "no volume: a replaced pod starts again at step 0"
        if self.missing is not None:
            yield "does without", self.missing

    def _snapshots(self) -> str:
        if self.snapshot_bytes is None:
            return "two of the state, as large as it may be: /dev/shm has no limit"
        unit, name = (_GIB, "GiB") if self.snapshot_bytes >= _GIB else (_MIB, "MiB")
        size = f"{self.snapshot_bytes / unit:.3g} {name}"
        return f"of a state of up to {size}: /dev/shm has two, which count as memory"


def explanation(name: str, config: JobConfig) -> Explanation:
    """Explain a job by its config, in numbers and words."""
    gpu, checkpoint = config.resources.gpu, config.storage.checkpoint
    return Explanation(
        name=name,
        namespace=str(config.namespace),
        workload=_workload(config),
        nodes=_span(config, 1),
        scaled_by=_scaled_by(config),
        processes_per_node=config.nproc_per_node,
        processes=_span(config, config.nproc_per_node),
        node_unit=config.elastic.node_unit,
        world_sizes=config.elastic.world_sizes,
        gpus=_span(config, gpu.count) if gpu else None,
        gpu_resource=gpu.resource_name if gpu else None,
        cpu=config.resources.cpu,
        memory=config.resources.memory,
        shared_memory=_shared_memory(config),
        snapshot_bytes=_snapshot_bytes(config),
        rendezvous=_rendezvous(name, config),
        rendezvous_host=_HOSTS[config.rendezvous_host],
        group_restarts=config.elastic.max_restarts,
        container_restarts=container_restarts(config),
        initializers=tuple(_initializer(config, each) for each in config.initializers),
        health_check=_health_check(config),
        code=_code(config),
        checkpoint=checkpoint.mount_path if checkpoint else None,
        missing=_missing(config),
        budgets=budgets(config),
    )


def _workload(config: JobConfig) -> str:
    if config.kind != "Job":
        return config.kind
    return "Indexed batch/v1 Job" if config.is_indexed_job else "batch/v1 Job"


_HOSTS = {"dedicated": "a store pod of its own", "worker0": "the first node", "none": "etcd"}


def _span(config: JobConfig, each: int) -> Span:
    elastic = config.elastic
    return Span(elastic.min_nodes * each, config.initial_nodes * each, elastic.max_nodes * each)


def _scaled_by(config: JobConfig) -> str:
    if not config.elastic.is_range:
        return "fixed"
    if config.keeps_its_size:
        return "the TrainJob asks for all, and those that have come train"
    return _autoscaler(config.autoscaling) if config.autoscaling is not None else _SIZE_OWNERS[config.size_owner]


_SIZE_OWNERS = {
    "config": "the config's elastic.initial_nodes, which holds it",
    "queue": "Kueue sets it when it admits the job",
    "scale": "elastic-infra scale changes it",
}


def _autoscaler(autoscaling: Autoscaling) -> str:
    if autoscaling.policy == "capacity":
        return "grows into idle capacity, and makes room for pods that wait; the driver has a token and a Role for it"
    owner = "our autoscaler" if autoscaling.owner == "component" else "the operator's autoscaler"
    followed = (metric.name or metric.type for metric in autoscaling.metrics)
    return f"{owner} changes it ({', '.join(followed)})"


def _shared_memory(config: JobConfig) -> str:
    shm = config.shared_memory
    if not shm.enabled:
        return "off"
    return shm.size or ("up to the memory limit" if config.resources.memory else "unlimited")


def _snapshot_bytes(config: JobConfig) -> int | None:
    limit = config.shared_memory.size or config.resources.memory
    if not config.shared_memory.enabled:
        return _DEFAULT_SHARED_MEMORY // 2
    return None if limit is None else int(quantity(limit) / 2)


def _initializer(config: JobConfig, initializer: Initializer) -> str:
    what = initializer.source or " ".join(initializer.command)
    keeps = "once, for all pods that see it" if is_shared(config, initializer) else "anew in each pod"
    return f"{initializer.name}: {initializer.kind} {what} to {initializer.path}, {keeps}"


def _health_check(config: JobConfig) -> str | None:
    check = config.health_check
    if check is None:
        return None
    gpus, is_linked = looked_at(config, check)
    room = f"{check.disk} free" if check.disk is not None else "writes"
    parts = [f"{gpus} GPUs" if gpus else "", "a sum over them by NCCL" if is_linked else "", f"{room} in each volume"]
    return f"{', '.join(filter(None, parts))}, within {check.timeout_seconds} s, or the pod is made anew"


def _code(config: JobConfig) -> str | None:
    workdir = config.workdir
    if workdir is None:
        return None
    files = workdir.files or {}
    held = f"{amount(files)}, {size(len(archive(files)))} packed"
    return f"{workdir.path or 'files'} ({held}) at {workdir.mount_path}; other code is other pods"


def _missing(config: JobConfig) -> str | None:
    if config.elastic.rdzv_backend == OUR_BACKEND:
        return None
    return f"{MISSING_UNDER_TORCHRUN}: torchrun itself runs a job on backend {config.elastic.rdzv_backend!r}"


def _rendezvous(name: str, config: JobConfig) -> str | None:
    if config.is_single_pod:
        return None
    name = config.name or name
    is_of_the_operator = config.kind == "PyTorchJob" and config.rendezvous_host != "dedicated"
    host = ObjectNames(name).worker(0) if is_of_the_operator else service_name(name, config)
    ours = f"{host}:{config.rendezvous.port}"
    return ours if config.elastic.rdzv_endpoint is None else str(config.elastic.rdzv_endpoint)
