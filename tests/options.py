"""Every option of a job file with values that are not its default, alone and many at once.

The values follow from the schema where it says enough: every other choice, the other truth, the least and the most.
"""

from __future__ import annotations

import copy
import functools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from elastic_infra import JobConfig
from elastic_infra.config import ConfigError
from elastic_infra.config.schema import json_schema
from tools import reference

Data = dict[str, Any]
Profile = Literal["restricted", "baseline", "privileged"]

TARGETS: Final[Mapping[str, Data]] = {
    "pytorchjob": {"target": "pytorchjob", "elastic": {"nnodes": "2:4"}},
    "job": {"target": "job", "elastic": {"nnodes": "2:4"}},
    "single": {"target": "auto", "elastic": {"nnodes": 1}},
    "trainjob": {"target": "trainjob", "elastic": {"nnodes": "2:4"}},
}
"""What every option is tried with: each workload object, and of a batch/v1 Job both forms."""
IMAGE: Final = {"image": "registry.example.com/team/train:1"}
PROGRAM: Final = {"script": "train.py"}
"""Unless an option says what runs."""


@dataclass(frozen=True)
class Option:
    """One value of one field.

    Attributes:
        path: the field, as the reference writes it.
        value: what the field gets.
        change: the keys of the job file: the field, and what it cannot be without.
    """

    path: str
    value: object
    change: Data

    def __str__(self) -> str:
        text = repr(self.value)
        return f"{self.path}={text if len(text) <= SHOWN else f'{text[:SHOWN]}...'}"


SHOWN: Final = 60


@functools.cache
def fields() -> Mapping[str, Mapping[str, Any]]:
    """The schema of every field that holds no further fields, by path."""
    schema = json_schema()
    models = schema["$defs"]
    return {
        f"{path}.{name}".lstrip("."): field
        for path, part in reference.parts("", schema, models)
        for name, field in part["properties"].items()
        if "properties" not in models.get(reference.inner(field)[0], {})
    }


def values(path: str) -> Sequence[object]:
    """What a field is tried with; nothing where neither the table nor the schema knows a value."""
    if path in VALUES:
        return VALUES[path]
    field = fields()[path]
    kinds = [kind for kind in field.get("anyOf", [field]) if kind.get("type") != "null"]
    found = [value for kind in kinds for value in _of_kind(kind)]
    return [value for value in dict.fromkeys(found) if value != field.get("default")]


def _of_kind(kind: Mapping[str, Any]) -> Sequence[object]:
    if "enum" in kind:
        return list(kind["enum"])
    if kind.get("type") == "boolean":
        return [False, True]
    return [kind["minimum"], kind["maximum"]] if {"minimum", "maximum"} <= kind.keys() else []


@functools.cache
def options() -> tuple[Option, ...]:
    """Every value of every field but the target, which all others are tried with."""
    return tuple(
        Option(path, value, merged(_needed(path, value), _placed(path, value)))
        for path in fields()
        if path != "target"
        for value in values(path)
    )


def _needed(path: str, value: object) -> Data:
    """What a field needs beside it: by the row of the value, of the field, or of the part that the field belongs to."""
    return next((NEEDS[row] for row in (f"{path}={value}", path, *_outer(path)) if row in NEEDS), {})


def _outer(path: str) -> Iterator[str]:
    while "." in path:
        path = path.rpartition(".")[0]
        yield path


def _placed(path: str, value: object) -> Data:
    """`a.b[].c` set to 1 is `{"a": {"b": [{"c": 1}]}}`."""
    for name in reversed(path.split(".")):
        value = {name.removesuffix("[]"): [value] if name.endswith("[]") else value}
    return value  # type: ignore[return-value]  # the path is not empty


def merged(*parts: Any) -> Any:
    """The later wins; mappings are merged by key, lists of mappings item by item."""
    first, *rest = parts
    for part in rest:
        first = _both(first, part)
    return copy.deepcopy(first)


def _both(old: Any, new: Any) -> Any:
    if isinstance(old, dict) and isinstance(new, dict):
        return {**old, **{key: _both(old[key], value) if key in old else value for key, value in new.items()}}
    if isinstance(old, list) and isinstance(new, list) and all(isinstance(each, dict) for each in (*old, *new)):
        return [_both(*each) for each in zip(old, new, strict=False)] + old[len(new) :] + new[len(old) :]
    return new


def job(target: str, *chosen: Option) -> Data:
    """The job file with some options."""
    data = merged(IMAGE, TARGETS[target], *(option.change for option in chosen))
    return data if data.keys() & {"script", "module", "command"} else {**data, **PROGRAM}


def valid(data: Data) -> JobConfig | None:
    """The config; None where options exclude each other, or the target excludes one."""
    try:
        return JobConfig.from_mapping(data)
    except ConfigError:
        return None


@functools.cache
def alone(target: str) -> tuple[tuple[Option, JobConfig], ...]:
    """Every option that the target takes, and the config with this option and no other."""
    return tuple((option, config) for option in options() if (config := valid(job(target, option))))


def combinations(seed: int, target: str) -> Iterator[tuple[str, JobConfig | None]]:
    """Some options at once, drawn at random, for ever: what was chosen, and the config where that is valid."""
    drawn, known = random.Random(f"{seed} {target}"), [option for option, _ in alone(target)]
    while True:
        chosen = drawn.sample(known, drawn.randint(*AT_ONCE))
        yield ", ".join(map(str, chosen)), valid(job(target, *chosen))


AT_ONCE: Final = (2, 12)
"""Few enough that most combinations are valid, and enough that options of one object meet."""


@dataclass(frozen=True)
class Lift:
    """A reason for which pods need a namespace that allows more than the profile `restricted`."""

    profile: Profile
    why: str
    holds: Callable[[JobConfig], bool]


LIFTS: Final = (
    Lift("privileged", "RDMA devices need the capability IPC_LOCK", lambda config: config.resources.rdma is not None),
    Lift("privileged", "a folder of the cluster node", lambda config: any(v.host_path for v in config.storage.volumes)),
    Lift("privileged", "the host's network", lambda config: bool(_overlaid(config).get("hostNetwork"))),
    Lift("baseline", "the profile in the config", lambda config: config.security.profile == "baseline"),
    Lift(
        "baseline",
        "a container that says nothing of its security",
        lambda config: "initContainers" in _overlaid(config),
    ),
)
"""The widest first."""


def _overlaid(config: JobConfig) -> Any:
    return config.overlays.pod.get("spec") or {}


def profile(config: JobConfig) -> Profile:
    """The narrowest profile that a namespace can enforce on the job's pods."""
    return next((lift.profile for lift in LIFTS if lift.holds(config)), "restricted")


LONG_NAME: Final = "a" * 63
LONG_DOMAIN: Final = ".".join(["a" * 63] * 3 + ["a" * 61])
LONG_KEY: Final = f"{LONG_DOMAIN}/{LONG_NAME}"
NODE_TERMS: Final = [{"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["h100"]}]}]
POD_TERM: Final = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"team": "research"}}}
FOLLOWED: Final = {"type": "cpu", "target": "80"}
METRIC: Final = {"type": "pods", "name": "queue", "target": "1500m"}
RULES: Final = {"nodes": 2, "period_seconds": 60, "stabilization_window_seconds": 60}
HARD: Final = "requiredDuringSchedulingIgnoredDuringExecution"

VALUES: Final[Mapping[str, Sequence[object]]] = {
    "name": ["other"],
    "image": [f"registry.example.com/train@sha256:{'0' * 64}"],
    "image_pull_secrets": [["registry", LONG_DOMAIN]],
    "namespace": ["team-a"],
    "script": ["/work space/train.py"],
    "module": ["package.train"],
    "command": [["bash", "-c", "true; $(HOME) $$"]],
    "args": [["--lr", "0.1", "", "-", "$(POD_IP)", "ü\n"]],
    "working_dir": ["/work space"],
    "workdir.path": ["src"],
    "workdir.mount_path": ["/work space/src"],
    "workdir.exclude": [["*.ipynb", "data/*"]],
    "workdir.files": [{"lib/ü x.py": "IyEvYmluL3NoCg==", "train.py": ""}],
    "initializers[].name": ["model", "a" * 58],
    "initializers[].source": ["org/other", "model"],
    "initializers[].revision": ["refs/pr/1", "v1.0"],
    "initializers[].command": [["sh", "-c", "echo $(HOME) > a"]],
    "initializers[].path": ["/mnt/some data/set"],
    "initializers[].image": ["python:3.13-slim"],
    "initializers[].attempts": [1, 100],
    "initializers[].env.NAME.value": ["", "text"],
    "initializers[].env.NAME.secret": ["tokens"],
    "initializers[].env.NAME.configmap": ["settings"],
    "initializers[].env.NAME.key": ["a.b-c_D"],
    "initializers[].env.NAME.field": ["status.podIP"],
    "health_check.disk": ["10Gi", "1G"],
    "health_check.timeout_seconds": [60],
    "labels": [{"team": "", LONG_KEY: LONG_NAME}],
    "annotations": [{"example.com/note": "two\nlines: ü"}],
    "env.NAME.value": ["", "text", "$(HOME)"],
    "env.NAME.secret": ["tokens"],
    "env.NAME.configmap": ["settings"],
    "env.NAME.key": ["a.b-c_D"],
    "env.NAME.field": ["status.podIP", "status.hostIPs", "metadata.uid", f"metadata.labels['{LONG_KEY}']"],
    "elastic.nnodes": ["1:4", "4", "1:10000"],
    "elastic.node_unit": [2],
    "elastic.world_sizes": [[1, 2, 4, 8]],
    "elastic.initial_nodes": [3],
    "elastic.nproc_per_node": [8, "9999"],
    "elastic.rdzv_endpoint": ["etcd.example.com:2379"],
    "elastic.rdzv_id": ["a run/with:any=text"],
    "elastic.monitor_interval": [0.1, 3600],
    "runtime.shutdown_grace_seconds": [0, 115],
    "runtime.failure_grace_seconds": [0, 30],
    "runtime.hang_timeout_seconds": ["off", False, 900],
    "resources.cpu": ["500m", 4, 0.5, "1k"],
    "resources.memory": ["16Gi", "1.5Gi", 2_000_000_000],
    "resources.ephemeral_storage": ["1Ti", "100M"],
    "resources.gpu.resource": ["nvidia.com/mig-1g.10gb", f"example.com/{LONG_NAME}"],
    "resources.rdma.resource": ["rdma/hca_shared_devices_a", "vpc.amazonaws.com/efa"],
    "resources.hugepages.amount": ["64Mi", "1Gi"],
    "resources.claims[].name": ["nics", LONG_NAME],
    "resources.claims[].template": ["nics", LONG_DOMAIN],
    "shared_memory.size": ["1Gi", "64M"],
    "rendezvous.image": ["python:3.13-slim"],
    "rendezvous.resources.cpu": ["1", 0.25],
    "rendezvous.resources.memory": ["1Gi"],
    "rendezvous.node_selector": [{"pool": "cpu", LONG_KEY: ""}],
    "rendezvous.tolerations[].key": ["gpu", LONG_KEY],
    "rendezvous.tolerations[].value": ["", LONG_NAME],
    "autoscaling.policy": ["capacity"],
    "autoscaling.probe_seconds": [1, 600],
    "autoscaling.metrics[].target": ["99999"],
    "autoscaling.metrics[].name": ["queue length:p99"],
    "autoscaling.metrics[].selector": [{LONG_KEY: LONG_NAME}],
    "run_policy.rerun": ["again", "2026-11-01 12:00"],
    "run_policy.scheduling_policy.min_available": [1, 2],
    "run_policy.scheduling_policy.queue": ["research"],
    "run_policy.scheduling_policy.priority_class": ["high"],
    "placement.queue": ["research"],
    "placement.kueue.priority_class": ["high", LONG_NAME],
    "placement.gang.queue": ["research"],
    "placement.gang.timeout_seconds": [30],
    "placement.priority_class": ["system-cluster-critical"],
    "placement.node_selector": [{"gpu": "h100", LONG_KEY: ""}],
    "placement.scheduler_name": ["volcano", LONG_DOMAIN],
    "placement.tolerations[].key": ["gpu", LONG_KEY],
    "placement.tolerations[].value": ["", LONG_NAME],
    "placement.topology_spread[].topology_key": ["topology.kubernetes.io/zone"],
    "placement.topology_pack.topology_key": ["topology.kubernetes.io/zone", LONG_KEY],
    "placement.affinity.nodeAffinity": [{HARD: {"nodeSelectorTerms": NODE_TERMS}}],
    "placement.affinity.podAffinity": [{HARD: [POD_TERM]}],
    "placement.affinity.podAntiAffinity": [{HARD: [POD_TERM]}],
    "disruption.termination_grace_period_seconds": [35, 86_400],
    "security.service_account": ["default"],
    "storage.checkpoint.claim": ["checkpoints"],
    "storage.checkpoint.size": ["1Ti", "500M", 1_000_000],
    "storage.checkpoint.storage_class": ["fast"],
    "storage.checkpoint.mount_path": ["/save here"],
    "storage.volumes[].name": [LONG_NAME],
    "storage.volumes[].claim": ["data"],
    "storage.volumes[].secret": ["data"],
    "storage.volumes[].configmap": ["data"],
    "storage.volumes[].empty_dir": ["10Gi"],
    "storage.volumes[].host_path": ["/data"],
    "storage.mounts[].volume": ["data"],
    "storage.mounts[].mount_path": ["/mnt/some data"],
    "storage.mounts[].sub_path": ["runs/a b"],
    "launcher.config_map": ["launcher-1", LONG_DOMAIN, f"launcher-{'0' * 64}"],
    "launcher.version": ["2"],
    "launcher.events": ["-", "/checkpoints/events.jsonl"],
    "launcher.webhook.secret": ["webhook"],
    "launcher.webhook.key": ["a.b-c_D"],
    "overlays.pod": [
        {"metadata": {"labels": {"example.com/overlay": "yes"}, "annotations": {"example.com/overlay": "yes"}}},
        {"spec": {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}},
        {"spec": {"initContainers": [{"name": "wait", "image": "busybox"}]}},
        {"spec": {"containers": [{"name": "pytorch", "tty": True, "envFrom": [{"configMapRef": {"name": "team"}}]}]}},
    ],
}  # fmt: skip
"""Values of fields of which the schema does not say enough, the longest names among them.

Names of objects for which the API server looks when it admits a pod are those that every cluster has.
"""

_FOLDER: Final = {"name": "data", "path": "/mnt/set"}
_MODEL: Final = {**_FOLDER, "kind": "huggingface", "source": "org/model"}

NEEDS: Final[Mapping[str, Data]] = {
    "workdir": {"workdir": {"files": {"train.py": "cGFzcwo="}}},
    "initializers[]": {"initializers": [_MODEL]},
    "initializers[].kind=s3": {"initializers": [{**_MODEL, "source": "s3://data/set"}]},
    "initializers[].kind=git": {"initializers": [{**_MODEL, "source": "https://git.example.com/set.git"}]},
    "initializers[].kind=command": {"initializers": [{**_FOLDER, "command": ["true"]}]},
    "initializers[].command": {"initializers": [{**_FOLDER, "kind": "command"}]},
    **{
        f"initializers[].env.NAME.{source}": {"initializers": [{**_MODEL, "env": {"NAME": {"key": "token"}}}]}
        for source in ("secret", "configmap")
    },
    "initializers[].env.NAME.key": {"initializers": [{**_MODEL, "env": {"NAME": {"secret": "tokens"}}}]},
    "health_check": {"health_check": {}},
    "health_check.nccl": {"resources": {"gpu": 8}},
    "health_check.gpus": {"resources": {"gpu": 8}},
    "env.NAME.secret": {"env": {"NAME": {"key": "token"}}},
    "env.NAME.configmap": {"env": {"NAME": {"key": "token"}}},
    "env.NAME.key": {"env": {"NAME": {"secret": "tokens"}}},
    "elastic.rdzv_backend": {"elastic": {"rdzv_endpoint": "etcd:2379"}},
    "elastic.rdzv_endpoint": {"elastic": {"rdzv_backend": "etcd"}},
    "resources.gpu": {"resources": {"gpu": {"count": 2}}},
    "resources.rdma": {
        "resources": {"rdma": {"resource": "rdma/hca_shared_devices_a"}},
        "security": {"profile": "baseline"},
    },
    "resources.hugepages": {"resources": {"memory": "16Gi", "hugepages": {"amount": "2Gi"}}},
    "resources.claims[]": {"resources": {"claims": [{"name": "nics", "template": "nics"}]}},
    "rendezvous.image": {"rendezvous": {"host": "dedicated"}},
    "rendezvous.resources": {"rendezvous": {"host": "dedicated"}},
    "rendezvous.node_selector": {"rendezvous": {"host": "dedicated"}},
    "rendezvous.tolerations[]": {"rendezvous": {"host": "dedicated", "tolerations": [{"key": "gpu"}]}},
    "rendezvous.tolerations[].value": {
        "rendezvous": {"host": "dedicated", "tolerations": [{"key": "gpu", "operator": "Equal"}]}
    },
    "rendezvous.tolerations[].toleration_seconds": {
        "rendezvous": {"host": "dedicated", "tolerations": [{"effect": "NoExecute"}]}
    },
    "autoscaling": {"autoscaling": {"metrics": [FOLLOWED]}, "resources": {"cpu": "4"}},
    "autoscaling.policy": {},
    "autoscaling.probe_seconds": {"autoscaling": {"policy": "capacity"}},
    "autoscaling.behavior.scale_up": {"autoscaling": {"metrics": [METRIC], "behavior": {"scale_up": RULES}}},
    "autoscaling.behavior.scale_down": {"autoscaling": {"metrics": [METRIC], "behavior": {"scale_down": RULES}}},
    "autoscaling.metrics[].type=memory": {"autoscaling": {"metrics": [FOLLOWED]}, "resources": {"memory": "16Gi"}},
    "autoscaling.metrics[].type=pods": {"autoscaling": {"metrics": [METRIC]}},
    "autoscaling.metrics[].type=external": {"autoscaling": {"metrics": [METRIC]}},
    "autoscaling.metrics[].name": {"autoscaling": {"metrics": [METRIC]}},
    "autoscaling.metrics[].selector": {"autoscaling": {"metrics": [METRIC]}},
    "security.run_as_user": {"security": {"profile": "baseline"}},
    "placement.kueue": {"placement": {"queue": "research"}},
    "placement.gang": {"placement": {"gang": {"scheduler": "coscheduling"}}},
    "placement.gang.scheduler=kai": {"placement": {"gang": {"queue": "research"}}},
    "placement.gang.queue": {"placement": {"gang": {"scheduler": "volcano"}}},
    "placement.tolerations[]": {"placement": {"tolerations": [{"key": "gpu"}]}},
    "placement.tolerations[].value": {"placement": {"tolerations": [{"key": "gpu", "operator": "Equal"}]}},
    "placement.tolerations[].toleration_seconds": {"placement": {"tolerations": [{"effect": "NoExecute"}]}},
    "placement.topology_pack": {"placement": {"topology_pack": {"topology_key": "topology.kubernetes.io/zone"}}},
    "placement.topology_spread[]": {"placement": {"topology_spread": [{"topology_key": "kubernetes.io/hostname"}]}},
    "storage.checkpoint.storage_class": {"storage": {"checkpoint": {"size": "1Ti"}}},
    "storage.checkpoint.access_mode": {"storage": {"checkpoint": {"size": "1Ti"}}},
    "storage.checkpoint.mount_path": {"storage": {"checkpoint": {"claim": "checkpoints"}}},
    "storage.volumes[].name": {"storage": {"volumes": [{"empty_dir": "1Gi"}]}},
    "storage.volumes[].host_path": {
        "storage": {"volumes": [{"name": "data"}], "mounts": [{"volume": "data", "mount_path": "/data"}]},
        "security": {"profile": "baseline"},
    },
    "storage.volumes[]": {
        "storage": {"volumes": [{"name": "data"}], "mounts": [{"volume": "data", "mount_path": "/data"}]}
    },
    "storage.mounts[]": {
        "storage": {
            "volumes": [{"name": "data", "empty_dir": "1Gi"}],
            "mounts": [{"volume": "data", "mount_path": "/data"}],
        }
    },
    "launcher.webhook": {"launcher": {"webhook": {"secret": "webhook"}}},
}
"""What a field, or each field of a part, cannot be without."""
