"""Every way known to us in which a job goes wrong by its config, and what becomes of it here.

One row a pitfall: it is refused with a path, warned about with a path, or no config can cause it, which a look at the
objects shows. Evidence is the operator's code at v1.9.4 or an issue of kubeflow/trainer unless named otherwise.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any, Final

import pydantic
import pytest

from elastic_infra.config import ConfigError, JobConfig, rules, warnings
from elastic_infra.config.base import Part
from elastic_infra.config.elastic import Elastic, RdzvConfigs
from elastic_infra.config.run_policy import RunPolicy
from tests import jobs
from tools.run import ROOT

Fields = dict[str, Any]
Objects = dict[str, Any]

RANGE: Final[Fields] = {"elastic": {"nnodes": "2:4"}}
INDEXED: Final[Fields] = {**RANGE, "target": "job"}
TRAIN_JOB: Final[Fields] = {**RANGE, "target": "trainjob"}
PODS: Final = {"metrics": [{"type": "pods", "name": "q", "target": 1}]}
GANG: Final[Fields] = {"run_policy": {"scheduling_policy": {"queue": "q"}}}


WORKER: Final = "/workload/spec/pytorchReplicaSpecs/Worker"
POD: Final = f"{WORKER}/template"
TRAIN_JOBS_JOB: Final = "/runtime/spec/template/spec/replicatedJobs/0/template/spec"


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
class Impossible:
    """What is rendered cannot have the fault.

    Attributes:
        fault: the fault as it would be in the objects: the place, a JSON Pointer (RFC 6901), and the value there.
    """

    fields: Fields
    holds: Callable[[Objects], bool]
    fault: tuple[str, Any]


def _spec(objects: Objects) -> Any:
    return objects["workload"]["spec"]


def _train_jobs_job(objects: Objects) -> Any:
    (only,) = objects["runtime"]["spec"]["template"]["spec"]["replicatedJobs"]
    return only["template"]["spec"]


def _pod(objects: Objects) -> Any:
    return _spec(objects)["pytorchReplicaSpecs"]["Worker"]["template"]


def _variable(objects: Objects, name: str) -> str:
    entries = {entry["name"]: entry.get("value", "") for entry in _pod(objects)["spec"]["containers"][0]["env"]}
    return str(entries.get(name, ""))


def _tolerates(objects: Objects, taint: str) -> bool:
    tolerations = _pod(objects)["spec"]["tolerations"]
    return any(t.get("key") == taint and t.get("tolerationSeconds") == 60 for t in tolerations)


PITFALLS: Final[dict[str, Refused | Warned | Impossible]] = {
    "two autoscalers on one job (kubernetes#122059)": Impossible(
        {**RANGE, "autoscaling": PODS},
        lambda objects: "autoscaler" in objects and "metrics" not in _spec(objects)["elasticPolicy"],
        ("/workload/spec/elasticPolicy/metrics", []),
    ),
    "two autoscalers when the operator has one": Impossible(
        {**RANGE, "autoscaling": {**PODS, "owner": "operator"}},
        lambda objects: "autoscaler" not in objects and "metrics" in _spec(objects)["elasticPolicy"],
        ("/autoscaler", {}),
    ),
    "an autoscaler named like the job, which the operator takes over": Impossible(
        {**RANGE, "autoscaling": PODS},
        lambda objects: objects["autoscaler"]["metadata"]["name"] == "job-hpa",
        ("/autoscaler/metadata/name", "job"),
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
        lambda objects: objects["autoscaler"]["spec"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"] >= 600,
        ("/autoscaler/spec/behavior/scaleDown/stabilizationWindowSeconds", 300),
    ),
    "GET /scale fails without explicit replicas": Impossible(
        RANGE,
        lambda objects: _spec(objects)["pytorchReplicaSpecs"]["Worker"]["replicas"] == 4,
        (f"{WORKER}/replicas", None),
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
        lambda objects: "store" in objects and _spec(objects)["elasticPolicy"]["rdzvHost"] == "job-rdzv",
        ("/workload/spec/elasticPolicy/rdzvHost", "job-worker-0"),
    ),
    "a closed run in etcd (#1638)": Warned(
        {"elastic": {"nnodes": 2, "rdzv_backend": "etcd", "rdzv_endpoint": "etcd:1"}}, "elastic.rdzv_backend"
    ),
    "one lost node eats the whole backoff limit": Impossible(
        RANGE,
        lambda objects: _spec(objects)["runPolicy"]["backoffLimit"] == 12,
        ("/workload/spec/runPolicy/backoffLimit", 3),
    ),
    "a backoff limit below the number of nodes": Warned(
        {**RANGE, "run_policy": {"restart_policy": "OnFailure", "backoff_limit": 3}}, "run_policy.backoff_limit"
    ),
    "ExitCode with plain torchrun never retries": Impossible(
        {**RANGE, "run_policy": {"restart_policy": "ExitCode"}},
        lambda objects: "launcher" in _pod(objects)["spec"]["containers"][0]["command"][-1],
        (f"{POD}/spec/containers/0/command", ["torchrun"]),
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
        lambda objects: _spec(objects)["pytorchReplicaSpecs"]["Worker"]["restartPolicy"] == "OnFailure",
        (f"{WORKER}/restartPolicy", "ExitCode"),
    ),
    "a deadline passes unseen (#3358)": Warned(
        {**RANGE, "run_policy": {"active_deadline_seconds": 60}}, "run_policy.active_deadline_seconds"
    ),
    "a ttl deletes the job, and the next refresh and up train again": Warned(
        {**RANGE, "run_policy": {"ttl_seconds_after_finished": 60}}, "run_policy.ttl_seconds_after_finished"
    ),
    "a finished job keeps GPU pods running (#1504, #1751)": Impossible(
        RANGE,
        lambda objects: _spec(objects)["runPolicy"]["cleanPodPolicy"] == "Running",
        ("/workload/spec/runPolicy/cleanPodPolicy", "None"),
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
        RANGE,
        lambda objects: (
            _variable(objects, "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC") == "300"
            and _variable(objects, "TORCH_NCCL_ASYNC_ERROR_HANDLING") == "3"
        ),
        (f"{POD}/spec/containers/0/env", []),
    ),
    "standalone crashes torchrun": Impossible(
        {"target": "pytorchjob"},
        lambda objects: "standalone" not in _spec(objects)["elasticPolicy"],
        ("/workload/spec/elasticPolicy/standalone", True),
    ),
    "standalone with a range": Impossible(
        INDEXED,
        lambda objects: (
            "--standalone" not in _spec(objects)["template"]["spec"]["containers"][0]["args"] and "store" in objects
        ),
        ("/workload/spec/template/spec/containers/0/args/0", "--standalone"),
    ),
    "an empty rdzvConf panics the operator": Impossible(
        {"target": "pytorchjob"},
        lambda objects: len(_spec(objects)["elasticPolicy"]["rdzvConf"]) >= 3,
        ("/workload/spec/elasticPolicy/rdzvConf", []),
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
        lambda objects: _spec(objects)["nprocPerNode"] == "1" and "nProcPerNode" not in _spec(objects)["elasticPolicy"],
        ("/workload/spec/nprocPerNode", "auto"),
    ),
    "an init container from another registry (#1696)": Impossible(
        RANGE,
        lambda objects: list(_spec(objects)["pytorchReplicaSpecs"]) == ["Worker"],
        ("/workload/spec/pytorchReplicaSpecs/Master", {}),
    ),
    "a Service that the operator counts as its own": Impossible(
        RANGE,
        lambda objects: (
            objects["service"]["metadata"]["name"] == "job-rdzv"
            and "training.kubeflow.org" not in json.dumps(objects["service"]["metadata"])
        ),
        ("/service/metadata/labels/training.kubeflow.org~1job-name", "job"),
    ),
    "the operator's labels given by the user": Refused(
        {**RANGE, "labels": {"training.kubeflow.org/job-name": "x"}}, "labels.training.kubeflow.org/job-name"
    ),
    "a Service's name as host, which no node is sure to be": Impossible(
        RANGE,
        lambda objects: {"key": "is_host", "value": "false"} in _spec(objects)["elasticPolicy"]["rdzvConf"],
        ("/workload/spec/elasticPolicy/rdzvConf", [{"key": "is_host", "value": "true"}]),
    ),
    "worker 0 as host under a name that is not its own": Impossible(
        {"elastic": {"nnodes": 2}},
        lambda objects: "rdzvHost" not in _spec(objects)["elasticPolicy"],
        ("/workload/spec/elasticPolicy/rdzvHost", "job-rdzv"),
    ),
    "readiness that waits for training, and training for names": Refused(
        {**RANGE, "readiness_probe": {"httpGet": {"port": 1}}}, "readiness_probe", (JobConfig, "readiness_probe")
    ),
    "names that appear only when ready": Impossible(
        RANGE,
        lambda objects: (
            objects["service"]["spec"]["publishNotReadyAddresses"] is True
            and "readinessProbe" not in json.dumps(_pod(objects))
        ),
        ("/service/spec/publishNotReadyAddresses", False),
    ),
    "an Istio sidecar blocks the rendezvous (#1637)": Impossible(
        RANGE,
        lambda objects: (
            _pod(objects)["metadata"]["annotations"]["sidecar.istio.io/inject"]
            == objects["store"]["spec"]["template"]["metadata"]["annotations"]["sidecar.istio.io/inject"]
            == "false"
        ),
        (f"{POD}/metadata/annotations/sidecar.istio.io~1inject", "true"),
    ),
    "an unnamed second port": Impossible(
        {**RANGE, "launcher": {"metrics_port": 9000}},
        lambda objects: all(port.get("name") for port in _pod(objects)["spec"]["containers"][0]["ports"]),
        (f"{POD}/spec/containers/0/ports/1/name", None),
    ),
    "one port for two servers": Refused({**RANGE, "launcher": {"metrics_port": 29400}}, "launcher.metrics_port"),
    "a run that meets the run before it": Impossible(
        RANGE,
        lambda objects: _spec(objects)["elasticPolicy"]["rdzvId"].startswith("job-"),
        ("/workload/spec/elasticPolicy/rdzvId", "train"),
    ),
    "deletion returns before the pods are gone": Impossible(
        RANGE,
        lambda objects: (
            objects["workload"]["metadata"]["annotations"]["pulumi.com/deletionPropagationPolicy"] == "foreground"
        ),
        ("/workload/metadata/annotations/pulumi.com~1deletionPropagationPolicy", "background"),
    ),
    "a gang that grows with the job (#1571)": Impossible(
        {**RANGE, **GANG},
        lambda objects: _spec(objects)["runPolicy"]["schedulingPolicy"]["minAvailable"] == 2,
        ("/workload/spec/runPolicy/schedulingPolicy/minAvailable", 4),
    ),
    "a gang that can never be complete": Refused(
        {**RANGE, "run_policy": {"scheduling_policy": {"min_available": 5}}},
        "run_policy.scheduling_policy.min_available",
    ),
    "a pod on a lost cluster node for five minutes (#2072)": Impossible(
        RANGE,
        lambda objects: (
            _tolerates(objects, "node.kubernetes.io/not-ready")
            and _tolerates(objects, "node.kubernetes.io/unreachable")
        ),
        (f"{POD}/spec/tolerations", []),
    ),
    "a variable that the operator sets as well": Refused({**RANGE, "env": {"PET_NNODES": "9"}}, "env.PET_NNODES"),
    "a variable that torch sets as well": Refused({**RANGE, "env": {"WORLD_SIZE": "9"}}, "env.WORLD_SIZE"),
    "PYTHONUNBUFFERED, which the operator appends": Warned(
        {**RANGE, "env": {"PYTHONUNBUFFERED": "0"}}, "env.PYTHONUNBUFFERED"
    ),
    "variables of every Service of the namespace": Impossible(
        RANGE,
        lambda objects: _pod(objects)["spec"]["enableServiceLinks"] is False,
        (f"{POD}/spec/enableServiceLinks", True),
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
        lambda objects: (
            _spec(objects)["podFailurePolicy"]["rules"][1]["action"] == "FailJob"
            and _spec(objects)["podFailurePolicy"]["rules"][1]["onExitCodes"]["values"] == [1, 2, 93]
        ),
        ("/workload/spec/podFailurePolicy/rules/1/action", "Count"),
    ),
    "a preempted pod of an Indexed Job counts as a failure": Impossible(
        INDEXED,
        lambda objects: _spec(objects)["podFailurePolicy"]["rules"][0]["action"] == "Ignore",
        ("/workload/spec/podFailurePolicy/rules/0/action", "Count"),
    ),
    "one index's failures delay the pods of all": Impossible(
        INDEXED,
        lambda objects: _spec(objects)["backoffLimitPerIndex"] == 2**31 - 1,
        ("/workload/spec/backoffLimitPerIndex", None),
    ),
    "an Indexed Job trains again with its last node when the others have succeeded": Impossible(
        INDEXED,
        lambda objects: _spec(objects)["successPolicy"] == {"rules": [{"succeededCount": 1}]},
        ("/workload/spec/successPolicy", None),
    ),
    "an Indexed Job refuses another size": Impossible(
        INDEXED,
        lambda objects: _spec(objects)["completions"] == _spec(objects)["parallelism"] == 4,
        ("/workload/spec/completions", 2),
    ),
    "a subdomain without the Service of its name, which resolves nothing": Impossible(
        INDEXED,
        lambda objects: "subdomain" not in _spec(objects)["template"]["spec"],
        ("/workload/spec/template/spec/subdomain", "job"),
    ),
    "an autoscaler of a kind without a scale subresource": Refused({**INDEXED, "autoscaling": PODS}, "autoscaling"),
    "torchrun's exit code 1 fails an Indexed Job": Refused(
        {"target": "job", "elastic": {"nnodes": 2, "rdzv_backend": "etcd", "rdzv_endpoint": "etcd:1"}},
        "elastic.rdzv_backend",
    ),
    "Trainer's torch plugin says its own number of nodes to the launcher": Impossible(
        TRAIN_JOB,
        lambda objects: set(objects["runtime"]["spec"]["mlPolicy"]) == {"numNodes"},
        ("/runtime/spec/mlPolicy/torch", {}),
    ),
    "a TrainJob trains with what a changed runtime has become": Impossible(
        TRAIN_JOB,
        lambda objects: (
            _spec(objects)["runtimeRef"]["name"] == objects["runtime"]["metadata"]["name"]
            and _spec(objects)["runtimeRef"]["kind"] == "TrainingRuntime"
        ),
        ("/workload/spec/runtimeRef/name", "torch-distributed"),
    ),
    "a TrainJob trains again with a late pod when the others have succeeded": Impossible(
        TRAIN_JOB,
        lambda objects: _train_jobs_job(objects)["successPolicy"] == {"rules": [{"succeededCount": 1}]},
        (f"{TRAIN_JOBS_JOB}/successPolicy", None),
    ),
    "a TrainJob retries a script that cannot run": Impossible(
        TRAIN_JOB,
        lambda objects: (
            _train_jobs_job(objects)["podFailurePolicy"]["rules"][1]["onExitCodes"]
            == {"containerName": "node", "operator": "In", "values": [1, 2, 93]}
        ),
        (f"{TRAIN_JOBS_JOB}/podFailurePolicy/rules/1/onExitCodes/containerName", "pytorch"),
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
}

of_kind = {
    kind: [name for name, row in PITFALLS.items() if isinstance(row, kind)] for kind in (Refused, Warned, Impossible)
}


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


@pytest.mark.parametrize("pitfall", of_kind[Impossible])
def test_cannot_happen(pitfall: str) -> None:
    """What is rendered does not have the fault."""
    row = PITFALLS[pitfall]
    assert isinstance(row, Impossible)

    assert row.holds(jobs.objects(jobs.job(**row.fields)))


@pytest.mark.parametrize("pitfall", PITFALLS)
def test_each_row_fails_without_its_guard(pitfall: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without one rule, one type or one group of warnings, or with the fault in the objects, the row does not hold."""
    row = PITFALLS[pitfall]
    if isinstance(row, Impossible):
        assert not row.holds(with_fault(jobs.objects(jobs.job(**row.fields)), *row.fault))
    elif isinstance(row, Refused) and row.by_type is not None:
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
        module, name, found = GUARDS[type(row)]
        assert any(row.path not in found(row.fields) for _ in without_each(monkeypatch, module, name))


def with_fault(objects: Objects, pointer: str, value: Any) -> Objects:
    """The objects with one value put in, where there may be none yet."""
    changed: Any = json.loads(json.dumps(objects))
    *parents, last = (key.replace("~1", "/") for key in pointer.removeprefix("/").split("/"))
    place = functools.reduce(lambda each, key: each[int(key) if isinstance(each, list) else key], parents, changed)
    place[int(last) if isinstance(place, list) else last] = value
    return dict(changed)


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


ELSEWHERE: Final = {
    "an autoscaler never scales a job of an operator before 1.7 (#1645, #1626)": (
        "tests/test_check.py::test_a_missing_operator_is_told_from_an_old_one",
        "tests/cluster/test_requirements.py::test_the_scale_subresource_selects_the_nodes",
    ),
    "`pulumi up` resets the number of nodes that an autoscaler has set": (
        "tests/manifests/test_updates.py::test_what_others_own_is_left_to_them",
        "tests/cluster/test_requirements.py::test_a_size_set_by_others_stays",
    ),
    "Pulumi takes back what Kueue writes into the job": (
        "tests/manifests/test_updates.py::test_what_others_own_is_left_to_them",
        "tests/cluster/test_kueue.py::test_every_workload_object_waits_gives_way_and_comes_back",
    ),
    "a late pod joins after the others have finished, and restarts for ever (#1751)": (
        "tests/launcher/protocol/test_machine.py::test_late_joiner_leaves_with_the_jobs_code",
        "tests/cluster/test_requirements.py::test_the_first_node_to_finish_ends_the_job",
    ),
    "a node that only leaves ends the job as succeeded": (
        "tests/launcher/scenarios/test_membership.py::test_scale_down_by_sigterm",
    ),
    "a changed image or variable does nothing, or makes a mixed fleet": (
        "tests/manifests/test_updates.py::test_a_change_restarts_exactly_when_it_cannot_be_rolled_out",
        "tests/engine/test_updates.py::test_a_new_image_replaces_the_job_and_deletes_first",
    ),
    "a field that the API server drops in silence": (
        "tests/manifests/test_schema.py::test_every_valid_config_renders_to_what_the_schemas_allow",
        "tests/cluster/test_requirements.py::test_the_server_accepts_every_object_without_a_warning",
    ),
    "a variable that is there twice": (
        "tests/manifests/test_schema.py::test_every_valid_config_renders_to_what_the_schemas_allow",
    ),
    "a name whose pods or Services would be refused": (
        "tests/manifests/test_pitfalls.py::test_a_name_whose_pods_would_be_refused_is_refused",
    ),
}
"""Pitfalls whose guard is no single value or rule, and the tests that fail without it."""


@pytest.mark.parametrize("pitfall", ELSEWHERE)
def test_what_is_tested_elsewhere_is_tested_there(pitfall: str) -> None:
    """A test that is renamed or removed does not leave a pitfall without one."""
    for file, _, test in (place.partition("::") for place in ELSEWHERE[pitfall]):
        assert re.search(rf"^def {test}\(", (ROOT / file).read_text(), re.MULTILINE), f"{file} has no {test}"


def test_a_name_whose_pods_would_be_refused_is_refused() -> None:
    """The job would be accepted, its pods and Services not."""
    with pytest.raises(ConfigError, match=r"^name: .*-worker-3"):
        jobs.objects(jobs.elastic(), name="a" * 55)
