"""The command `check` without a cluster: what its answers mean. The answers of real clusters are in `tests/cluster`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from elastic_infra import JobConfig, render
from elastic_infra.cli import check
from elastic_infra.cli.kubectl import Answer
from tests import kubernetes_schema
from tests.cli import elastic_infra

JOB = {
    "image": "i",
    "script": "s.py",
    "namespace": "team",
    "elastic": {"nnodes": "1:3"},
    "resources": {"cpu": "1"},
    "autoscaling": {"metrics": [{"type": "cpu", "target": 80}]},
}


def schema(*fields: str, kind: str = "PyTorchJob") -> Answer:
    """A server's description of one kind."""
    described = {
        "x-kubernetes-group-version-kind": [{"group": "kubeflow.org", "kind": kind, "version": "v1"}],
        "properties": {"spec": {"properties": {name: {} for name in fields}}},
    }
    return Answer(0, json.dumps({"components": {"schemas": {"any": described}}}), "")


def trainers_schema(version: str) -> Answer:
    """The description of a TrainJob: before 2.2 without patches, before 2.3 without one field of theirs."""
    *path, last = check.SINCE_2_3.split(".")
    fields: dict[str, Any] = {last: {}} if version >= "2.3" else {}
    for name in reversed(path) if version >= "2.2" else ():
        inner = {"type": "object", "properties": fields}
        fields = {name: {"type": "array", "items": inner} if name in {"runtimePatches", "replicatedJobs"} else inner}
    described = {
        "x-kubernetes-group-version-kind": [
            {"group": "trainer.kubeflow.org", "kind": "TrainJob", "version": "v1alpha1"}
        ],
        "properties": {"spec": {"properties": {"runtimeRef": {}, **fields}}},
    }
    return Answer(0, json.dumps({"components": {"schemas": {"any": described}}}), "")


def asked(job: Mapping[str, Any] = JOB, /, **answers: Answer) -> list[str]:
    """What `check` says of a cluster that can run the job but for these answers, by kubectl's verb or path."""
    config = JobConfig.from_mapping(job)

    def ask(*arguments: str) -> Answer:
        usual = {
            "auth": Answer(0, "yes\n", ""),
            check.SCHEMA: schema(check.SINCE_1_7),
            check.TRAINER: trainers_schema("2.3"),
        }
        key = arguments[2] if arguments[:2] == ("get", "--raw") else " ".join(arguments[: 1 + (arguments[0] == "get")])
        return {**usual, **answers}.get(key, Answer(0, "{}", ""))

    return list(check.obstacles(ask, [manifest for _, manifest in render("train", config).objects()], config))


def test_nothing_is_said_of_a_cluster_that_can_run_the_job() -> None:
    """No obstacle, no line."""
    assert asked() == []


@pytest.mark.parametrize(
    ("said", "start"),
    [
        ("E1 attempt\nThe connection to the server x was refused", "The cluster cannot be reached: The connection"),
        ("error: You must be logged in to the server (Unauthorized)", "The cluster does not know this account"),
        ("", "The cluster cannot be reached: kubectl said nothing"),
    ],
)
def test_a_server_that_does_not_answer_is_asked_nothing_more(said: str, start: str) -> None:
    """One line; a wrong login is told from a cluster out of reach."""
    faults = asked(version=Answer(1, "", said), auth=Answer(1, "no\n", ""))

    assert [fault.startswith(start) for fault in faults] == [True]


@pytest.mark.parametrize(
    ("answer", "start"),
    [
        (Answer(1, "", "Error from server (NotFound)"), "The cluster has no PyTorchJob"),
        (schema("any", kind="MPIJob"), "The cluster has no PyTorchJob"),
        (schema("elasticPolicy"), "The cluster's training operator is older than 1.7"),
    ],
)
def test_a_missing_operator_is_told_from_an_old_one(answer: Answer, start: str) -> None:
    """By the definition of PyTorchJob alone, which every account may read."""
    assert [fault.startswith(start) for fault in asked(**{check.SCHEMA: answer})] == [True]


@pytest.mark.parametrize(("version", "is_refused"), [("v1.30.9", True), ("v1.31.0-eks-1", False), ("v2.0.0", False)])
def test_an_indexed_job_needs_a_kubernetes_that_can_resize_it(version: str, is_refused: bool) -> None:  # noqa: FBT001 - a case
    """The server's own version says it; a PyTorchJob does not ask."""
    answer = Answer(0, json.dumps({"serverVersion": {"gitVersion": version}}), "")
    fields = {key: value for key, value in JOB.items() if key != "autoscaling"}

    assert asked(version=answer) == []
    assert [fault[:30] for fault in asked({**fields, "target": "job"}, version=answer)] == (
        ["The cluster runs Kubernetes 1."] if is_refused else []
    )


def test_the_targets_that_a_cluster_can_run_are_suggested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line each, with the reason against it; the file is not changed, and its own target decides nothing."""
    kubectl = tmp_path / "kubectl"
    kubectl.write_text('#!/bin/sh\ncase $1 in version) echo "{}";; auth) echo yes;; *) echo none >&2; exit 1;; esac\n')
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    file = tmp_path / "train.json"
    told = []
    for fields in ({}, {"autoscaling": None}):
        file.write_text(json.dumps({**JOB, **fields}))
        told.append(elastic_infra("check", file, "--suggest"))

    assert [result.code for result in told] == [1, 0]
    assert [line[:20] for line in told[0].out.splitlines()] == [
        "pytorchjob: no: The ",
        "job: no: autoscaling",
        "trainjob: no: autosc",
    ]
    assert [line[:30] for line in told[1].out.splitlines()[1:]] == ["job: yes", "trainjob: no: The cluster has "]


@pytest.mark.parametrize(
    ("missing", "named"),
    [((), []), ((check.JOB_SET,), ["JobSet"]), ((check.TRAINER, check.JOB_SET), ["TrainJob", "JobSet"])],
)
def test_a_train_job_needs_trainer_and_job_set(missing: tuple[str, ...], named: list[str]) -> None:
    """By their definitions alone; a PyTorchJob does not ask."""
    answers = dict.fromkeys(missing, Answer(1, "", "Error from server (NotFound)"))
    fields = {key: value for key, value in JOB.items() if key != "autoscaling"}
    found = asked({**fields, "target": "trainjob"}, **answers)

    assert [fault.split()[4] for fault in found] == named
    assert asked(**answers) == []


@pytest.mark.parametrize(("version", "is_refused"), [("2.0", True), ("2.2", True), ("2.3", False)])
def test_a_train_job_needs_a_new_trainer(version: str, is_refused: bool) -> None:  # noqa: FBT001 - a case
    """All versions of Trainer 2 have one API version: a field of 2.3 tells them apart, here and with --suggest."""
    fields = {key: value for key, value in JOB.items() if key != "autoscaling"}
    found = asked({**fields, "target": "trainjob"}, **{check.TRAINER: trainers_schema(version)})

    assert [fault[:52] for fault in found] == (
        ["The cluster's Kubeflow Trainer is older than 2.3: it"] if is_refused else []
    )


def test_the_field_is_in_the_definition_of_trainer() -> None:
    """The field by which versions are told apart is in the version that the tests run on."""
    try:
        described = dict(kubernetes_schema.json_schema("trainer.kubeflow.org/v1alpha1", "TrainJob"))
    except kubernetes_schema.SchemasMissing as error:
        pytest.skip(str(error))
    described["x-kubernetes-group-version-kind"] = [{"kind": "TrainJob"}]
    answer = Answer(0, json.dumps({"components": {"schemas": {"any": described}}}), "")
    fields = {key: value for key, value in JOB.items() if key != "autoscaling"}

    assert asked({**fields, "target": "trainjob"}, **{check.TRAINER: answer}) == []


ELASTIC_JOB_SET = {
    **{key: value for key, value in JOB.items() if key != "autoscaling"},
    "target": "trainjob",
    "elastic": {"nnodes": "1:3", "elastic_job_set": True},
}


@pytest.mark.parametrize(
    ("settings", "is_on"),
    [
        ("featureGates: {ElasticJobSet: true}", True),
        ("featureGates: {ElasticJobSet: false}", False),
        ("featureGates: {AllAlpha: true}", True),
        ("featureGates: {AllAlpha: true, ElasticJobSet: false}", False),
        ("apiVersion: config.jobset.x-k8s.io/v1alpha1", False),
        ("# nothing", False),
        ("a: [", None),
        (None, None),
    ],
)
def test_job_set_s_own_settings_say_whether_a_size_can_move(settings: str | None, is_on: bool | None) -> None:  # noqa: FBT001 - a case
    """Only a gate that is seen to be off is in the way; a job whose size stays does not ask."""
    missing = Answer(1, "", "Error from server (Forbidden)")
    answer = missing if settings is None else Answer(0, json.dumps({"data": {check.JOB_SET_FILE: settings}}), "")
    found = asked(ELASTIC_JOB_SET, **{"get configmap": answer})

    assert check.elastic_job_set(lambda *_: answer) is is_on
    assert [fault.split(", ")[0] for fault in found] == (
        ["JobSet's feature gate ElasticJobSet is off"] if is_on is False else []
    )
    assert asked({**ELASTIC_JOB_SET, "elastic": JOB["elastic"]}, **{"get configmap": answer}) == []


@pytest.mark.parametrize(
    ("settings", "code", "suggested"),
    [
        ("featureGates: {ElasticJobSet: true}", 0, "on: elastic.elastic_job_set moves the size)"),
        ("featureGates: {}", 1, "off)"),
        ("", 0, "cannot see whether JobSet's feature gate ElasticJobSet is on)"),
    ],
)
def test_the_gate_is_told_with_and_without_suggest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: str, code: int, suggested: str
) -> None:
    """A job whose size moves is told whether it will; one whose size stays, whether it could."""
    shown = json.dumps({"data": {check.JOB_SET_FILE: settings}})
    kubectl = tmp_path / "kubectl"
    told = f"echo '{shown}'" if settings else "exit 1"
    (tmp_path / "trainer").write_text(trainers_schema("2.3").out)
    kubectl.write_text(
        f'#!/bin/sh\ncase "$1 $2" in "get configmap") {told}; exit;; esac\n'
        f'case "$3" in {check.TRAINER}) cat {tmp_path}/trainer;; *) echo "{{}}";; esac\n'
    )
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    moves, stays = tmp_path / "moves.json", tmp_path / "stays.json"
    moves.write_text(json.dumps(ELASTIC_JOB_SET))
    stays.write_text(json.dumps({**ELASTIC_JOB_SET, "elastic": JOB["elastic"]}))
    checked, asked_for = elastic_infra("check", moves), elastic_infra("check", stays, "--suggest")

    assert checked.code == code, checked.err
    assert "JobSet's feature gate ElasticJobSet is" in checked.err
    assert asked_for.out.splitlines()[2].startswith("trainjob: yes (")
    assert asked_for.out.splitlines()[2].endswith(suggested)


def test_a_queue_and_a_gang_need_their_controllers() -> None:
    """Kueue by its definitions, the queue by its object, the scheduler of a gang by its definition."""
    placement = {"queue": "gpus", "gang": {"scheduler": "coscheduling"}}
    fields = {key: value for key, value in JOB.items() if key != "autoscaling"} | {"placement": placement}
    missing = Answer(1, "", "Error from server (NotFound)")

    assert asked(fields) == []
    assert [fault[:24] for fault in asked(fields, **{check.KUEUE: missing})] == ["The cluster has no Kueue"]
    assert [fault[:33] for fault in asked(fields, **{"get localqueues.kueue.x-k8s.io": missing})] == [
        "The namespace team has no queue g"
    ]
    assert [fault[:27] for fault in asked(fields, **{"/apis/scheduling.x-k8s.io/v1alpha1": missing})] == [
        "The cluster has no PodGroup"
    ]


def test_an_account_that_may_not_look_is_no_missing_namespace() -> None:
    """Only the server's word for it counts."""
    assert asked(**{"get namespace": Answer(1, "", "Error from server (Forbidden): namespaces is forbidden")}) == []


def test_an_autoscaler_by_cpu_needs_figures() -> None:
    """Without the metrics API it would never scale."""
    assert "Install metrics-server" in asked(**{check.RESOURCE_METRICS: Answer(1, "", "NotFound")})[0]


def test_every_kind_is_asked_for_once_with_its_group() -> None:
    """As kubectl takes it, for creation, change and deletion."""
    objects = [manifest for _, manifest in render("train", JobConfig.from_mapping(JOB)).objects()]
    kinds = [
        "configmap",
        "service",
        "secret",
        "deployment.apps",
        "pytorchjob.kubeflow.org",
        "horizontalpodautoscaler.autoscaling",
        "networkpolicy.networking.k8s.io",
    ]

    assert sorted(check.actions(objects)) == sorted((verb, kind) for kind in kinds for verb in check.VERBS)


def test_what_a_job_gives_its_driver_is_asked_for_as_well() -> None:
    """Kubernetes refuses a Role with rights that its maker does not have."""
    job = {**JOB, "autoscaling": {"policy": "capacity"}}
    configs = {target: JobConfig.from_mapping({**job, "target": target}) for target in ("pytorchjob", "job")}
    given = {
        target: list(check.grants([manifest for _, manifest in render("train", config).objects()]))
        for target, config in configs.items()
    }
    lists = [("list", "pods"), ("list", "poddisruptionbudgets.policy")]

    assert given == {
        "pytorchjob": [
            ("get", "pytorchjobs.kubeflow.org"),
            ("patch", "pytorchjobs.kubeflow.org", "--subresource=scale"),
            *lists,
        ],
        "job": [("get", "jobs.batch"), ("patch", "jobs.batch"), *lists],
    }
    assert "patch pytorchjobs.kubeflow.org --subresource=scale" in asked(job, auth=Answer(1, "no\n", ""))[0]


def test_bad_input_and_a_missing_kubectl_are_no_fault_of_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 2, and the reason."""
    file = tmp_path / "train.json"
    file.write_text("{}")
    bad = elastic_infra("check", file)
    file.write_text(json.dumps(JOB))
    monkeypatch.setenv("PATH", str(tmp_path))
    without = elastic_infra("check", file)

    assert (bad.code, without.code) == (2, 2)
    assert "image" in bad.err
    assert without.err == "kubectl is not on PATH, and the cluster is asked through it. Install it.\n"
