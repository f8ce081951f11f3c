"""Warnings about settings that are allowed but likely to surprise, shown by the CLI and by `pulumi up`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from elastic_infra.config.errors import Fault
from elastic_infra.config.overlays import TRAINING_CONTAINER
from elastic_infra.config.values import quantity

if TYPE_CHECKING:
    from elastic_infra.config.job import JobConfig


def warnings(config: JobConfig) -> tuple[Fault, ...]:
    """Every warning, with its reason and what to do."""
    return tuple(warning for group in _GROUPS for warning in group(config))


def _lifetime(config: JobConfig) -> Iterator[Fault]:
    policy = config.run_policy
    if policy.ttl_seconds_after_finished is not None:
        stays = config.kind == "PyTorchJob" and config.restart_policy == "ExitCode"
        kept = " A job that has failed stays: under restart_policy 'ExitCode' the operator does not delete it."
        yield Fault(
            "run_policy.ttl_seconds_after_finished",
            "the finished job will be deleted, so the next `pulumi refresh` and `up` train again. "
            f"Unset it to keep the job.{kept if stays else ''}",
        )
    if policy.active_deadline_seconds is not None and config.kind == "PyTorchJob":
        yield Fault(
            "run_policy.active_deadline_seconds",
            "the training operator looks at it only when something happens (kubeflow/trainer#3358): expect it late.",
        )


def _restarts(config: JobConfig) -> Iterator[Fault]:
    if config.has_indices and 0 <= config.backoff_limit < config.elastic.max_nodes:
        yield _few_restarts(config, "failed pods of all nodes together")
    if config.kind != "PyTorchJob":
        return
    given = config.run_policy.backoff_limit
    if config.restart_policy == "ExitCode" and given is not None:
        yield Fault(
            "run_policy.backoff_limit",
            "counts containers that are restarted in place, and none is under restart_policy 'ExitCode'. "
            "Unset it, or set restart_policy to 'OnFailure'.",
        )
    elif config.restart_policy == "OnFailure" and 0 <= config.backoff_limit < config.elastic.max_nodes:
        yield _few_restarts(config, "container restarts of all pods together")
    if config.restart_policy == "ExitCode" and config.elastic.rdzv_backend != "c10d":
        yield Fault(
            "run_policy.restart_policy",
            "torchrun, which runs a job on etcd, exits with 1 for any failure: under 'ExitCode' a node that is "
            "preempted fails the job. Use 'OnFailure'.",
        )
    if config.run_policy.clean_pod_policy == "None":
        yield Fault(
            "run_policy.clean_pod_policy",
            "'None' leaves pods of a finished job running, with their GPUs. Use 'Running', which keeps finished pods.",
        )


def _few_restarts(config: JobConfig, counted: str) -> Fault:
    return Fault(
        "run_policy.backoff_limit",
        f"({config.backoff_limit}) counts {counted}; below the maximum of nodes ({config.elastic.max_nodes}) one bad "
        "event can fail the job.",
    )


def _resources(config: JobConfig) -> Iterator[Fault]:
    shm = config.shared_memory
    if shm.enabled and shm.size is None and config.resources.memory is None:
        yield Fault(
            "shared_memory",
            "without resources.memory or a size, /dev/shm may fill the cluster node's memory. Set one of the two.",
        )
    if config.resources.rdma is not None:
        yield Fault(
            "resources.rdma",
            "adds the capability IPC_LOCK, which profile 'baseline' refuses as well: the namespace must enforce no Pod "
            f"Security profile, or 'privileged'.{_locked_memory(config.security.run_as_user)}",
        )


def _bytes(config: JobConfig) -> Iterator[Fault]:
    checkpoint, asked = config.storage.checkpoint, config.resources
    amounts = {
        "resources.memory": asked.memory,
        "resources.ephemeral_storage": asked.ephemeral_storage,
        "rendezvous.resources.memory": config.rendezvous.resources.memory,
        "storage.checkpoint.size": checkpoint.size if checkpoint else None,
    }
    for path, amount in amounts.items():
        if amount is not None and (number := quantity(amount)) % 1:
            yield Fault(
                path,
                f"({amount}) is no whole number of bytes: Kubernetes warns of it. Write {math.ceil(number)}.",
            )


BYTES_OF_A_NODE: Final = 64 << 10
"""Of memory that the store's pod takes at most for each node of a job."""


def store_memory(nodes: int) -> int:
    """Bytes that the pod of a store of so many nodes takes at most: ``benchmarks/rendezvous/LIMITS.md``.

    Most of it is the kernel's: what a node has not read yet lies there for each node.
    """
    return (16 << 20) + nodes * BYTES_OF_A_NODE


def _store(config: JobConfig) -> Iterator[Fault]:
    given, nodes = config.rendezvous.resources.memory, config.elastic.max_nodes
    needed = store_memory(nodes)
    if config.rendezvous_host == "dedicated" and quantity(given) < needed:
        yield Fault(
            "rendezvous.resources.memory",
            f"({given}) may be too little for {nodes} nodes. A store that is ended for want of memory comes back "
            f"empty, and all nodes connect anew. Set {-(-needed >> 20)}Mi.",
        )
    own, runs_the_image = config.rendezvous, config.rendezvous_host == "dedicated" and config.rendezvous.image is None
    if runs_the_image and _ARCHITECTURE in {*config.placement.node_selector} - {*own.node_selector}:
        yield Fault(
            "rendezvous.node_selector",
            f"has no {_ARCHITECTURE}, and the store's pod runs the job's image: on a cluster node of another "
            "architecture it does not start. Give it that of placement.node_selector.",
        )


_ARCHITECTURE: Final = "kubernetes.io/arch"


def _locked_memory(user: int) -> str:
    """That a capability is root's alone: https://github.com/kubernetes/enhancements/issues/2763."""
    if user == 0:
        return ""
    return (
        f" User {user} gains nothing by it, since Kubernetes has no ambient capabilities: set security.run_as_user to "
        "0, or raise the limit of locked memory in the nodes' container runtime."
    )


def _progress(config: JobConfig) -> Iterator[Fault]:
    checkpoint = config.storage.checkpoint
    if checkpoint is not None and checkpoint.access_mode == "ReadWriteOnce" and config.elastic.max_nodes > 1:
        yield Fault(
            "storage.checkpoint.access_mode",
            "'ReadWriteOnce' holds all nodes on one cluster node; pods elsewhere never start. Use 'ReadWriteMany'.",
        )
    if config.storage.checkpoint is None and not config.storage.mounts:
        yield Fault("storage.checkpoint", "without a checkpoint volume a replaced pod starts again at step 0.")


def _overlays(config: JobConfig) -> Iterator[Fault]:
    spec = config.overlays.pod.get("spec")
    containers = spec.get("containers") if isinstance(spec, dict) else None
    for index, each in enumerate(containers if isinstance(containers, list) else ()):
        if isinstance(each, dict) and each.get("name") != TRAINING_CONTAINER:
            yield Fault(
                f"overlays.pod.spec.containers[{index}]",
                "keeps the pod running after the training, and the job from its end, unless the container ends by "
                "itself. Put a sidecar into initContainers with restartPolicy: Always.",
            )


def _network(config: JobConfig) -> Iterator[Fault]:
    if config.security.network_policy and config.is_on_host_network:
        yield Fault(
            "security.network_policy",
            "makes no NetworkPolicy for a job on the host's network, as overlays.pod.spec.hostNetwork asks: most "
            "networks cannot tell such pods from their node, and would close the store to them. Close the job's ports "
            "in the nodes' firewall, and say false here.",
        )
    # https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/#pod-s-dns-policy
    if config.is_on_host_network and config.rendezvous_host != "none" and config.dns_policy in _OF_THE_MACHINE:
        yield Fault(
            "overlays.pod.spec.dnsPolicy",
            "has a pod on the host's network ask its machine's name servers, which do not know the job's Service: all "
            "nodes would wait for ever. Set ClusterFirstWithHostNet.",
        )


_OF_THE_MACHINE: Final = (None, "ClusterFirst", "Default")
"""DNS policies that ask a machine's name servers for pods on its network."""


def _environment(config: JobConfig) -> Iterator[Fault]:
    unbuffered = config.env.get("PYTHONUNBUFFERED")
    if unbuffered is not None and unbuffered.value != "1" and config.kind == "PyTorchJob":
        yield Fault("env.PYTHONUNBUFFERED", "is set to 1 by the training operator, over any other value. Remove it.")


def _indexed_job(config: JobConfig) -> Iterator[Fault]:
    mode = config.placement.kueue.mode
    if config.is_indexed_job and config.placement.queue and config.size_owner == "scale" and mode == "whole":
        yield Fault(
            "placement.queue",
            "Kueue admits the job with the size that it begins with, and suspends it when that changes, until there is "
            "quota for the new size: `elastic-infra scale` would end its pods. Set elastic.initial_nodes, which keeps "
            "the size, or placement.kueue.mode.",
        )
    if mode == "partial" and (config.elastic.node_unit > 1 or config.elastic.world_sizes):
        yield Fault(
            "placement.kueue.mode",
            "'partial' may admit a number of nodes that elastic.node_unit or elastic.world_sizes cannot use: the nodes "
            "beyond would hold quota and wait. Use 'elastic', or 'whole' with a number that can be used.",
        )


def _train_job(config: JobConfig) -> Iterator[Fault]:
    if config.kind == "TrainJob" and config.placement.queue is not None and config.elastic.is_range:
        yield Fault(
            "placement.queue",
            "Kueue admits a TrainJob with all its nodes or not at all: this job waits for quota for "
            f"{config.elastic.max_nodes} nodes, though it can train with {config.elastic.min_nodes}. Lower the maximum "
            "of elastic.nnodes to what the queue has.",
        )


def _capacity(config: JobConfig) -> Iterator[Fault]:
    if config.follows_capacity and config.placement.priority_class is not None:
        yield Fault(
            "placement.priority_class",
            "lets each node that the job asks for take the place of pods of lower priority, idle or not. Use a class "
            "with preemptionPolicy: Never.",
        )


def _operator(config: JobConfig) -> Iterator[Fault]:
    if config.kind != "PyTorchJob":
        return
    if config.placement.queue is not None:
        yield Fault(
            "placement.queue",
            "Kueue leaves PyTorchJobs alone from 0.19 on unless its integration for them is enabled (kueue#12606): "
            "the job would then start without its queue. Enable kubeflow.org/pytorchjob in Kueue's configuration.",
        )
    if config.elastic.rdzv_backend != "c10d":
        yield Fault(
            "elastic.rdzv_backend",
            f"{config.elastic.rdzv_backend!r} keeps a finished run closed under its rdzv_id, so a job created again "
            "meets RendezvousClosedError (kubeflow/trainer#1638). Use 'c10d', or change rdzv_id each time.",
        )
    gang = config.run_policy.scheduling_policy
    if gang is not None and gang.min_available is not None and gang.min_available > config.elastic.min_nodes:
        yield Fault(
            "run_policy.scheduling_policy.min_available",
            f"({gang.min_available}) is above the minimum of nodes ({config.elastic.min_nodes}): a job that has shrunk "
            "to it cannot be scheduled again.",
        )
    for i, metric in enumerate(config.autoscaling.metrics if config.autoscaling else ()):
        if config.resources.gpu is not None and metric.type in {"cpu", "memory"}:
            yield Fault(
                f"autoscaling.metrics[{i}]",
                f"{metric.type} says little about work on GPUs (kubeflow/trainer#1891), so the size may flap. "
                "Prefer a metric of type 'pods' or 'external'.",
            )


_GROUPS: Final = (
    _lifetime,
    _restarts,
    _resources,
    _bytes,
    _store,
    _progress,
    _environment,
    _overlays,
    _network,
    _indexed_job,
    _train_job,
    _capacity,
    _operator,
)
