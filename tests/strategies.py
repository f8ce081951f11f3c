"""Configs by the thousand: any valid mapping for `JobConfig`, in every spelling that a user may choose."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

Data = dict[str, Any]

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12)
PROGRAMS = TEXT.filter(lambda text: not text.startswith("-"))
LABELS = st.builds("{}{}{}".format, st.sampled_from("az"), st.text("ab0-", max_size=12), st.sampled_from("az09"))
LABEL_VALUES = st.just("") | st.builds("{}{}Z".format, st.sampled_from("aZ0"), st.text("aZ0-_.", max_size=12))
LABEL_KEYS = st.builds("{}{}".format, st.sampled_from(["", "example.com/", "kueue.x-k8s.io/"]), LABELS)
LABEL_MAPS = st.dictionaries(LABEL_KEYS, LABEL_VALUES, max_size=3)
ENV_NAMES = st.builds("{}{}".format, st.sampled_from(["A", "_", "PYTHONPATH", "NCCL_"]), st.text("aZ_0", max_size=8))
IMAGES = st.builds("{}.example/team/{}:{}".format, LABELS, LABELS, LABELS)
PORTS = st.integers(1024, 65535)
SECONDS = st.integers(1, 2**31 - 1)
QUANTITIES = st.one_of(
    st.integers(1, 9999),
    st.floats(0.001, 999, allow_nan=False).map(lambda number: round(number, 3)),
    st.builds("{}{}".format, st.integers(1, 9999), st.sampled_from(["", "m", "k", "M", "G", "Ki", "Mi", "Gi", "Ti"])),
    st.builds("{}.{}Gi".format, st.integers(0, 99), st.integers(1, 99)),
)
AFFINITIES = st.sampled_from([
    {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"team": "research"}}},
    ]}},
    {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["h100", "a100"]}]},
    ]}}},
])  # fmt: skip


def some(fields: Mapping[str, SearchStrategy[Any]]) -> SearchStrategy[Data]:
    """A mapping with any of the fields."""
    return st.fixed_dictionaries({}, optional=dict(fields))


def _either_spelling(number: int) -> SearchStrategy[int | str]:
    return st.sampled_from([number, str(number)])


ENV_VALUES = st.one_of(
    TEXT,
    st.just(""),
    st.integers(-(10**9), 10**9),
    st.floats(allow_nan=False, allow_infinity=False),
    st.fixed_dictionaries({"value": TEXT}),
    st.fixed_dictionaries({"secret": LABELS, "key": LABELS}),
    st.fixed_dictionaries({"configmap": LABELS, "key": LABELS}),
    st.fixed_dictionaries({"field": st.sampled_from(["status.podIP", "metadata.labels['team']", "spec.nodeName"])}),
)
ENTRYPOINTS = st.one_of(
    st.fixed_dictionaries({"script": PROGRAMS}),
    st.fixed_dictionaries({"module": PROGRAMS}),
    st.fixed_dictionaries(
        {"command": st.builds(lambda first, rest: [first, *rest], PROGRAMS, st.lists(TEXT, max_size=2))}
    ),
)
VENDORS = ["nvidia", "amd", "intel", "google", "neuron"]
HUGEPAGES = st.sampled_from([{"amount": "64Mi"}, {"amount": "2Gi", "page_size": "1Gi"}])
RDMA = st.fixed_dictionaries(
    {"resource": st.sampled_from(["rdma/hca_shared_devices_a", "vpc.amazonaws.com/efa"])},
    optional={"count": st.integers(1, 16)},
)
CODE = st.sampled_from(["", "cGFzcwo=", "IyEvYmluL3NoCg=="])
"""Contents of files in base64."""
INITIALIZERS = st.one_of(
    *(
        st.fixed_dictionaries(
            {"name": st.sampled_from(["model", "data"]), "path": st.sampled_from(["/mnt/a", "/mnt/b"]), **fetched},
            optional={"attempts": st.integers(1, 100), "env": st.dictionaries(st.just("NAME"), ENV_VALUES)},
        )
        for fetched in (
            {"kind": st.just("huggingface"), "source": st.just("org/model"), "revision": st.just("main")},
            {"kind": st.just("s3"), "source": st.just("s3://bucket/set"), "image": IMAGES},
            {"kind": st.just("git"), "source": st.just("https://git.example.com/set.git")},
            {"kind": st.just("command"), "command": st.just(["touch", "a"])},
        )
    )
)
WHAT_RUNS = some(
    {
        "image_pull_policy": st.sampled_from(["Always", "IfNotPresent", "Never"]),
        "image_pull_secrets": st.lists(LABELS, max_size=2, unique=True),
        "namespace": LABELS,
        "args": st.lists(TEXT | st.just(""), max_size=4),
        "env": st.dictionaries(ENV_NAMES, ENV_VALUES, max_size=4),
        "working_dir": st.just("/work space"),
        "workdir": st.fixed_dictionaries(
            {"files": st.dictionaries(st.sampled_from(["train.py", "lib/a.py", "run.sh"]), CODE, min_size=1)},
            optional={"mount_path": st.just("/code"), "path": st.just("src"), "exclude": st.just(["*.csv"])},
        ),
        "initializers": st.lists(
            INITIALIZERS, max_size=2, unique_by=(lambda each: each["name"], lambda each: each["path"])
        ),
        "health_check": st.booleans()
        | some({"gpus": st.booleans(), "nccl": st.booleans(), "disk": QUANTITIES, "timeout_seconds": SECONDS}),
        "labels": LABEL_MAPS,
        "annotations": st.dictionaries(LABEL_KEYS, TEXT, max_size=2),
        "wait_for": st.sampled_from(["none", "running", "succeeded"]),
        "wait_timeout_seconds": SECONDS,
    }
)
_RULES = st.fixed_dictionaries(
    {
        "nodes": st.integers(1, 10_000),
        "period_seconds": st.integers(1, 1800),
        "stabilization_window_seconds": st.integers(0, 3600),
    }
)
BEHAVIORS = some({"scale_up": _RULES, "scale_down": _RULES})


@st.composite
def job_configs(draw: DrawFn) -> Data:
    """Any valid mapping for `JobConfig`; the fields that depend on each other are drawn in order."""
    shape = draw(st.sampled_from(["single", "fixed", "range"]))
    resources = draw(_resources())
    elastic = draw(_elastic(shape, gpus=_gpu_count(resources)))
    queue = draw(st.none() | LABELS)
    etcd = elastic.get("rdzv_backend", "c10d") != "c10d"
    rendezvous = {} if shape == "single" or etcd else draw(_rendezvous(shape))
    low, high = _bounds(elastic)
    targets = ["pytorchjob"] if etcd else ["pytorchjob", "trainjob", *(["job"] if high > 1 else [])]
    target = "single" if shape == "single" else draw(st.sampled_from(targets))
    can_move = shape == "range" and queue is None
    elastic = draw(_of_train_job(elastic, can_move=can_move)) if target == "trainjob" else elastic
    keeps_its_size = target == "trainjob" and "elastic_job_set" not in elastic
    initial = high if keeps_its_size else elastic.get("initial_nodes") or low
    has_store_pod = _has_store_pod(elastic, rendezvous)
    placement = draw(_placement(queue, target, _modes(target, shape, elastic), has_store_pod=has_store_pod))
    parts: Data = {
        "elastic": elastic,
        "resources": resources,
        "rendezvous": rendezvous,
        "shared_memory": draw(_shared_memory(resources)),
        "run_policy": draw(_run_policy(target, queued=queue is not None, gang=0 if "gang" in placement else initial)),
        "placement": placement,
        "security": draw(SECURITIES),
        "overlays": draw(OVERLAYS),
        "launcher": draw(_launcher(rendezvous.get("port", 29400), has_store_pod=has_store_pod)),
        **draw(_grace()),
    }
    parts["disruption"] |= draw(_disruption(shape))
    is_baseline = parts["security"].get("profile") == "baseline"
    parts["storage"] = draw(_storage(host_path=is_baseline))
    parts["resources"] |= draw(some({"rdma": RDMA})) if is_baseline else {}
    if (can_move or placement.get("kueue", {}).get("mode") == "elastic") and draw(st.booleans()):
        parts |= draw(_autoscaled(resources, target, has_driver=has_store_pod and not keeps_its_size))
    if shape == "fixed" or target in {"job", "trainjob"}:
        parts["target"] = target
    given = {name: part for name, part in parts.items() if part != {} or (name != "rendezvous" and draw(st.booleans()))}
    moves = placement.get("kueue", {}).get("mode", "whole") != "whole" or "autoscaling" in parts
    is_open = target == "job" and shape == "range" and (moves or "initial_nodes" not in elastic)
    what = draw(_what_runs(can_wait=not is_open and target != "trainjob"))
    # A copy, since tests break parts of it and some strategies give the same object each time.
    return copy.deepcopy({"image": draw(IMAGES), **draw(ENTRYPOINTS), **what, **given})


@st.composite
def _of_train_job(draw: DrawFn, elastic: Data, *, can_move: bool) -> Data:
    """The elasticity of a TrainJob, which keeps its maximum of nodes unless JobSet moves it."""
    if can_move and draw(st.booleans()):
        return {**elastic, "elastic_job_set": True}
    return {key: value for key, value in elastic.items() if key != "initial_nodes"}


@st.composite
def _what_runs(draw: DrawFn, *, can_wait: bool) -> Data:
    what = draw(WHAT_RUNS)
    return what if can_wait or what.get("wait_for") != "running" else {**what, "wait_for": "succeeded"}


def _modes(target: str, shape: str, elastic: Data) -> list[str]:
    """What Kueue may admit of the job."""
    if target != "job" or shape != "range":
        return ["whole"]
    low, high = _bounds(elastic)
    return ["whole", "elastic", *(["partial"] if elastic.get("initial_nodes", high) > low else [])]


def _gpu_count(resources: Data) -> int | None:
    gpu = resources.get("gpu")
    return gpu["count"] if isinstance(gpu, dict) else gpu


def _bounds(elastic: Data) -> tuple[int, int]:
    low, _, high = str(elastic.get("nnodes", 1)).partition(":")
    return int(float(low)), int(float(high or low))


@st.composite
def _resources(draw: DrawFn) -> Data:
    counts = st.integers(1, 16)
    gpus = st.one_of(
        counts,
        st.fixed_dictionaries({"count": counts}, optional={"vendor": st.sampled_from(VENDORS)}),
        st.fixed_dictionaries({"count": counts, "resource": st.just("nvidia.com/mig-1g.10gb")}),
    )
    memory = st.integers(1, 512).map(lambda size: f"{size}Gi")
    claim = st.fixed_dictionaries({"name": LABELS, "template": LABELS})
    claims = st.lists(claim, max_size=2, unique_by=lambda each: each["name"])
    resources = draw(
        some({"cpu": QUANTITIES, "memory": memory, "ephemeral_storage": QUANTITIES, "gpu": gpus, "claims": claims})
    )
    return resources | (draw(some({"hugepages": HUGEPAGES})) if resources.keys() & {"cpu", "memory"} else {})


@st.composite
def _elastic(draw: DrawFn, shape: str, gpus: int | None) -> Data:
    processes = st.integers(1, gpus or 64).flatmap(_either_spelling)
    elastic = draw(some({
        "nproc_per_node": st.just("auto") | processes,
        "rdzv_id": TEXT,
        "rdzv_configs": some(dict.fromkeys(("timeout", "join_timeout", "last_call_timeout"), SECONDS)),
        "max_restarts": st.integers(0, 1000),
        "monitor_interval": st.floats(0.1, 60),
        "start_method": st.sampled_from(["spawn", "fork", "forkserver"]),
    }))  # fmt: skip
    if shape == "single":
        return elastic | draw(some({"nnodes": st.sampled_from([1, "1", "1:1", 1.0])}))
    low = draw(st.integers(1, 50))
    high = low + draw(st.integers(1, 50)) if shape == "range" else low
    elastic["nnodes"] = f"{low}:{high}" if shape == "range" else draw(_either_spelling(low))
    if draw(st.booleans()):
        elastic["initial_nodes"] = draw(st.integers(low, high))
    if draw(st.booleans()):
        elastic |= {"rdzv_backend": draw(st.sampled_from(["etcd", "etcd-v2"])), "rdzv_endpoint": "etcd:2379"}
        return elastic
    starts = {low, high, elastic.get("initial_nodes", high)}
    each = elastic.get("nproc_per_node", "auto")
    each = (gpus or 1) if each == "auto" else int(float(each))
    sizes = st.sets(st.integers(1, 9999), max_size=9).map(lambda more: [nodes * each for nodes in starts] + [*more])
    return elastic | draw(some({"node_unit": st.sampled_from([1, math.gcd(*starts)]), "world_sizes": sizes}))


@st.composite
def _rendezvous(draw: DrawFn, shape: str) -> Data:
    common = {"port": PORTS}
    store = {"image": IMAGES, "resources": some({"cpu": QUANTITIES, "memory": QUANTITIES})}
    host = draw(st.sampled_from([None, "dedicated", "worker0"]))
    dedicated = host == "dedicated" or (host is None and shape == "range")
    return draw(some(common | store if dedicated else common)) | ({} if host is None else {"host": host})


@st.composite
def _shared_memory(draw: DrawFn, resources: Data) -> object:
    limit = int(resources["memory"].removesuffix("Gi")) * 1024 if "memory" in resources else 4096
    sized = st.integers(1, limit).map(lambda size: {"size": f"{size}Mi"})
    return draw(st.booleans() | sized | st.booleans().map(lambda enabled: {"enabled": enabled}) | st.just({}))


@st.composite
def _run_policy(draw: DrawFn, kind: str, *, queued: bool, gang: int) -> Data:
    operator = {
        "clean_pod_policy": st.sampled_from(["None", "Running", "All"]),
        "restart_policy": st.sampled_from(["OnFailure", "ExitCode"]),
        "managed_by": st.sampled_from(["kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue"]),
        "scheduling_policy": some(
            {
                "min_available": st.integers(1, gang),
                "queue": LABELS,
                "priority_class": LABELS,
                "schedule_timeout_seconds": SECONDS,
            }
        ),
    }
    if not gang:
        del operator["scheduling_policy"]
    both = {
        "ttl_seconds_after_finished": st.integers(0, 2**31 - 1),
        "active_deadline_seconds": SECONDS,
        "backoff_limit": st.integers(0 if kind == "single" else -1, 1000),
        "rerun": TEXT,
        "on_restart": st.sampled_from(["replace", "refuse"]),
    }
    if kind == "trainjob":
        del both["ttl_seconds_after_finished"]
    suspend = {} if queued else {"suspend": st.booleans()}
    return draw(some(both | suspend | (operator if kind == "pytorchjob" else {})))


@st.composite
def _placement(draw: DrawFn, queue: str | None, target: str, modes: list[str], *, has_store_pod: bool) -> Data:
    tolerations = st.one_of(
        st.fixed_dictionaries({}, optional={"key": LABEL_KEYS, "effect": st.sampled_from(["NoSchedule", "NoExecute"])}),
        st.fixed_dictionaries({"key": LABEL_KEYS, "operator": st.just("Equal"), "value": LABEL_VALUES}),
        st.fixed_dictionaries({"effect": st.just("NoExecute"), "toleration_seconds": st.integers(0, 3600)}),
    )
    spread = st.fixed_dictionaries(
        {"topology_key": LABEL_KEYS},
        optional={
            "max_skew": st.integers(1, 10),
            "when_unsatisfiable": st.sampled_from(["DoNotSchedule", "ScheduleAnyway"]),
        },
    )
    placement = draw(some({
        "priority_class": LABELS,
        "node_selector": LABEL_MAPS,
        "tolerations": st.lists(tolerations, max_size=2),
        "topology_spread": st.lists(
            spread, max_size=2, unique_by=lambda s: (s["topology_key"], s.get("when_unsatisfiable"))
        ),
        "affinity": AFFINITIES,
        "scheduler_name": LABELS,
    }))  # fmt: skip
    drawn: dict[str, st.SearchStrategy[object]] = (
        {} if "affinity" in placement else {"spot": st.sampled_from(["allowed", "preferred", "required"])}
    )
    if "affinity" not in placement and target != "single" and "elastic" not in modes:
        drawn["topology_pack"] = st.fixed_dictionaries(
            {"topology_key": LABEL_KEYS}, optional={"required": st.booleans()}
        )
    drawn |= {"avoid_bad_nodes": st.booleans()} if has_store_pod and "affinity" not in placement else {}
    placement |= draw(some(drawn))
    gangs = [
        {"scheduler": "coscheduling"},
        {"scheduler": "coscheduling", "timeout_seconds": 30},
        {"scheduler": "volcano"},
    ]
    gangs += [] if target == "trainjob" else [{"scheduler": "kai", "queue": "research"}]
    placement |= {} if target == "single" else draw(some({"gang": st.sampled_from(gangs)}))
    kueue = some({"mode": st.sampled_from(modes), "priority_class": LABELS})
    return placement if queue is None else placement | {"queue": queue} | draw(some({"kueue": kueue}))


OVERLAYS = some({
    "pod": some({
        "metadata": st.just({"annotations": {"example.com/overlay": "yes"}}),
        "spec": some({
            "hostNetwork": st.booleans(),
            "dnsPolicy": st.sampled_from(["ClusterFirst", "Default"]),
            "containers": st.just([{"name": "pytorch", "tty": True}]),
            "initContainers": st.just([{"name": "wait", "image": "busybox"}]),
            "tolerations": st.just([]),
        }),
    }),
})  # fmt: skip
"""Patches of the pod's template."""

SECURITIES = st.one_of(
    some(
        {
            "profile": st.just("restricted"),
            "service_account": LABELS,
            "run_as_user": st.integers(1, 2**31 - 1),
            "read_only_root": st.booleans(),
            "network_policy": st.booleans(),
        }
    ),
    st.fixed_dictionaries({"own_service_account": st.booleans()}),
    st.fixed_dictionaries(
        {"profile": st.just("baseline"), "run_as_user": st.integers(0, 1000)},
        optional={"network_policy": st.booleans()},
    ),
)


def _has_store_pod(elastic: Data, rendezvous: Data) -> bool:
    low, high = _bounds(elastic)
    return low < high and elastic.get("rdzv_backend", "c10d") == "c10d" and rendezvous.get("host") != "worker0"


@st.composite
def _launcher(draw: DrawFn, port: int, *, has_store_pod: bool) -> Data:
    delivered = draw(some({"delivery": st.sampled_from(["configmap", "image"])}))
    shared = {} if delivered.get("delivery") == "image" else draw(some({"config_map": LABELS}))
    verified = {} if delivered.get("delivery") == "image" or shared else draw(some({"verify": st.booleans()}))
    return delivered | shared | verified | draw(some({
        "version": TEXT,
        "events": st.sampled_from(["", "-", "/var/log/events.jsonl"]),
        "metrics_port": PORTS.filter(lambda other: other != port),
        "webhook": st.fixed_dictionaries({"secret": LABELS}, optional={"key": LABELS}),
        **({"kubernetes_events": st.booleans()} if has_store_pod else {}),
    }))  # fmt: skip


@st.composite
def _grace(draw: DrawFn) -> Data:
    pod = draw(st.integers(35, 86_400))
    shutdown = draw(st.integers(0, pod - 5))
    runtime = draw(some({
        "nccl_collective_timeout_sec": SECONDS,
        "nccl_heartbeat_timeout_sec": SECONDS,
        "nccl_async_error_handling": st.integers(0, 3),
        "nccl_enable_monitoring": st.booleans(),
        "omp_num_threads": st.integers(1, 1024),
        "shutdown_grace_seconds": st.just(shutdown),
        "hang_timeout_seconds": st.sampled_from(["auto", "off", False, 900, "900", 900.0]),
        "startup_window_seconds": st.integers(0, 600),
        "startup_wait_seconds": st.integers(0, 600),
        "startup_patience_seconds": st.integers(0, 3600),
        "warm_start": st.booleans(),
        "log_level": st.sampled_from(["DEBUG", "INFO", "WARNING", "ERROR"]),
    }))  # fmt: skip
    if draw(st.booleans()):
        runtime["failure_grace_seconds"] = draw(st.integers(0, runtime.get("shutdown_grace_seconds", 30)))
    return {"runtime": runtime, "disruption": {"termination_grace_period_seconds": pod}}


@st.composite
def _disruption(draw: DrawFn, shape: str) -> Data:
    budget = {} if shape == "single" else {"pod_disruption_budget": st.booleans()}
    return draw(some({"safe_to_evict": st.booleans(), **budget}))


@st.composite
def _storage(draw: DrawFn, *, host_path: bool) -> Data:
    sources: list[SearchStrategy[Data]] = [
        st.fixed_dictionaries({"claim": LABELS}),
        st.fixed_dictionaries({"secret": LABELS}),
        st.fixed_dictionaries({"configmap": LABELS}),
        st.fixed_dictionaries({"empty_dir": QUANTITIES}),
        *([st.just({"host_path": "/data"})] if host_path else []),
    ]
    names = draw(st.lists(LABELS.map(lambda name: f"user-{name}"), max_size=3, unique=True))
    volumes = [{"name": name, **draw(st.one_of(sources))} for name in names]
    extra = some({"sub_path": st.sampled_from(["runs", "a/b"]), "read_only": st.booleans()})
    mounts = [{"volume": name, "mount_path": f"/mnt/{name}", **draw(extra)} for name in names]
    checkpoints = st.one_of(
        st.fixed_dictionaries({"claim": LABELS}, optional={"mount_path": st.just("/save")}),
        st.fixed_dictionaries(
            {"size": QUANTITIES},
            optional={
                "storage_class": LABELS,
                "access_mode": st.sampled_from(["ReadWriteMany", "ReadWriteOnce"]),
            },
        ),
    )
    checkpoint = draw(some({"checkpoint": checkpoints}))
    return checkpoint | ({"volumes": volumes, "mounts": mounts} if names else {})


def _autoscaled(resources: Data, target: str, *, has_driver: bool) -> st.SearchStrategy[Data]:
    capacity = st.fixed_dictionaries({"policy": st.just("capacity")}, optional={"probe_seconds": SECONDS})
    policies = [_autoscaling(resources)] if target == "pytorchjob" else []
    policies += [capacity] if has_driver else []
    return st.fixed_dictionaries({"autoscaling": st.one_of(policies)}) if policies else st.just({})


@st.composite
def _autoscaling(draw: DrawFn, resources: Data) -> Data:
    metrics = [
        st.fixed_dictionaries({"type": st.just(kind), "target": st.integers(1, 99_999)})
        for kind in ("cpu", "memory")
        if kind in resources
    ] + [
        st.fixed_dictionaries(
            {"type": st.sampled_from(["pods", "external"]), "name": LABELS, "target": QUANTITIES},
            optional={"selector": LABEL_MAPS},
        )
    ]
    owner = draw(st.sampled_from(["component", "operator"]))
    scaling = {"owner": owner, "metrics": draw(st.lists(st.one_of(metrics), min_size=1, max_size=3))}
    return scaling | (draw(some({"behavior": BEHAVIORS})) if owner == "component" else {})


JOB_NAMES = st.builds("{}{}{}".format, st.sampled_from("az"), st.text("a0-", max_size=45), st.sampled_from("z9"))
