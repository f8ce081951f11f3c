"""Pairs of valid configs to compare: drawn at random, and named edits of a job that really runs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import hypothesis
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from elastic_infra.config import ConfigError, JobConfig
from elastic_infra.preview import Consequence, Job, JobDiff, Side, compare
from tests.strategies import Data, job_configs


def config(data: Data) -> JobConfig:
    """The config, without the guard that makes the engine's preview fail instead of showing a restart."""
    data = copy.deepcopy(data)
    data.get("run_policy", {}).pop("on_restart", None)
    return JobConfig.from_mapping(data)


def diff_of(base: JobConfig, head: JobConfig, name: str = "train") -> JobDiff:
    """The comparison of one job."""
    sides = [Side((Job.declared(name, "job.yaml", each),), is_file=True) for each in (base, head)]
    (job,) = compare(*sides).jobs
    return job


@st.composite
def pairs(draw: DrawFn) -> tuple[JobConfig, JobConfig]:
    """A config and the same after a few edits, or after none, or another config altogether."""
    base, other = draw(job_configs()), draw(job_configs())
    if draw(st.integers(0, 9)) == 0:
        return config(base), config(other)
    head = copy.deepcopy(base)
    # Half of the time only fields outside the pod template, or nearly every pair would restart.
    paths = MILD if draw(st.booleans()) else sorted(_edits(base, other))
    for edit in draw(st.lists(st.sampled_from(paths), max_size=3)):
        changed = _edited(head, other, edit)
        head = changed if _is_valid(changed) else head
    return config(base), config(head)


MILD: Final = [
    ("autoscaling",),
    ("run_policy", "active_deadline_seconds"),
    ("run_policy", "backoff_limit"),
    ("run_policy", "clean_pod_policy"),
    ("run_policy", "suspend"),
    ("run_policy", "ttl_seconds_after_finished"),
]


def _edits(base: Data, other: Data) -> Iterator[tuple[str, ...]]:
    """Paths at which the other config can be grafted on, or a list turned round."""
    yield ("run_policy", "suspend")
    for name, part in {**base, **other}.items():
        yield (name,)
        if isinstance(part, dict) and name != "env":
            yield from ((name, key) for key in part)


def _edited(data: Data, other: Data, path: tuple[str, ...]) -> Data:
    data = copy.deepcopy(data)
    place, source = data, other
    for name in path[:-1]:
        inner, theirs = place.setdefault(name, {}), source.get(name)
        if not isinstance(inner, dict):
            return data
        place, source = inner, theirs if isinstance(theirs, dict) else {}
    key = path[-1]
    if path == ("run_policy", "suspend"):
        place[key] = not place.get(key)
    elif key in source and source[key] != place.get(key):
        place[key] = source[key]
    elif isinstance(place.get(key), list):
        place[key] = place[key][::-1]
    elif isinstance(place.get(key), dict):
        place[key] = dict(reversed(place[key].items()))
    else:
        place.pop(key, None)
    return data


def _is_valid(data: Data) -> bool:
    try:
        config(data)
    except ConfigError:
        return False
    return True


_DRAW_ONLY: Final = (hypothesis.Phase.generate,)


def drawn(count: int) -> tuple[tuple[JobConfig, JobConfig], ...]:
    """The same many pairs every time."""
    found: list[tuple[JobConfig, JobConfig]] = []

    @hypothesis.settings(
        max_examples=count, derandomize=True, database=None, deadline=None, phases=[hypothesis.Phase.generate]
    )
    @hypothesis.given(pairs())
    def collect(pair: tuple[JobConfig, JobConfig]) -> None:
        found.append(pair)

    collect()
    return tuple(found)


Edit = Callable[[Data], None]


def _set(path: str, value: Any) -> Edit:
    def edit(data: Data) -> None:
        *above, last = path.split(".")
        for name in above:
            data = data.setdefault(name, {})
        data[last] = value

    return edit


def _named(*values: tuple[str, Any]) -> dict[str, Edit]:
    """Edits that set one place each, by name."""
    return {f"{path} = {value}": _set(path, value) for path, value in values}


EDITS: Final[Mapping[str, Edit]] = {
    "nothing": lambda _: None,
    **_named(
        ("args", ["--steps", "1000000"]),
        ("env.EDITED", "1"),
        ("env.EDITED_FROM", {"field": "status.podIP"}),
        ("labels", {"team": "edited"}),
        ("annotations", {"example.com/edited": "yes"}),
        ("working_dir", "/tmp"),
        ("initializers", [{"name": "a", "kind": "command", "command": ["touch", "a"], "path": "/mnt/a"}]),
        ("health_check", {"timeout_seconds": 60}),
        ("workdir", {"files": {"edited.py": "cGFzcwo="}}),
        ("elastic.max_restarts", 7),
        ("elastic.world_sizes", [1, 2, 3, 4]),
        ("elastic.monitor_interval", 5.0),
        ("elastic.rdzv_configs", {"join_timeout": 700}),
        ("elastic.rdzv_configs", {"last_call_timeout": 9}),
        ("elastic.rdzv_id", "edited"),
        ("elastic.start_method", "fork"),
        ("runtime.nccl_heartbeat_timeout_sec", 240),
        ("runtime.shutdown_grace_seconds", 10),
        ("runtime.hang_timeout_seconds", "off"),
        ("runtime.startup_wait_seconds", 15),
        ("runtime.startup_patience_seconds", 15),
        ("runtime.warm_start", False),
        ("runtime.log_level", "INFO"),
        ("runtime.omp_num_threads", 2),
        ("resources.ephemeral_storage", "1Gi"),
        ("shared_memory", {"size": "32Mi"}),
        ("shared_memory", False),
        ("run_policy.clean_pod_policy", "All"),
        ("run_policy.ttl_seconds_after_finished", 86_400),
        ("run_policy.active_deadline_seconds", 86_400),
        ("run_policy.backoff_limit", 50),
        ("run_policy.backoff_limit", -1),
        ("run_policy.suspend", True),
        ("run_policy.suspend", False),
        ("run_policy.restart_policy", "OnFailure"),
        ("run_policy.rerun", "again"),
        ("placement.tolerations", [{"key": "spot", "operator": "Exists"}]),
        ("placement.node_selector", {"kubernetes.io/os": "linux"}),
        ("placement.topology_pack", {"topology_key": "kubernetes.io/os"}),
        ("placement.spot", "preferred"),
        ("placement.avoid_bad_nodes", True),
        ("disruption.pod_disruption_budget", True),
        ("disruption.safe_to_evict", True),
        ("disruption.termination_grace_period_seconds", 60),
        ("security.read_only_root", True),
        ("security.network_policy", False),
        ("security.own_service_account", True),
        ("launcher.metrics_port", 9400),
        ("overlays", {"pod": {"spec": {"containers": [{"name": "pytorch", "tty": True}]}}}),
        ("launcher.delivery", "image"),
        ("launcher.version", "newest"),
        ("launcher.events", "-"),
        ("launcher.verify", True),
        ("launcher.webhook", {"secret": "hooks"}),
        ("launcher.kubernetes_events", True),
        ("wait_timeout_seconds", 900),
        ("wait_for", "running"),
        ("rendezvous.port", 29500),
    ),
}
"""Edits that leave a running job able to run: for a comparison with what a cluster really did."""

_OF_A_TRAIN_JOB: Final = (
    "nothing",
    "env.EDITED = 1",
    "labels = {'team': 'edited'}",
    "run_policy.active_deadline_seconds = 86400",
    "run_policy.suspend = True",
    "run_policy.suspend = False",
    "disruption.pod_disruption_budget = True",
    "security.network_policy = False",
    "launcher.version = newest",
    "wait_timeout_seconds = 900",
)
"""An edit for each way in which one reaches a TrainJob: most others reach its runtime's template of pods, as `env`."""

_OF_A_JOB: Final = (
    *_OF_A_TRAIN_JOB,
    "workdir = {'files': {'edited.py': 'cGFzcwo='}}",
    "run_policy.ttl_seconds_after_finished = 86400",
    "run_policy.backoff_limit = 50",
    "run_policy.rerun = again",
    "security.own_service_account = True",
    "launcher.delivery = image",
    "launcher.verify = True",
    "wait_for = running",
    "rendezvous.port = 29500",
)
"""The same of a batch/v1 Job."""

_SIZES: Final = (
    ("elastic.nnodes", "1:4"),
    ("elastic.nnodes", "2:3"),
    ("elastic.nnodes", "2"),
    ("elastic.initial_nodes", 1),
    ("elastic.initial_nodes", 3),
    ("elastic.initial_nodes", None),
)
_JOB_SET: Final = {"nnodes": "1:2", "nproc_per_node": 1, "elastic_job_set": True}
_ANOTHER_CONTROLLER: Final = ("run_policy.managed_by", "kueue.x-k8s.io/multikueue")

EDITS_OF: Final[Mapping[str, Mapping[str, Edit]]] = {
    "pytorchjob": {
        **EDITS,
        **_named(
            *_SIZES,
            ("elastic.nproc_per_node", 2),
            ("autoscaling", {"metrics": [{"type": "memory", "target": "80"}]}),
            _ANOTHER_CONTROLLER,
            ("target", "job"),
        ),
    },
    "job": {**{name: EDITS[name] for name in _OF_A_JOB}, **_named(*_SIZES, _ANOTHER_CONTROLLER)},
    "trainjob": {
        **{name: EDITS[name] for name in _OF_A_TRAIN_JOB},
        **_named(
            ("elastic.nnodes", "1:3"),
            ("elastic", _JOB_SET),
            ("elastic", {**_JOB_SET, "initial_nodes": 1}),
            _ANOTHER_CONTROLLER,
            ("target", "job"),
        ),
    },
}
"""Edits of a running job of two nodes, by its `target`: of all of the config, of its size and of its controller."""


def two_nodes(target: str) -> Data:
    """The size from which a job of this target is edited; a TrainJob has its maximum."""
    size: Data = {"nnodes": "1:2"} if target == "trainjob" else {"nnodes": "1:3", "initial_nodes": 2}
    return {"target": target, "elastic": {**size, "nproc_per_node": 1}}


def predictions(base: Data) -> Iterator[tuple[str, Data, JobDiff]]:
    """Each edit's name, the edited config and what the preview says of it. Edits that the base forbids are left out.

    For a cluster: apply `base`, note the pods' UIDs, apply the edited config, and hold `expects_new_pods` against it.

    Args:
        base: a config that has what `two_nodes` gives.
    """
    for name, edit in EDITS_OF[base["target"]].items():
        head = copy.deepcopy(base)
        edit(head)
        if _is_valid(head):
            yield name, head, diff_of(config(base), config(head))


STORED: Final[Data] = {
    "image": "registry.example.com/train:1",
    "script": "train.py",
    "elastic": {"nnodes": "1:4"},
    "storage": {"checkpoint": {"size": "10Gi"}},
}
CLAIM_EDITS: Final[Mapping[str, Edit]] = _named(
    ("storage.checkpoint.size", "20Gi"),
    ("storage.checkpoint.size", "5Gi"),
    ("storage.checkpoint.storage_class", "fast"),
    ("storage.checkpoint.access_mode", "ReadWriteOnce"),
    ("elastic.nnodes", "1"),
    ("namespace", "other"),
)
"""Edits of `STORED` that the engine refuses, since they would replace the claim made for checkpoints."""


def refused() -> Iterator[tuple[JobConfig, JobConfig]]:
    """A pair for each of these edits."""
    for edit in CLAIM_EDITS.values():
        head = copy.deepcopy(STORED)
        edit(head)
        yield config(STORED), config(head)


def is_refused(diff: JobDiff) -> bool:
    """Whether the preview says that `pulumi up` will refuse."""
    return any(warning.startswith("`pulumi up` refuses this change") for warning in diff.warnings)


def expects_new_pods(diff: JobDiff) -> bool:
    """Whether the pods of before are gone afterwards."""
    return diff.consequence is Consequence.RESTART
