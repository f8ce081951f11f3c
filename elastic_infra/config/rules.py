"""Rules between fields: each yields its faults, with the reason and what to do.

Plain fields only (never a late value), so that every rule runs in a preview.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from elastic_infra.config import pod_rules
from elastic_infra.config.elastic import Rendezvous
from elastic_infra.config.env import reserved
from elastic_infra.config.errors import Fault
from elastic_infra.config.overlays import (
    TRAIN_CONTAINER,
    TRAINING_CONTAINER,
    overlays_can_be_merged,
    overlays_keep_identity,
)
from elastic_infra.config.placement import Kueue
from elastic_infra.config.run_policy import RunPolicy
from elastic_infra.config.values import digest_in, is_late, quantity

if TYPE_CHECKING:
    from elastic_infra.config.job import JobConfig

GRACE_RESERVE_SECONDS: Final = 5
"""Seconds that the launcher needs to end itself after its workers."""


def faults(config: JobConfig) -> tuple[Fault, ...]:
    """Every rule between fields that the config breaks, in the order of the rules."""
    return tuple(fault for rule in _RULES for fault in rule(config))


def one_entrypoint(config: JobConfig) -> Iterator[Fault]:
    """Exactly one of script, module and command is given."""
    given = [name for name in ("script", "module", "command") if getattr(config, name)]
    if len(given) != 1:
        found = f"{' and '.join(given)} are given" if given else "none is given"
        yield Fault("script", f"exactly one of script, module and command says what runs; {found}.")
    for name in given:
        first = config.command[0] if name == "command" else getattr(config, name)
        if isinstance(first, str) and first.startswith("-"):
            yield Fault(name, "starts with '-', so the launcher would read it as an option. Put options into args.")


def initial_within_range(config: JobConfig) -> Iterator[Fault]:
    """The minimum, the initial number and the maximum are in order."""
    elastic = config.elastic
    initial = elastic.initial_nodes
    if initial is not None and not elastic.min_nodes <= initial <= elastic.max_nodes:
        yield Fault(
            "elastic.initial_nodes",
            f"({initial}) must be between the minimum ({elastic.min_nodes}) and "
            f"the maximum ({elastic.max_nodes}) of nnodes.",
        )


def adopted_by_name(config: JobConfig) -> Iterator[Fault]:
    """Pulumi imports an object by a name that is known before anything runs."""
    if config.adopted and is_late(config.namespace):
        yield Fault("adopted", "needs a namespace that is known when the program runs. Write one, or leave this out.")


def nodes_come_in_units(config: JobConfig) -> Iterator[Fault]:
    """Minimum, initial number and maximum of nodes are multiples of `node_unit`."""
    elastic = config.elastic
    given = {
        "elastic.nnodes": {"minimum": elastic.min_nodes, "maximum": elastic.max_nodes},
        "elastic.initial_nodes": {"number": config.initial_nodes},
    }
    for path, numbers in given.items():
        for name, nodes in numbers.items():
            if nodes % elastic.node_unit:
                yield Fault(
                    path, f"the {name} ({nodes}) must be a multiple of elastic.node_unit ({elastic.node_unit})."
                )


def world_sizes_can_be_made(config: JobConfig) -> Iterator[Fault]:
    """The job starts with a number of workers in `world_sizes`."""
    elastic, each = config.elastic, config.nproc_per_node
    if elastic.world_sizes and config.initial_nodes * each not in elastic.world_sizes:
        yield Fault(
            "elastic.world_sizes",
            f"must have the number of workers that the job starts with ({config.initial_nodes} nodes of {each} are "
            f"{config.initial_nodes * each}), or those nodes wait. Add it, or set elastic.initial_nodes.",
        )


def sizes_need_the_launcher(config: JobConfig) -> Iterator[Fault]:
    """torchrun, which runs a job on etcd by itself, takes any number of nodes."""
    elastic = config.elastic
    given = {"elastic.node_unit": elastic.node_unit != 1, "elastic.world_sizes": bool(elastic.world_sizes)}
    for path in (path for path, is_given in given.items() if is_given and elastic.rdzv_backend != "c10d"):
        yield Fault(path, f"has no effect with rdzv_backend {elastic.rdzv_backend!r}. Remove it, or use 'c10d'.")


def gang_can_be_complete(config: JobConfig) -> Iterator[Fault]:
    """A gang has at most the pods with which the job is created, or it waits for ever."""
    policy = config.run_policy.scheduling_policy
    if policy is not None and policy.min_available is not None and policy.min_available > config.initial_nodes:
        yield Fault(
            "run_policy.scheduling_policy.min_available",
            f"({policy.min_available}) must be at most the number of nodes the job starts with "
            f"({config.initial_nodes}), or it waits for ever. Leave it unset for the minimum of nodes.",
        )


def gang_fits_its_scheduler(config: JobConfig) -> Iterator[Fault]:
    """A gang has one maker, and each scheduler its own settings."""
    gang = config.placement.gang
    if gang is None:
        return
    if config.run_policy.scheduling_policy is not None:
        yield Fault(
            "placement.gang",
            "and run_policy.scheduling_policy make two gangs of the same pods. Keep the latter only where the training "
            "operator runs with a gang scheduler.",
        )
    if gang.queue is not None and gang.scheduler == "coscheduling":
        yield Fault("placement.gang.queue", "coscheduling has no queues. Remove it; Kueue's is placement.queue.")
    if gang.queue is None and gang.scheduler == "kai":
        yield Fault("placement.gang.queue", "KAI schedules only pods that name one of its queues. Name one.")
    if gang.timeout_seconds is not None and gang.scheduler != "coscheduling":
        yield Fault("placement.gang.timeout_seconds", "is for coscheduling alone. Remove it.")
    if gang.scheduler == "kai" and config.kind == "TrainJob":
        yield Fault(
            "placement.gang.scheduler",
            "KAI takes the size of a gang from a PyTorchJob or a batch/v1 Job, and not from a TrainJob. Set target "
            "'job' or another scheduler.",
        )


def processes_match_gpus(config: JobConfig) -> Iterator[Fault]:
    """A node has at most one process for each GPU; a device of Neuron has several cores, each with a process."""
    gpu, wanted = config.resources.gpu, config.elastic.nproc_per_node
    if gpu is not None and gpu.vendor != "neuron" and wanted != "auto" and int(wanted) > gpu.count:
        yield Fault(
            "elastic.nproc_per_node",
            f"({wanted}) must be at most resources.gpu.count ({gpu.count}): each process needs its own GPU. "
            "Lower it, or use 'auto'.",
        )


def only_for_several_nodes(config: JobConfig) -> Iterator[Fault]:
    """Fields without effect on a single pod are refused, not ignored."""
    if config.is_single_pod:
        reason = "has no effect on a single pod (target 'job'). Remove it, or set target 'pytorchjob'."
        given = {
            "rendezvous": config.rendezvous != Rendezvous(),
            "autoscaling": config.autoscaling,
            "elastic.rdzv_endpoint": config.elastic.rdzv_endpoint,
            "elastic.initial_nodes": config.elastic.initial_nodes,
            "elastic.node_unit": config.elastic.node_unit != 1,
            "elastic.world_sizes": bool(config.elastic.world_sizes),
            "run_policy.scheduling_policy": config.run_policy.scheduling_policy,
            "run_policy.restart_policy": config.run_policy.restart_policy
            == "OnFailure",  # the other value is a Job's own behaviour
            "run_policy.clean_pod_policy": config.run_policy.clean_pod_policy != _RUN_POLICY.clean_pod_policy,
            "disruption.pod_disruption_budget": config.disruption.pod_disruption_budget,
            "placement.gang": config.placement.gang,
            "placement.topology_pack": config.placement.topology_pack,
            "placement.avoid_bad_nodes": config.placement.avoid_bad_nodes,
            "launcher.kubernetes_events": config.launcher.kubernetes_events,
        }
        yield from (Fault(path, reason) for path, value in given.items() if value is not None and value is not False)
        if config.elastic.rdzv_backend != "c10d":
            yield Fault("elastic.rdzv_backend", reason)
        if config.run_policy.managed_by == "kubeflow.org/training-operator":
            yield Fault("run_policy.managed_by", "the training operator does not manage a batch/v1 Job. Remove it.")
        if config.run_policy.backoff_limit == -1:
            yield Fault("run_policy.backoff_limit", "(-1) a batch/v1 Job has no unlimited form. Give a number.")


def indices_have_no_operator(config: JobConfig) -> Iterator[Fault]:
    """The Job controller has no word for what the training operator does beside making pods."""
    if not config.has_indices:
        return
    policy, target = config.run_policy, config.target
    reason = f"is for the training operator, and target {target!r} has none. Remove it, or set target 'pytorchjob'."
    given = {
        "run_policy.scheduling_policy": policy.scheduling_policy is not None,
        "run_policy.restart_policy": policy.restart_policy == "OnFailure",  # the other value is a Job's own behaviour
        "run_policy.clean_pod_policy": policy.clean_pod_policy != _RUN_POLICY.clean_pod_policy,
        "run_policy.managed_by": policy.managed_by == "kubeflow.org/training-operator",
    }
    yield from (Fault(path, reason) for path, is_given in given.items() if is_given)
    if config.elastic.rdzv_backend != "c10d":
        yield Fault(
            "elastic.rdzv_backend",
            f"{config.elastic.rdzv_backend!r} has torchrun run the job, which exits with 1 for any failure: with "
            f"target {target!r} a node that is preempted fails the job. Use 'c10d', or target 'pytorchjob'.",
        )


def indices_have_no_autoscaler(config: JobConfig) -> Iterator[Fault]:
    """A HorizontalPodAutoscaler needs a scale subresource."""
    if not config.has_indices or config.keeps_its_size:
        return
    if config.autoscaling is not None and not config.follows_capacity:
        what = "a batch/v1 Job" if config.kind == "Job" else "a TrainJob"
        yield Fault(
            "autoscaling",
            f"needs a scale subresource, and {what} (target {config.target!r}) has none. Remove it, and change the "
            "size by `elastic-infra scale`, or set autoscaling.policy 'capacity', or target 'pytorchjob'.",
        )


def indexed_job_counts_ready_pods(config: JobConfig) -> Iterator[Fault]:
    """A batch/v1 Job has no condition that says that it runs, only numbers of pods."""
    if config.is_indexed_job and config.wait_for == "running" and config.size_owner != "config":
        yield Fault(
            "wait_for",
            "'running' waits for a number of ready pods, and with target 'job' the number of this job may change. Set "
            "elastic.initial_nodes without placement.kueue.mode, or wait for 'succeeded' or 'none'.",
        )


def train_job_has_one_size(config: JobConfig) -> Iterator[Fault]:
    """A TrainJob has one number of nodes for its whole life, unless JobSet lets it change."""
    given = {
        "elastic.initial_nodes": config.elastic.initial_nodes is not None,
        "autoscaling": config.autoscaling is not None,
    }
    for path in (path for path, is_given in given.items() if is_given and config.keeps_its_size):
        yield Fault(
            path,
            "a TrainJob (target 'trainjob') has the maximum of nodes for its whole life, and trains with those that "
            "have come. Remove it, set target 'pytorchjob' or 'job', or set elastic.elastic_job_set where JobSet's "
            "feature gate ElasticJobSet is on.",
        )


def job_set_has_what_can_change(config: JobConfig) -> Iterator[Fault]:
    """Only a TrainJob has a JobSet; Kueue counts a TrainJob's nodes once, when it admits the job."""
    path = "elastic.elastic_job_set"
    if not config.elastic.elastic_job_set:
        return
    if config.kind != "TrainJob":
        yield Fault(path, f"is for target 'trainjob', and a {config.kind} has no JobSet. Remove it.")
        return
    if not config.elastic.is_range:
        yield Fault(
            path,
            f'needs a range of nodes, and nnodes is {config.elastic.nnodes}. Use something like "1:4", or remove it.',
        )
    if config.placement.queue is not None:
        yield Fault(
            path,
            "changes the number of nodes without asking the queue: Kueue admits a TrainJob with all its nodes. Remove "
            "it, or placement.queue.",
        )


def train_job_is_not_watched(config: JobConfig) -> Iterator[Fault]:
    """Trainer deletes no TrainJob that has finished, and says of none that it runs."""
    if config.kind != "TrainJob":
        return
    if config.run_policy.ttl_seconds_after_finished is not None:
        yield Fault(
            "run_policy.ttl_seconds_after_finished",
            "Trainer deletes no finished TrainJob (kubeflow/trainer#4052). Remove it, or set target 'job'.",
        )
    if config.wait_for == "running":
        yield Fault(
            "wait_for",
            "'running' waits for a condition, and a TrainJob has none that says that it runs. Wait for 'succeeded' or "
            "'none'.",
        )


_RUN_POLICY: Final = RunPolicy()
"""The defaults, which a config may state although they have no effect."""


def rendezvous_fits_backend(config: JobConfig) -> Iterator[Fault]:
    """c10d uses the launcher's store, and etcd the user's server."""
    elastic = config.elastic
    if elastic.rdzv_backend == "c10d":
        if elastic.rdzv_endpoint is not None:
            yield Fault(
                "elastic.rdzv_endpoint",
                "the c10d endpoint follows from rendezvous.host and rendezvous.port. "
                "Remove it, or use an etcd backend.",
            )
        return
    if elastic.rdzv_endpoint is None and not config.is_single_pod:
        yield Fault("elastic.rdzv_endpoint", f"backend {elastic.rdzv_backend!r} needs the host:port of an etcd server.")
    if config.rendezvous != Rendezvous():
        yield Fault("rendezvous", f"is the c10d store; backend {elastic.rdzv_backend!r} does not use it. Remove it.")


def host_fits_port(config: JobConfig) -> Iterator[Fault]:
    """Two servers cannot share a port; a store pod's fields need a store pod."""
    rendezvous, status = config.rendezvous, config.launcher.metrics_port
    if status is not None and status == rendezvous.port and not config.is_single_pod:
        yield Fault("launcher.metrics_port", f"({status}) must differ from rendezvous.port ({rendezvous.port}).")
    own_pod = rendezvous != Rendezvous(host=rendezvous.host, port=rendezvous.port)
    if config.rendezvous_host != "dedicated" and own_pod:
        yield Fault(
            "rendezvous",
            "image, resources, node_selector and tolerations are for a dedicated store pod. Set host 'dedicated', or "
            "remove them.",
        )


def autoscaling_has_room(config: JobConfig) -> Iterator[Fault]:
    """An autoscaler needs a range and a metric, and must be the only one to change the size."""
    scaling = config.autoscaling
    if scaling is None or config.is_single_pod or config.keeps_its_size:
        return
    if not config.elastic.is_range:
        yield Fault(
            "autoscaling", f'needs a range of nodes, and nnodes is {config.elastic.nnodes}. Use something like "1:4".'
        )
    asks_for_quota = config.follows_capacity and config.placement.kueue.mode == "elastic"
    if config.placement.queue is not None and not asks_for_quota:
        yield Fault(
            "autoscaling",
            "changes the number of nodes without asking the queue, and Kueue suspends the job for it. Set "
            "autoscaling.policy 'capacity' and placement.kueue.mode 'elastic', or remove autoscaling or "
            "placement.queue.",
        )
    if scaling.owner == "operator" and scaling.behavior is not None:
        yield Fault("autoscaling.behavior", "the operator's autoscaler has none. Remove it, or use owner 'component'.")
    for i, metric in enumerate(scaling.metrics):
        request = getattr(config.resources, metric.type, None)
        if metric.type in {"cpu", "memory"} and request is None:
            yield Fault(
                f"autoscaling.metrics[{i}]",
                f"per cent of what? Without resources.{metric.type} the autoscaler never scales. Set it.",
            )


def autoscaling_fits_its_policy(config: JobConfig) -> Iterator[Fault]:
    """Each policy has its own fields."""
    scaling = config.autoscaling
    if scaling is None:
        return
    if scaling.policy == "metrics":
        if not scaling.metrics:
            yield Fault(
                "autoscaling.metrics",
                "needs at least one metric, or the cluster would choose one. Add it, or set autoscaling.policy "
                "'capacity', which needs none.",
            )
        if scaling.probe_seconds is not None:
            yield Fault("autoscaling.probe_seconds", "is for policy 'capacity'. Remove it, or set that policy.")
        return
    given = {
        "autoscaling.metrics": bool(scaling.metrics),
        "autoscaling.behavior": scaling.behavior is not None,
        "autoscaling.owner": scaling.owner == "operator",
    }
    for path in (path for path, is_given in given.items() if is_given):
        yield Fault(path, "is for policy 'metrics': one autoscaler alone may set the size. Remove it, or that policy.")


def driver_has_a_store_pod(config: JobConfig) -> Iterator[Fault]:
    """What has a token is a container in the store's pod, which no node has."""
    if config.is_single_pod or config.rendezvous_host == "dedicated":
        return
    given = {
        "autoscaling.policy": config.follows_capacity and not config.keeps_its_size,
        "launcher.kubernetes_events": config.launcher.kubernetes_events,
        "placement.avoid_bad_nodes": config.placement.avoid_bad_nodes,
    }
    if config.rendezvous_host == "worker0":
        why = "rendezvous.host 'worker0' has none. Set it to 'dedicated'."
    else:
        why = f"backend {config.elastic.rdzv_backend!r} has none. Use 'c10d'."
    for path in (path for path, is_given in given.items() if is_given):
        yield Fault(path, f"needs a container in the pod of the store, and {why}")


def queue_owns_suspend(config: JobConfig) -> Iterator[Fault]:
    """Kueue starts and stops a queued job through `suspend`."""
    if config.placement.queue is not None and config.run_policy.suspend is not None:
        yield Fault("run_policy.suspend", "placement.queue gives it to Kueue. Remove one of the two.")


def kueue_has_a_queue(config: JobConfig) -> Iterator[Fault]:
    """Kueue looks only at jobs that name a queue."""
    if config.placement.kueue != Kueue() and config.placement.queue is None:
        yield Fault(
            "placement.kueue",
            "says how Kueue admits a job, and without placement.queue Kueue does not see this one. Set "
            "placement.queue, or remove this.",
        )


def kueue_can_divide(config: JobConfig) -> Iterator[Fault]:
    """Kueue gives quota to a part of the nodes of a batch/v1 Job alone, and wants to know the fewest."""
    mode, elastic = config.placement.kueue.mode, config.elastic
    if mode == "whole":
        return
    path = "placement.kueue.mode"
    if not (config.is_indexed_job and elastic.is_range):
        what = "a fixed number of nodes" if config.is_indexed_job else f"a {config.kind} (target {config.target!r})"
        yield Fault(
            path,
            f"{mode!r} has Kueue admit a part of the nodes, and Kueue admits {what} as a whole or not at all. Set "
            "target 'job' with a range such as \"2:4\" in elastic.nnodes, or use 'whole'.",
        )
    elif mode == "partial" and elastic.min_nodes == config.initial_nodes:
        yield Fault(
            path,
            f"'partial' needs a minimum of nodes ({elastic.min_nodes}) below the number that the job asks for "
            f"({config.initial_nodes}). Raise elastic.initial_nodes or leave it out, or use 'whole'.",
        )
    if mode == "elastic":
        for key in (key for key in TOPOLOGY_REQUESTS if key in config.annotations):
            yield Fault(
                f"annotations.{key}",
                "Kueue refuses it on a job with placement.kueue.mode 'elastic'. Remove one of them.",
            )


def topology_is_asked_for_once(config: JobConfig) -> Iterator[Fault]:
    """Who packs the pods needs one wish, and Kueue cannot pack a job that grows."""
    placement = config.placement
    if placement.topology_pack is None or placement.queue is None:
        return
    if placement.kueue.mode == "elastic":
        yield Fault(
            "placement.topology_pack",
            "Kueue refuses it on a job with placement.kueue.mode 'elastic'. Remove one of them.",
        )
    for key in (key for key in TOPOLOGY_REQUESTS if key in config.annotations):
        yield Fault(f"annotations.{key}", "asks Kueue for what placement.topology_pack does. Remove one of the two.")


def affinity_is_written_once(config: JobConfig) -> Iterator[Fault]:
    """The short fields write rules of affinity, which would mean something else beside rules of the user's."""
    placement = config.placement
    verbatim = placement.affinity
    if verbatim is None:
        return
    if verbatim.nodeAffinity is not None and placement.spot in {"preferred", "required"}:
        yield Fault(
            "placement.spot",
            f"{placement.spot!r} writes affinity.nodeAffinity itself. Use 'allowed' and name the spot nodes there.",
        )
    if verbatim.podAntiAffinity is not None and placement.avoid_bad_nodes:
        yield Fault(
            "placement.avoid_bad_nodes", "writes affinity.podAntiAffinity itself. Write both there, or remove one."
        )
    if verbatim.podAffinity is not None and placement.topology_pack is not None and placement.queue is None:
        yield Fault(
            "placement.topology_pack", "writes affinity.podAffinity itself. Write both there, or remove one of them."
        )


TOPOLOGY_REQUESTS: Final = ("kueue.x-k8s.io/podset-required-topology", "kueue.x-k8s.io/podset-preferred-topology")
"""https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobs/job/job_webhook.go"""


def shared_memory_fits(config: JobConfig) -> Iterator[Fault]:
    """Bytes in /dev/shm count against the memory limit, so a larger volume ends in an out-of-memory kill."""
    size, memory = config.shared_memory.size, config.resources.memory
    if not config.shared_memory.enabled and size is not None:
        yield Fault("shared_memory.size", "is given while shared memory is disabled. Remove one of the two.")
    if size is not None and memory is not None and quantity(size) > quantity(memory):
        yield Fault(
            "shared_memory.size",
            f"({size}) must be at most resources.memory ({memory}): what is written there counts as memory.",
        )


def pods_have_one_account(config: JobConfig) -> Iterator[Fault]:
    """A pod runs as one service account."""
    if config.security.own_service_account and config.security.service_account is not None:
        yield Fault("security.own_service_account", "makes an account beside security.service_account. Remove one.")


def config_map_is_mounted(config: JobConfig) -> Iterator[Fault]:
    """An image that has the launcher mounts none."""
    if config.launcher.delivery == "image" and config.launcher.config_map is not None:
        yield Fault("launcher.config_map", "is not mounted with delivery 'image'. Remove one of the two.")


def launcher_can_be_verified(config: JobConfig) -> Iterator[Fault]:
    """A check needs a launcher that is mounted, and the digest in its name."""
    name = config.launcher.config_map
    if not config.launcher.verify:
        return
    if config.launcher.delivery == "image":
        yield Fault(
            "launcher.verify", "checks what is mounted, and delivery 'image' mounts nothing. Pin the image by digest."
        )
    elif name is not None and not is_late(name) and not digest_in(str(name)):
        yield Fault(
            "launcher.config_map",
            f"({name}) has to end in '-' and the launcher's SHA-256, which launcher.verify compares. "
            "Take the name of an `ElasticLauncher` with `verify`, or leave launcher.verify out.",
        )


def environment_is_free(config: JobConfig) -> Iterator[Fault]:
    """Users cannot set variables that the operator, torch or the launcher set."""
    for name in config.env:
        if reserved(name):
            yield Fault(
                f"env.{name}",
                "is set by the operator or the launcher, which would override it. Use the field of the config instead.",
            )


def initializers_fit(config: JobConfig) -> Iterator[Fault]:
    """Init containers have different names, and each fills a folder that is no volume's own and can be written."""
    taken, folders = {TRAINING_CONTAINER, TRAIN_CONTAINER, "health", "workdir"}, set[str]()
    mounts = {posixpath.normpath(mount.mount_path): mount for mount in config.storage.mounts}
    for i, each in enumerate(config.initializers):
        where, path = f"initializers[{i}]", posixpath.normpath(each.path)
        if each.name in taken:
            yield Fault(f"{where}.name", f"({each.name}) is taken. Choose another.")
        if path in folders:
            yield Fault(f"{where}.path", f"({path}) is filled by another initializer. Choose another.")
        if len(each.name) > MAX_INITIALIZER_NAME:
            yield Fault(f"{where}.name", f"must have at most {MAX_INITIALIZER_NAME} characters, for a volume's name.")
        if any(path.startswith(f"{place}/") and mount.read_only for place, mount in mounts.items()):
            yield Fault(f"{where}.path", f"({path}) is in a mount with read_only. Remove that, or choose another.")
        for name in (name for name in each.env if reserved(name)):
            yield Fault(f"{where}.env.{name}", "is set by the operator or the launcher. Choose another name.")
        taken.add(each.name)
        folders.add(path)


MAX_INITIALIZER_NAME: Final = 58


def grace_fits(config: JobConfig) -> Iterator[Fault]:
    """The launcher's grace ends before the pod's, so that the kubelet does not kill workers that still save."""
    pod = config.disruption.termination_grace_period_seconds
    need = config.runtime.shutdown_grace_seconds + GRACE_RESERVE_SECONDS
    if need > pod:
        yield Fault(
            "runtime.shutdown_grace_seconds",
            f"({config.runtime.shutdown_grace_seconds}) plus {GRACE_RESERVE_SECONDS} must be at most "
            f"disruption.termination_grace_period_seconds ({pod}), or the pod is killed while workers save. "
            "Raise the pod's grace.",
        )


def failure_grace_fits(config: JobConfig) -> Iterator[Fault]:
    """The failure grace is at most the shutdown grace, which bounds every stop."""
    failure, shutdown = config.runtime.failure_grace_seconds, config.runtime.shutdown_grace_seconds
    if failure is not None and failure > shutdown:
        yield Fault(
            "runtime.failure_grace_seconds", f"({failure}) must be at most shutdown_grace_seconds ({shutdown})."
        )


_RULES: Final[tuple[Callable[[JobConfig], Iterator[Fault]], ...]] = (
    one_entrypoint,
    initial_within_range,
    adopted_by_name,
    nodes_come_in_units,
    world_sizes_can_be_made,
    sizes_need_the_launcher,
    gang_can_be_complete,
    gang_fits_its_scheduler,
    processes_match_gpus,
    only_for_several_nodes,
    indices_have_no_operator,
    indices_have_no_autoscaler,
    indexed_job_counts_ready_pods,
    train_job_has_one_size,
    job_set_has_what_can_change,
    train_job_is_not_watched,
    rendezvous_fits_backend,
    host_fits_port,
    autoscaling_has_room,
    autoscaling_fits_its_policy,
    driver_has_a_store_pod,
    queue_owns_suspend,
    kueue_has_a_queue,
    kueue_can_divide,
    topology_is_asked_for_once,
    affinity_is_written_once,
    pods_have_one_account,
    config_map_is_mounted,
    launcher_can_be_verified,
    shared_memory_fits,
    environment_is_free,
    initializers_fit,
    grace_fits,
    failure_grace_fits,
    overlays_keep_identity,
    overlays_can_be_merged,
    *pod_rules.RULES,
)
