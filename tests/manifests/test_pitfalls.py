"""Every way known to us in which a job goes wrong by its config, and what becomes of it here.

One row a pitfall: it is refused with a path, warned about with a path, or cannot happen. Each names what holds that,
and fails where the tests take this guard away; for rows without one, `Unwritten` says why. Evidence is the operator's
code at v1.9.4 or an issue of kubeflow/trainer unless named otherwise.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any, Final

import pydantic
import pytest

from elastic_infra.cli import check
from elastic_infra.config import ConfigError, JobConfig, rules, warnings
from elastic_infra.config.base import Part
from elastic_infra.config.elastic import Elastic, RdzvConfigs
from elastic_infra.config.run_policy import RunPolicy
from elastic_infra.launcher import exit_codes
from elastic_infra.launcher.protocol import events, machine
from elastic_infra.launcher.protocol.actions import Exit
from elastic_infra.launcher.protocol.limits import Limits
from elastic_infra.manifests import updates
from tests import jobs, kubernetes_schema
from tests.guards import Guard, remove
from tests.launcher.protocol.states import PAIR, connected
from tests.test_check import schema
from tools.run import ROOT

Fields = dict[str, Any]
Objects = dict[str, Any]

RANGE: Final[Fields] = {"elastic": {"nnodes": "2:4"}}
INDEXED: Final[Fields] = {**RANGE, "target": "job"}
TRAIN_JOB: Final[Fields] = {**RANGE, "target": "trainjob"}
PODS: Final = {"metrics": [{"type": "pods", "name": "q", "target": 1}]}
GANG: Final[Fields] = {"run_policy": {"scheduling_policy": {"queue": "q"}}}


COSCHEDULED: Final[Fields] = {"placement": {"gang": {"scheduler": "coscheduling"}}}
TARGETS: Final[Mapping[str, Fields]] = {
    "pytorchjob": {**RANGE, "target": "pytorchjob"},
    "job": INDEXED,
    "trainjob": TRAIN_JOB,
    "single": {"elastic": {"nnodes": 1}, "target": "job"},
}
"""What a row about any target's objects is looked at with."""
EVERY: Final = tuple(TARGETS)
RANGES: Final = ("pytorchjob", "job", "trainjob")
"""Those with a store of their own."""
INDICES: Final = ("job", "trainjob")
"""Those whose pods a Job makes by their index."""


@dataclasses.dataclass(frozen=True)
class Refused:
    """The config is a ConfigError at this path.

    Attributes:
        by_type: the part of the config and its field whose type refuses the value; None: a rule does.
    """

    fields: Fields
    path: str
    by_type: tuple[type[Part], str] | None = None


@dataclasses.dataclass(frozen=True)
class Warned:
    """The config is valid, and a warning at this path says what will happen."""

    fields: Fields
    path: str


@dataclasses.dataclass(frozen=True)
class Unwritten:
    """No code holds this law, because nothing writes the fault. Shown is only that the look would find the fault.

    Attributes:
        why: why nothing writes it.
        put: puts the fault into the objects.
    """

    why: str
    put: Callable[[Objects], object]


@dataclasses.dataclass(frozen=True)
class Impossible:
    """What is rendered cannot have the fault.

    Attributes:
        guards: what holds that, each by itself.
        targets: rows of `TARGETS` whose objects are looked at; without any, those of the fields alone.
        tests: where it is tested on the real thing.
    """

    fields: Fields
    holds: Callable[[Objects], bool]
    guards: tuple[Guard, ...] | Unwritten
    targets: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Prevented:
    """What does not happen while a job runs or is changed.

    Attributes:
        holds: whether it does not happen to a job.
        guards: what holds that, each by itself.
        tests: where it is tested on the real thing.
        targets: rows of `TARGETS` of which each is tried; without any, no job file matters.
        fields: further keys of their job files.
    """

    holds: Callable[[Fields], bool]
    guards: tuple[Guard, ...]
    tests: tuple[str, ...]
    targets: tuple[str, ...] = ()
    fields: Fields = dataclasses.field(default_factory=dict)


def _spec(objects: Objects) -> Any:
    return objects["workload"]["spec"]


def _job_spec(objects: Objects) -> Any:
    """The spec of the Job that makes the pods."""
    return jobs.replicated_job(objects["runtime"]) if "runtime" in objects else _spec(objects)


def _worker(objects: Objects) -> Any:
    return _spec(objects)["pytorchReplicaSpecs"]["Worker"]


def _pod(objects: Objects) -> Any:
    """The template of the nodes' pods."""
    return [*jobs.templates(objects)][-1]


def _container(objects: Objects) -> Any:
    return _pod(objects)["spec"]["containers"][0]


def _variable(objects: Objects, name: str) -> str:
    return str({entry["name"]: entry.get("value", "") for entry in _container(objects)["env"]}.get(name, ""))


def _tolerates(objects: Objects, taint: str) -> bool:
    tolerations = _pod(objects)["spec"].get("tolerations", ())
    return any(t.get("key") == taint and t.get("tolerationSeconds") == 60 for t in tolerations)


def _without_sidecar(template: Any) -> bool:
    return bool(template["metadata"]["annotations"].get("sidecar.istio.io/inject") == "false")


def _shrinks_after(objects: Objects) -> float:
    """Seconds; Kubernetes' default where the autoscaler does not say it."""
    behavior = objects["autoscaler"]["spec"].get("behavior", {})
    return float(behavior.get("scaleDown", {}).get("stabilizationWindowSeconds", 300))


def _failure_rules(objects: Objects) -> Any:
    return _job_spec(objects)["podFailurePolicy"]["rules"]


def _fails_at_once(objects: Objects, container: str) -> bool:
    codes = {"containerName": container, "operator": "In", "values": [1, 2, 93]}
    return {"action": "FailJob", "onExitCodes": codes} in _failure_rules(objects)


def _is_own_run(name: str) -> bool:
    return re.fullmatch(r"job-[0-9a-f]{8}", name) is not None


def _has_every_field_known(objects: Objects) -> bool:
    try:
        return not any(fault for each in objects.values() for fault in kubernetes_schema.faults(each))
    except kubernetes_schema.SchemasMissing as error:
        pytest.skip(str(error))


def _ends_with(code: int, **changes: Any) -> bool:
    """What a node of the launcher exits with, one of a pair that is over unless the changes say otherwise."""
    final = dataclasses.replace(PAIR, phase="final", exit_code=0, ended_at=1000)
    state = dataclasses.replace(connected(Limits(max_nodes=2), final), **changes)
    _, actions = machine.step(state, events.Tick(), 0.0)
    return [action.code for action in actions if isinstance(action, Exit)] == [code]


def _is_left_alone(fields: Fields, *ends: str) -> bool:
    """Whether an update leaves the paths with these ends to others."""
    return set(ends) <= {path.rpartition(".")[2] for path in updates.foreign_paths(jobs.job(**fields))}


def _restarts(fields: Fields, **change: Any) -> bool:
    """Whether a change makes the workload anew."""
    config = jobs.job(**fields)
    before, after = (jobs.objects(each)["workload"] for each in (config, jobs.job(**{**fields, **change})))
    paths = updates.restart_paths(config)
    return updates.parts(before, paths) != updates.parts(after, paths)


def _is_refused(fields: Fields, name: str) -> bool:
    try:
        jobs.objects(jobs.job(**fields), name=name)
    except ConfigError:
        return True
    return False


MANIFESTS: Final = "elastic_infra.manifests"
MACHINE: Final = "elastic_infra.launcher.protocol.machine:_ending"
SCHEMA_TEST: Final = "tests/manifests/test_schema.py::test_every_valid_config_renders_to_what_the_schemas_allow"
LEFT_ALONE: Final = "tests/manifests/test_updates.py::test_what_others_own_is_left_to_them"
STORE_HOST: Final = Guard(
    f"{MANIFESTS}.service:service_name",
    "host_name(name, config, 0) if is_of_a_node else ObjectNames(name).rendezvous",
    "host_name(name, config, 0)",
)
SUCCESS: Final = Guard(f"{MANIFESTS}.batch_job:indexed_shape", '"successPolicy": {"rules": [{"succeededCount": 1}]},')

PITFALLS: Final[dict[str, Refused | Warned | Impossible | Prevented]] = {
    "two autoscalers on one job (kubernetes#122059)": Impossible(
        {**RANGE, "autoscaling": PODS},
        lambda objects: "autoscaler" in objects and "metrics" not in _spec(objects)["elasticPolicy"],
        (
            Guard(
                f"{MANIFESTS}.pytorch_job:_elastic_policy",
                'metrics(scaling) if scaling is not None and scaling.owner == "operator" else None',
                "metrics(scaling)",
            ),
        ),
    ),
    "two autoscalers when the operator has one": Impossible(
        {**RANGE, "autoscaling": {**PODS, "owner": "operator"}},
        lambda objects: "autoscaler" not in objects and "metrics" in _spec(objects)["elasticPolicy"],
        (Guard(f"{MANIFESTS}.render:render", ' and scaling.owner == "component"'),),
    ),
    "an autoscaler named like the job, which the operator takes over": Impossible(
        {**RANGE, "autoscaling": PODS},
        lambda objects: objects["autoscaler"]["metadata"]["name"] != "job",
        (Guard("elastic_infra.config.names:ObjectNames.autoscaler", "-hpa"),),
    ),
    "a CPU metric without a request never scales (#1220)": Refused(
        {**RANGE, "autoscaling": {"metrics": [{"type": "cpu", "target": 80}]}}, "autoscaling.metrics[0]"
    ),
    "a CPU metric on GPU work flaps (#1891)": Warned(
        {
            **RANGE,
            "autoscaling": {"metrics": [{"type": "cpu", "target": 80}]},
            "resources": {"cpu": 8, "memory": "8Gi", "gpu": 1},
        },
        "autoscaling.metrics[0]",
    ),
    "an autoscaler that shrinks fast": Impossible(
        {**RANGE, "autoscaling": PODS},
        lambda objects: _shrinks_after(objects) >= 600,
        (
            Guard(
                f"{MANIFESTS}.autoscaler:horizontal_pod_autoscaler",
                '"behavior": _behavior(autoscaling.behavior or Behavior(), config.elastic.node_unit),',
            ),
        ),
    ),
    "GET /scale fails without explicit replicas": Impossible(
        RANGE,
        lambda objects: _worker(objects).get("replicas") == 4,
        (Guard(f"{MANIFESTS}.pytorch_job:pytorch_job", '"replicas": config.initial_nodes,'),),
    ),
    "Kueue suspends a job that an autoscaler resizes": Refused(
        {**RANGE, "autoscaling": PODS, "placement": {"queue": "q"}}, "autoscaling"
    ),
    "Kueue refuses elastic-job on a PyTorchJob": Refused(
        {**RANGE, "labels": {"kueue.x-k8s.io/elastic-job": "true"}}, "labels.kueue.x-k8s.io/elastic-job"
    ),
    "Kueue ignores PyTorchJobs by default (kueue#12606)": Warned(
        {**RANGE, "placement": {"queue": "q"}}, "placement.queue"
    ),
    "suspend fights with Kueue": Refused(
        {**RANGE, "placement": {"queue": "q"}, "run_policy": {"suspend": True}}, "run_policy.suspend"
    ),
    "the store dies with worker 0 (#1638, #1509)": Impossible(
        RANGE,
        lambda objects: "store" in objects and _spec(objects)["elasticPolicy"].get("rdzvHost") == "job-rdzv",
        (
            Guard(
                "elastic_infra.config.job:JobConfig.rendezvous_host",
                'self.rendezvous.host or ("dedicated" if self.elastic.is_range else "worker0")',
                '"worker0"',
            ),
        ),
    ),
    "the store dies with the pod of index 0": Impossible(
        {},
        lambda objects: _variable(objects, "PET_RDZV_ENDPOINT") == "job-rdzv:29400",
        (STORE_HOST,),
        INDICES,
    ),
    "a closed run in etcd (#1638)": Warned(
        {"elastic": {"nnodes": 2, "rdzv_backend": "etcd", "rdzv_endpoint": "etcd:1"}}, "elastic.rdzv_backend"
    ),
    "one lost node eats the whole backoff limit": Impossible(
        RANGE,
        lambda objects: _spec(objects)["runPolicy"]["backoffLimit"] == 12,
        (Guard("elastic_infra.config.job:JobConfig.backoff_limit", "RESTARTS_PER_NODE * self.elastic.max_nodes", "3"),),
    ),
    "a backoff limit below the number of nodes": Warned(
        {**RANGE, "run_policy": {"restart_policy": "OnFailure", "backoff_limit": 3}}, "run_policy.backoff_limit"
    ),
    "ExitCode with plain torchrun never retries": Impossible(
        {**RANGE, "run_policy": {"restart_policy": "ExitCode"}},
        lambda objects: "launcher" in _container(objects)["command"][-1],
        (Guard(f"{MANIFESTS}.pod:_container", "python(config, launcher, *program)", '["torchrun"]'),),
    ),
    "a backoff limit that counts nothing (#2045)": Warned(
        {**RANGE, "run_policy": {"restart_policy": "ExitCode", "backoff_limit": 40}}, "run_policy.backoff_limit"
    ),
    "torchrun's exit code 1 is permanent under ExitCode": Warned(
        {
            "elastic": {"nnodes": 2, "rdzv_backend": "etcd", "rdzv_endpoint": "etcd:1"},
            "run_policy": {"restart_policy": "ExitCode"},
        },
        "run_policy.restart_policy",
    ),
    "torchrun on etcd is restarted in place": Impossible(
        {"elastic": {"nnodes": 2, "rdzv_backend": "etcd", "rdzv_endpoint": "etcd:1"}},
        lambda objects: _worker(objects)["restartPolicy"] == "OnFailure",
        (
            Guard(
                "elastic_infra.config.job:JobConfig.restart_policy",
                '("ExitCode" if self.elastic.rdzv_backend == "c10d" else "OnFailure")',
                '"ExitCode"',
            ),
        ),
    ),
    "a deadline passes unseen (#3358)": Warned(
        {**RANGE, "run_policy": {"active_deadline_seconds": 60}}, "run_policy.active_deadline_seconds"
    ),
    "a ttl deletes the job, and the next refresh and up train again": Warned(
        {**RANGE, "run_policy": {"ttl_seconds_after_finished": 60}}, "run_policy.ttl_seconds_after_finished"
    ),
    "a finished job keeps GPU pods running (#1504, #1751)": Impossible(
        RANGE,
        lambda objects: _spec(objects)["runPolicy"].get("cleanPodPolicy") == "Running",
        (Guard(f"{MANIFESTS}.pytorch_job:_run_policy", "cleanPodPolicy=policy.clean_pod_policy,"),),
    ),
    "a finished job keeps GPU pods running because it was told so": Warned(
        {**RANGE, "run_policy": {"clean_pod_policy": "None"}}, "run_policy.clean_pod_policy"
    ),
    "a misspelt clean pod policy acts as All": Refused(
        {**RANGE, "run_policy": {"clean_pod_policy": "running"}},
        "run_policy.clean_pod_policy",
        (RunPolicy, "clean_pod_policy"),
    ),
    "a lost node hangs NCCL for minutes (#1509, pytorch#111646)": Impossible(
        {},
        lambda objects: (
            _variable(objects, "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC") == "300"
            and _variable(objects, "TORCH_NCCL_ASYNC_ERROR_HANDLING") == "3"
        ),
        (Guard(f"{MANIFESTS}.environment:_generated", "**defaults,"),),
        EVERY,
    ),
    "standalone crashes torchrun": Impossible(
        {"target": "pytorchjob"},
        lambda objects: "standalone" not in _spec(objects)["elasticPolicy"],
        Unwritten("the config has no such field", lambda o: _spec(o)["elasticPolicy"].update(standalone=True)),
    ),
    "standalone with a range": Impossible(
        {},
        lambda objects: "--standalone" not in _container(objects)["args"] and "store" in objects,
        (Guard(f"{MANIFESTS}.render:_workload", "if config.is_single_pod:", "if config.kind == 'Job':"),),
        ("job",),
    ),
    "an empty rdzvConf panics the operator": Impossible(
        {"target": "pytorchjob"},
        lambda objects: len(_spec(objects)["elasticPolicy"]["rdzvConf"]) > 0,
        (
            Guard(
                f"{MANIFESTS}.pytorch_job:_elastic_policy",
                '[{"key": key, "value": value} for key, value in rendezvous_settings(config).items()]',
                "[]",
            ),
        ),
    ),
    "a comma or an equals sign in rdzvConf": Refused(
        {**RANGE, "elastic": {"nnodes": "2:4", "rdzv_configs": {"timeout": "1,is_host=true"}}},
        "elastic.rdzv_configs.timeout",
        (RdzvConfigs, "timeout"),
    ),
    "empty metrics make an autoscaler with a default": Refused(
        {**RANGE, "autoscaling": {"metrics": []}}, "autoscaling.metrics"
    ),
    "minimum above maximum": Refused({"elastic": {"nnodes": "4:2"}}, "elastic.nnodes", (Elastic, "nnodes")),
    "replicas outside the range": Refused({"elastic": {"nnodes": "2:4", "initial_nodes": 5}}, "elastic.initial_nodes"),
    "no node at all (#1709)": Refused({"elastic": {"nnodes": 0}}, "elastic.nnodes", (Elastic, "nnodes")),
    "auto starts a process for each core of the cluster node": Impossible(
        RANGE,
        lambda objects: (
            _spec(objects).get("nprocPerNode") == "1" and "nProcPerNode" not in _spec(objects)["elasticPolicy"]
        ),
        (Guard(f"{MANIFESTS}.pytorch_job:pytorch_job", '"nprocPerNode": str(config.nproc_per_node),'),),
    ),
    "a number of processes that the launcher would find by itself": Impossible(
        {},
        lambda objects: _variable(objects, "PET_NPROC_PER_NODE") == "1",
        (
            Guard(
                f"{MANIFESTS}.indexed_job:torchrun_variables",
                '"PET_NPROC_PER_NODE": str(config.nproc_per_node),',
            ),
        ),
        INDICES,
    ),
    "an init container from another registry (#1696)": Impossible(
        RANGE,
        lambda objects: list(_spec(objects)["pytorchReplicaSpecs"]) == ["Worker"],
        Unwritten(
            "a job has workers only, and the operator adds the container for a Master",
            lambda o: _spec(o)["pytorchReplicaSpecs"].update(Master={}),
        ),
    ),
    "a Service that the operator counts as its own": Impossible(
        RANGE,
        lambda objects: (
            objects["service"]["metadata"]["name"] == "job-rdzv"
            and "training.kubeflow.org" not in json.dumps(objects["service"]["metadata"])
        ),
        Unwritten(
            "the operator's label is used in selectors alone, and refused in `labels`",
            lambda o: o["service"]["metadata"]["labels"].update({"training.kubeflow.org/job-name": "job"}),
        ),
    ),
    "the operator's labels given by the user": Refused(
        {**RANGE, "labels": {"training.kubeflow.org/job-name": "x"}}, "labels.training.kubeflow.org/job-name"
    ),
    "a Service's name as host, which no node is sure to be": Impossible(
        {},
        lambda objects: (
            {"key": "is_host", "value": "false"} in _spec(objects).get("elasticPolicy", {}).get("rdzvConf", ())
            or "is_host=false" in _variable(objects, "PET_RDZV_CONF").split(",")
        ),
        (Guard(f"{MANIFESTS}.rendezvous:rendezvous_settings", '{"is_host": "false"}', "{}"),),
        RANGES,
    ),
    "worker 0 as host under a name that is not its own": Impossible(
        {"elastic": {"nnodes": 2}},
        lambda objects: "rdzvHost" not in _spec(objects)["elasticPolicy"],
        (
            Guard(
                f"{MANIFESTS}.pytorch_job:_elastic_policy",
                "ObjectNames(name).rendezvous if dedicated else None",
                "name",
            ),
        ),
    ),
    "index 0 as host under a name that is not its own": Impossible(
        {"elastic": {"nnodes": 2}},
        lambda objects: _variable(objects, "PET_RDZV_ENDPOINT") in {"job-0:29400", "job-node-0-0:29400"},
        (dataclasses.replace(STORE_HOST, without="ObjectNames(name).rendezvous"),),
        INDICES,
    ),
    "readiness that waits for training, and training for names": Refused(
        {**RANGE, "readiness_probe": {"httpGet": {"port": 1}}}, "readiness_probe", (JobConfig, "readiness_probe")
    ),
    "names that appear only when ready": Impossible(
        {},
        lambda objects: (
            objects["service"]["spec"].get("publishNotReadyAddresses") is True
            and "readinessProbe" not in json.dumps(_pod(objects))
        ),
        (Guard(f"{MANIFESTS}.service:rendezvous_service", '"publishNotReadyAddresses": True,'),),
        RANGES,
    ),
    "an Istio sidecar blocks the rendezvous (#1637)": Impossible(
        {},
        lambda objects: _without_sidecar(_pod(objects)),
        (Guard(f"{MANIFESTS}.pod:_annotations", '"sidecar.istio.io/inject": "false",'),),
        EVERY,
    ),
    "an Istio sidecar blocks the store": Impossible(
        {},
        lambda objects: _without_sidecar(objects["store"]["spec"]["template"]),
        (Guard(f"{MANIFESTS}.store:_template", ', "sidecar.istio.io/inject": "false"'),),
        RANGES,
    ),
    "an unnamed second port": Impossible(
        {"launcher": {"metrics_port": 9000}},
        lambda objects: all(port.get("name") for port in _container(objects)["ports"]),
        (Guard(f"{MANIFESTS}.pod:_ports", '"name": "status", '),),
        EVERY,
    ),
    "one port for two servers": Refused({**RANGE, "launcher": {"metrics_port": 29400}}, "launcher.metrics_port"),
    "a run that meets the run before it": Impossible(
        RANGE,
        lambda objects: _is_own_run(_spec(objects)["elasticPolicy"]["rdzvId"]),
        (Guard(f"{MANIFESTS}.pytorch_job:pytorch_job", "config.elastic.rdzv_id or identity", "name"),),
    ),
    "a run of a Job that meets the run before it": Impossible(
        {},
        lambda objects: _is_own_run(_variable(objects, "PET_RDZV_ID")),
        (
            Guard(
                f"{MANIFESTS}.batch_job:job_template",
                "config.elastic.rdzv_id or run_id(name, without_launcher(made(torchrun)), *taken_on(config))",
                "name",
            ),
        ),
        INDICES,
    ),
    "deletion returns before the pods are gone": Impossible(
        {},
        lambda objects: (
            objects["workload"]["metadata"].get("annotations", {}).get("pulumi.com/deletionPropagationPolicy")
            == "foreground"
        ),
        (Guard(f"{MANIFESTS}.metadata:workload_metadata", "**FOREGROUND, "),),
        EVERY,
    ),
    "a gang that grows with the job (#1571)": Impossible(
        {**RANGE, **GANG},
        lambda objects: _spec(objects)["runPolicy"]["schedulingPolicy"].get("minAvailable") == 2,
        (
            Guard(
                f"{MANIFESTS}.pytorch_job:_scheduling_policy",
                "policy.min_available or config.elastic.min_nodes",
                "policy.min_available",
            ),
        ),
    ),
    "a gang of a second scheduler that grows with the job": Impossible(
        COSCHEDULED,
        lambda objects: objects["gang"]["spec"]["minMember"] == 2,
        (Guard(f"{MANIFESTS}.gang:pod_group", "config.elastic.min_nodes", "config.elastic.max_nodes"),),
        RANGES,
    ),
    "a gang that can never be complete": Refused(
        {**RANGE, "run_policy": {"scheduling_policy": {"min_available": 5}}},
        "run_policy.scheduling_policy.min_available",
    ),
    "a pod on a lost cluster node for five minutes (#2072)": Impossible(
        {},
        lambda objects: (
            _tolerates(objects, "node.kubernetes.io/not-ready")
            and _tolerates(objects, "node.kubernetes.io/unreachable")
        ),
        (Guard(f"{MANIFESTS}.pod:_placement", "*node_lost(NODE_LOST_SECONDS),"),),
        EVERY,
    ),
    "a variable that the operator sets as well": Refused({**RANGE, "env": {"PET_NNODES": "9"}}, "env.PET_NNODES"),
    "a variable that torch sets as well": Refused({**RANGE, "env": {"WORLD_SIZE": "9"}}, "env.WORLD_SIZE"),
    "PYTHONUNBUFFERED, which the operator appends": Warned(
        {**RANGE, "env": {"PYTHONUNBUFFERED": "0"}}, "env.PYTHONUNBUFFERED"
    ),
    "variables of every Service of the namespace": Impossible(
        {},
        lambda objects: _pod(objects)["spec"].get("enableServiceLinks") is False,
        (Guard(f"{MANIFESTS}.pod:pod_template", "enableServiceLinks=False,"),),
        EVERY,
    ),
    "a variable that is there twice": Impossible(
        {"env": {"OMP_NUM_THREADS": "4", "HOME": "/home"}},
        lambda objects: len({each["name"] for each in _container(objects)["env"]}) == len(_container(objects)["env"]),
        (Guard(f"{MANIFESTS}.environment:container_environment", "generated.keys() - config.env.keys()", "generated"),),
        EVERY,
        (SCHEMA_TEST,),
    ),
    "a field that the API server drops in silence": Impossible(
        {},
        _has_every_field_known,
        Unwritten(
            "the schemas of the API are what the tests hold every object against; no code of ours knows them",
            lambda o: _pod(o)["spec"].update(standalone=True),
        ),
        EVERY,
        (SCHEMA_TEST, "tests/cluster/test_requirements.py::test_the_server_accepts_every_object_without_a_warning"),
    ),
    "shared memory beyond the memory limit": Refused(
        {"shared_memory": {"size": "2Gi"}, "resources": {"memory": "1Gi"}}, "shared_memory.size"
    ),
    "shared memory without any limit": Warned(RANGE, "shared_memory"),
    "a grace period that ends before the checkpoint": Refused(
        {"disruption": {"termination_grace_period_seconds": 30}}, "runtime.shutdown_grace_seconds"
    ),
    "an Indexed Job retries a script that cannot run": Impossible(
        INDEXED,
        lambda objects: _fails_at_once(objects, "pytorch"),
        (Guard(f"{MANIFESTS}.batch_job:_failure_rules", "_fails_the_job(container, exit_codes.PERMANENT),"),),
    ),
    "a preempted pod of an Indexed Job counts as a failure": Impossible(
        {},
        lambda objects: _failure_rules(objects)[0]["action"] == "Ignore",
        (
            Guard(
                f"{MANIFESTS}.batch_job:_failure_rules",
                '{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},',
            ),
        ),
        ("job", "trainjob", "single"),
    ),
    "one index's failures delay the pods of all": Impossible(
        {},
        lambda objects: _job_spec(objects).get("backoffLimitPerIndex") == 2**31 - 1,
        (Guard(f"{MANIFESTS}.batch_job:indexed_shape", '"backoffLimitPerIndex": NO_LIMIT,'),),
        INDICES,
    ),
    "an Indexed Job trains again with its last node when the others have succeeded": Impossible(
        INDEXED,
        lambda objects: _spec(objects).get("successPolicy") == {"rules": [{"succeededCount": 1}]},
        (SUCCESS,),
    ),
    "an Indexed Job refuses another size": Impossible(
        INDEXED,
        lambda objects: _spec(objects).get("completions") == _spec(objects)["parallelism"] == 4,
        (Guard(f"{MANIFESTS}.indexed_job:indexed_job", '"completions": nodes,'),),
    ),
    "a subdomain without the Service of its name, which resolves nothing": Impossible(
        {},
        lambda objects: "subdomain" not in _pod(objects)["spec"],
        Unwritten("nodes know each other by address", lambda o: _pod(o)["spec"].update(subdomain="job")),
        INDICES,
    ),
    "an autoscaler of a kind without a scale subresource": Refused({**INDEXED, "autoscaling": PODS}, "autoscaling"),
    "torchrun's exit code 1 fails an Indexed Job": Refused(
        {"target": "job", "elastic": {"nnodes": 2, "rdzv_backend": "etcd", "rdzv_endpoint": "etcd:1"}},
        "elastic.rdzv_backend",
    ),
    "Trainer's torch plugin says its own number of nodes to the launcher": Impossible(
        TRAIN_JOB,
        lambda objects: set(objects["runtime"]["spec"]["mlPolicy"]) == {"numNodes"},
        Unwritten(
            "the runtime has no policy but the number of nodes",
            lambda o: o["runtime"]["spec"]["mlPolicy"].update(torch={}),
        ),
    ),
    "a TrainJob trains with what a changed runtime has become": Impossible(
        TRAIN_JOB,
        lambda objects: (
            _spec(objects)["runtimeRef"]["name"] == objects["runtime"]["metadata"]["name"]
            and _is_own_run(objects["runtime"]["metadata"]["name"])
            and _spec(objects)["runtimeRef"]["kind"] == "TrainingRuntime"
        ),
        (
            Guard(
                f"{MANIFESTS}.train_job:training_runtime",
                "run_id(name, without_launcher(template), job, nodes, *taken_on(config))",
                "name",
            ),
        ),
    ),
    "a TrainJob trains again with a late pod when the others have succeeded": Impossible(
        TRAIN_JOB,
        lambda objects: _job_spec(objects).get("successPolicy") == {"rules": [{"succeededCount": 1}]},
        (SUCCESS,),
    ),
    "a TrainJob retries a script that cannot run": Impossible(
        TRAIN_JOB,
        lambda objects: _fails_at_once(objects, "node"),
        (Guard(f"{MANIFESTS}.train_job:training_runtime", "config, TRAIN_CONTAINER)", "config, TRAINING_CONTAINER)"),),
    ),
    "a TrainJob is asked for a size that moves": Refused(
        {"target": "trainjob", "elastic": {"nnodes": "2:4", "initial_nodes": 2}}, "elastic.initial_nodes"
    ),
    "Kueue holds a TrainJob until there is quota for the most nodes": Warned(
        {**TRAIN_JOB, "placement": {"queue": "q"}}, "placement.queue"
    ),
    "Kueue suspends an Indexed Job whose size changes": Warned(
        {**INDEXED, "placement": {"queue": "q"}}, "placement.queue"
    ),
    "a pod that restricted namespaces refuse": Refused({"security": {"run_as_user": 0}}, "security.run_as_user"),
    "an autoscaler never scales a job of an operator before 1.7 (#1645, #1626)": Prevented(
        lambda _: check.operator(schema("elasticPolicy")) is not None,
        (Guard("elastic_infra.cli.check:operator", "not _has(spec, SINCE_1_7)", "False"),),
        (
            "tests/test_check.py::test_a_missing_operator_is_told_from_an_old_one",
            "tests/cluster/test_requirements.py::test_the_scale_subresource_selects_the_nodes",
        ),
    ),
    "`pulumi up` resets the number of nodes that an autoscaler has set": Prevented(
        lambda fields: _is_left_alone({**fields, "autoscaling": PODS}, "replicas"),
        (Guard(f"{MANIFESTS}.updates:foreign_paths", "(() if is_set_here else size_paths(config)) + queue", "queue"),),
        (LEFT_ALONE, "tests/cluster/test_requirements.py::test_a_size_set_by_others_stays"),
        ("pytorchjob",),
    ),
    "`pulumi up` resets the number of nodes of an Indexed Job": Prevented(
        lambda fields: _is_left_alone({**fields, "autoscaling": {"policy": "capacity"}}, "parallelism", "completions"),
        (Guard(f"{MANIFESTS}.updates:foreign_paths", "(() if is_set_here else size_paths(config)) + queue", "queue"),),
        (LEFT_ALONE, "tests/cluster/test_requirements.py::test_a_size_set_by_others_stays"),
        ("job",),
    ),
    "Pulumi takes back what Kueue writes into the job": Prevented(
        lambda fields: (
            _is_left_alone(fields, "suspend")
            and (_is_left_alone(fields, "nodeSelector", "tolerations") or _is_left_alone(fields, "runtimePatches"))
        ),
        (
            Guard(
                f"{MANIFESTS}.updates:foreign_paths",
                "RULES[config.kind].queue if config.placement.queue is not None and not is_new else ()",
                "()",
            ),
        ),
        (LEFT_ALONE, "tests/cluster/test_kueue.py::test_every_workload_object_waits_gives_way_and_comes_back"),
        EVERY,
        {"placement": {"queue": "q"}},
    ),
    "a late pod joins after the others have finished, and restarts for ever (#1751)": Prevented(
        lambda _: _ends_with(0),
        (Guard(MACHINE, 'generation.phase == "final" and not _is_stale(state, generation, now)', "False"),),
        (
            "tests/launcher/protocol/test_machine.py::test_late_joiner_leaves_with_the_jobs_code",
            "tests/cluster/test_requirements.py::test_the_first_node_to_finish_ends_the_job",
        ),
    ),
    "a node that only leaves ends the job as succeeded": Prevented(
        lambda _: (
            _ends_with(143, leaving_since=0.0, signal=signal.SIGTERM) and exit_codes.final(0, signal.SIGTERM) == 143
        ),
        (
            Guard(MACHINE, "exit_codes.of_signal(state.signal) if state.signal", "exit_codes.SUCCESS if state.signal"),
            Guard(
                "elastic_infra.launcher.exit_codes:final", "of_signal(caught) if caught is not None", "code if caught"
            ),
        ),
        ("tests/launcher/scenarios/test_membership.py::test_scale_down_by_sigterm",),
    ),
    "a changed image or variable does nothing, or makes a mixed fleet": Prevented(
        lambda fields: _restarts(fields, image="other") and _restarts(fields, env={"A": "1"}),
        (Guard(f"{MANIFESTS}.updates:restart_paths", "RULES[config.kind].restarts + "),),
        (
            "tests/manifests/test_updates.py::test_a_change_restarts_exactly_when_it_cannot_be_rolled_out",
            "tests/engine/test_updates.py::test_a_new_image_replaces_the_job_and_deletes_first",
        ),
        EVERY,
    ),
    "a name whose pods or Services would be refused": Prevented(
        lambda fields: _is_refused(fields, "a" * 60),
        (Guard(f"{MANIFESTS}.render:render", "faults := name_faults(name, config)", "faults := ()"),),
        ("tests/config/test_names.py::test_a_name_is_accepted_exactly_when_every_derived_label_fits",),
        RANGES,
    ),
}

of_kind = {kind: [name for name, row in PITFALLS.items() if isinstance(row, kind)] for kind in (Refused, Warned)}


def job_files(row: Impossible | Prevented) -> Iterator[tuple[str, Fields]]:
    """What a row is tried with, and what tells one from the other."""
    yield from ((f" [{target}]", {**TARGETS[target], **row.fields}) for target in row.targets)
    if not row.targets:
        yield "", row.fields


def laws() -> Iterator[tuple[str, Callable[[], bool], tuple[Guard, ...]]]:
    """Each law about what is rendered or happens, with its name and the guards of which it needs every one."""
    for name, row in PITFALLS.items():
        if isinstance(row, Impossible):
            guards = () if isinstance(row.guards, Unwritten) else row.guards
            yield from (
                (name + at, functools.partial(_is_rendered, row, fields), guards) for at, fields in job_files(row)
            )
        elif isinstance(row, Prevented):
            yield from ((name + at, functools.partial(row.holds, fields), row.guards) for at, fields in job_files(row))


def _is_rendered(row: Impossible, fields: Fields) -> bool:
    return row.holds(jobs.objects(jobs.job(**fields)))


UNWRITTEN: Final = [
    name for name, row in PITFALLS.items() if isinstance(row, Impossible) and isinstance(row.guards, Unwritten)
]
LAWS: Final = [pytest.param(holds, guards, id=name) for name, holds, guards in laws()]


@pytest.mark.parametrize("pitfall", of_kind[Refused])
def test_is_refused(pitfall: str) -> None:
    """Nothing is rendered, and the path leads to the cause."""
    row = PITFALLS[pitfall]
    assert isinstance(row, Refused)

    with pytest.raises(ConfigError) as caught:
        jobs.job(**row.fields)

    assert row.path in {fault.path for fault in caught.value.faults}


@pytest.mark.parametrize("pitfall", of_kind[Warned])
def test_is_warned_about(pitfall: str) -> None:
    """It is rendered as asked, with a warning that leads to the cause."""
    row = PITFALLS[pitfall]
    assert isinstance(row, Warned)

    assert row.path in {warning.path for warning in warnings(jobs.job(**row.fields))}


@pytest.mark.parametrize(("holds", "guards"), LAWS)
def test_cannot_happen(holds: Callable[[], bool], guards: tuple[Guard, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """The law holds, and without any one of its guards it does not."""
    assert holds()
    for guard in guards:
        with monkeypatch.context() as without:
            remove(guard, without)
            assert not holds(), guard


@pytest.mark.parametrize("pitfall", UNWRITTEN)
def test_what_nothing_writes_would_be_seen(pitfall: str) -> None:
    """No code holds these laws, so the fault is put into the objects."""
    row = PITFALLS[pitfall]
    assert isinstance(row, Impossible)
    assert isinstance(row.guards, Unwritten)

    for _, fields in job_files(row):
        objects = json.loads(json.dumps(jobs.objects(jobs.job(**fields))))
        row.guards.put(objects)
        assert not row.holds(objects)


@pytest.mark.parametrize("pitfall", [name for kind in (Refused, Warned) for name in of_kind[kind]])
def test_each_row_fails_without_its_guard(pitfall: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without one rule, one type or one group of warnings nothing is said of the cause."""
    row = PITFALLS[pitfall]
    if isinstance(row, Refused) and row.by_type is not None:
        part, field = row.by_type
        given: Any = {"image": jobs.IMAGE, "script": "s", **row.fields}
        for key in row.path.split(".")[:-1]:
            given = given[key]
        fields: dict[str, Any] = {field: (Any, ...)}
        untyped = pydantic.create_model(part.__name__, __base__=part, **fields)
        with pytest.raises(pydantic.ValidationError):
            part.model_validate(given)
        untyped.model_validate(given)
    else:
        assert isinstance(row, Refused | Warned)
        module, name, found = GUARDS[type(row)]
        assert any(row.path not in found(row.fields) for _ in without_each(monkeypatch, module, name))


def without_each(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str) -> Iterator[None]:
    """Take each rule of a module's tuple away in turn."""
    every = getattr(module, name)
    for guard in every:
        monkeypatch.setattr(module, name, tuple(each for each in every if each is not guard))
        yield


def faults_of(fields: Fields) -> set[str]:
    """Paths at which the config is refused."""
    try:
        jobs.job(**fields)
    except ConfigError as error:
        return {fault.path for fault in error.faults}
    return set()


def warnings_of(fields: Fields) -> set[str]:
    """Paths of the config's warnings."""
    return {warning.path for warning in warnings(jobs.job(**fields))}


GUARDS: Final[Mapping[type, tuple[ModuleType, str, Callable[[Fields], set[str]]]]] = {
    Refused: (rules, "_RULES", faults_of),
    Warned: (sys.modules["elastic_infra.config.warnings"], "_GROUPS", warnings_of),
}
"""Where the guards of a kind of row are, and what they find."""


@pytest.mark.parametrize("place", sorted({place for row in PITFALLS.values() for place in getattr(row, "tests", ())}))
def test_what_is_tested_elsewhere_is_tested_there(place: str) -> None:
    """A test that is renamed or removed does not leave a pitfall without one."""
    file, _, test = place.partition("::")

    assert re.search(rf"^def {test}\(", (ROOT / file).read_text(), re.MULTILINE), f"{file} has no {test}"
