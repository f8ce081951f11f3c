"""The component's wiring, on Pulumi's mocks: what it registers, with which options, and what it gives back."""

from __future__ import annotations

import asyncio
import contextvars
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pulumi
import pytest
from pulumi.runtime import mocks
from pulumi.runtime._callbacks import _CallbackServicer
from pulumi.runtime.settings import SETTINGS, _get_rpc_manager
from pulumi.runtime.stack import run_pulumi_func

from elastic_infra import (
    ElasticLauncher,
    ElasticTrainingJob,
    ElasticTrainingJobArgs,
    JobConfig,
    component,
    guards,
    inputs,
)
from elastic_infra.manifests.launcher import digest, whole_digest

JOB: Final[ElasticTrainingJobArgs] = {
    "image": "registry.example.com/train:1",
    "script": "train.py",
    "elastic": {"nnodes": "2:4"},
    "resources": {"cpu": "2", "memory": "4Gi"},
}
EVERYTHING: Final[dict[str, Any]] = {
    **JOB,
    "autoscaling": {"metrics": [{"type": "cpu", "target": "80"}]},
    "disruption": {"pod_disruption_budget": True},
    "storage": {"checkpoint": {"size": "10Gi"}},
}


class Recorder(pulumi.runtime.Mocks):
    """Pulumi's mocks; keeps what a program registers, by name."""

    def __init__(self) -> None:
        self.made: dict[str, pulumi.runtime.MockResourceArgs] = {}

    def new_resource(self, args: pulumi.runtime.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        self.made[args.name] = args
        return args.name, dict(args.inputs)

    def call(self, args: pulumi.runtime.MockCallArgs) -> Any:
        """No program here calls a function."""
        raise AssertionError(args.token)


def run(program: Callable[[], Any]) -> Recorder:
    """Run a program to its end, in a loop and a context of its own: Pulumi binds Outputs to the loop they begin in."""
    recorder, loops = Recorder(), list[asyncio.AbstractEventLoop]()

    def with_loop() -> None:
        """Pulumi's mocks make a loop in each thread and close none."""
        loops.append(asyncio.new_event_loop())
        asyncio.set_event_loop(loops[-1])

    async def main() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(initializer=with_loop))
        mocks.set_mocks(recorder, project="team-a", stack="test", preview=False)
        SETTINGS.outputs.clear()  # a program that failed leaves its own behind, and their loop is closed
        _get_rpc_manager().clear()
        await run_pulumi_func(program)

    try:
        contextvars.copy_context().run(asyncio.run, main())
    finally:
        _CallbackServicer._servicers.clear()  # Pulumi forgets them only after a program that ended well
        for loop in loops:
            loop.close()
    return recorder


def registered(args: Any, name: str = "train") -> dict[str, tuple[str, dict[str, Any]]]:
    """Resource to type and inputs, of a program with one job."""
    recorder = run(lambda: ElasticTrainingJob(name, args))
    return {made.name: (made.typ, _without_token(made.inputs)) for made in recorder.made.values()}


def _without_token(made: Any) -> dict[str, Any]:
    """Every program makes a token of its own."""
    return {**made, "data": {"token": "..."}} if made.get("kind") == "Secret" else dict(made)


def test_every_object_is_one_child() -> None:
    """Each by the type under which the official provider knows it, and the records of what must not change."""
    types = {name: kind for name, (kind, _) in registered(EVERYTHING).items()}

    assert types == {
        "train": "elastic-infra:index:ElasticTrainingJob",
        "train-guard": "pulumi:index:Stash",
        "train-pin": "pulumi:index:Stash",
        "train-launcher": "kubernetes:core/v1:ConfigMap",
        "train-checkpoint": "kubernetes:core/v1:PersistentVolumeClaim",
        "train-network_policy": "kubernetes:networking.k8s.io/v1:NetworkPolicy",
        "train-service": "kubernetes:core/v1:Service",
        "train-token": "kubernetes:core/v1:Secret",
        "train-store": "kubernetes:apps/v1:Deployment",
        "train-workload": "kubernetes:kubeflow.org/v1:PyTorchJob",
        "train-autoscaler": "kubernetes:autoscaling/v2:HorizontalPodAutoscaler",
        "train-disruption_budget": "kubernetes:policy/v1:PodDisruptionBudget",
    }


def test_a_single_pod_is_as_few_resources_as_can_be() -> None:
    """Cost grows with resources: a component, a Job, its policy, its launcher and the record of which it is."""
    types = {name: kind for name, (kind, _) in registered({**JOB, "elastic": {}}).items()}

    assert types == {
        "train": "elastic-infra:index:ElasticTrainingJob",
        "train-launcher": "kubernetes:core/v1:ConfigMap",
        "train-network_policy": "kubernetes:networking.k8s.io/v1:NetworkPolicy",
        "train-pin": "pulumi:index:Stash",
        "train-workload": "kubernetes:batch/v1:Job",
    }


def test_a_job_makes_few_outputs_beside_its_properties() -> None:
    """Pulumi's SDK looks at every outstanding Output each time that one is done: hundreds of jobs have thousands."""
    outstanding: list[int] = []

    def program() -> None:
        before = len(SETTINGS.outputs)
        ElasticTrainingJob("train", {**JOB, "launcher": {"config_map": "team-launcher-0123456789-abcdef"}})
        outstanding.append(len(SETTINGS.outputs) - before)

    made = run(program).made.values()

    of_resources = sum(len({"urn", "id", *each.inputs}) for each in made)
    assert outstanding[0] - of_resources <= 5


@pytest.mark.parametrize(
    ("change", "is_pinned"),
    [
        ({"elastic": {"nnodes": "2:4"}}, True),
        ({"elastic": {"nnodes": "2:4", "initial_nodes": 2}}, False),
        ({"elastic": {"nnodes": 2}}, False),
        ({"elastic": {"nnodes": "2:4"}, "autoscaling": EVERYTHING["autoscaling"], "resources": {"cpu": "1"}}, False),
    ],
)
def test_only_a_size_that_people_set_is_watched_for_a_restart(change: dict[str, Any], is_pinned: bool) -> None:  # noqa: FBT001 - a case
    """Others cost no resource for it; the workload is registered in any case."""
    names = registered({**JOB, **change}).keys()

    assert "train-workload" in names
    assert ("train-size" in names) is is_pinned


def test_a_dict_and_a_config_mean_the_same() -> None:
    """However the config comes, the same is registered; only the store's token is drawn anew."""
    config = JobConfig.from_mapping(EVERYTHING)
    made = run(lambda: ElasticTrainingJob.from_config("train", config)).made.values()
    from_dict = registered(EVERYTHING)
    from_config = {each.name: (each.typ, dict(each.inputs)) for each in made}

    assert from_dict["train-token"][1].pop("data") != from_config["train-token"][1].pop("data")
    assert from_dict == from_config


@pytest.mark.parametrize(
    ("change", "ignored"),
    [
        ({"autoscaling": None}, ["spec.pytorchReplicaSpecs.Worker.replicas"]),
        ({"autoscaling": None, "elastic": {"nnodes": "2:4", "initial_nodes": 2}}, None),
        ({}, ["spec.pytorchReplicaSpecs.Worker.replicas"]),
        (
            {"autoscaling": {"owner": "operator", "metrics": [{"type": "cpu", "target": "80"}]}},
            ["spec.pytorchReplicaSpecs.Worker.replicas"],
        ),
        ({"autoscaling": None, "elastic": {}, "disruption": {}}, None),
    ],
)
def test_changes_of_others_are_ignored_only_where_there_are_others(
    change: dict[str, Any], ignored: list[str] | None
) -> None:
    """An autoscaler owns the number of nodes, whichever program made it, or people do unless the program says it."""
    options = component._own_options("train", "workload", JobConfig.from_mapping({**EVERYTHING, **change}), {}, {})

    assert options is not None
    assert options.ignore_changes == ignored
    assert options.delete_before_replace


def test_the_summary_is_plain_and_small() -> None:
    """The first lines of a preview, and what policies read."""
    _, summary = registered(JOB)["train"]
    digest = summary.pop("launcher")

    assert summary == {
        "name": "train",
        "image": "registry.example.com/train:1",
        "namespace": "default",
        "nnodes": "2:4",
        "nproc_per_node": 1,
        "gpus_per_node": 0,
        "workload": "PyTorchJob",
    }
    assert len(digest) == 8


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"elastic": {"nnodes": "2:4"}},
            {
                "job_name": "train",
                "namespace": "default",
                "min_nodes": 2,
                "max_nodes": 4,
                "rendezvous_endpoint": "train-rdzv.default.svc:29400",
                "scale_path": "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs/train/scale",
            },
        ),
        (
            {},
            {
                "job_name": "train",
                "namespace": "default",
                "min_nodes": 1,
                "max_nodes": 1,
                "rendezvous_endpoint": None,
                "scale_path": None,
            },
        ),
        (
            {"elastic": {"nnodes": 2}, "target": "job"},
            {"min_nodes": 2, "max_nodes": 2, "rendezvous_endpoint": "train-0.default.svc:29400", "scale_path": None},
        ),
    ],
)
def test_outputs_lead_to_the_job(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    """What a program needs to watch or scale the job."""
    found: dict[str, Any] = {}

    def program() -> None:
        made = ElasticTrainingJob.from_config("train", JobConfig.from_mapping({**JOB, "elastic": {}, **fields}))
        for output in expected:
            getattr(made, output).apply(lambda value, output=output: found.__setitem__(output, value))

    run(program)

    assert found == expected


def test_a_job_has_no_other_outputs() -> None:
    """Outputs are made when they are asked for, and a wrong name is an error that tells it."""

    def program() -> None:
        made = ElasticTrainingJob("train", {**JOB})
        assert not hasattr(made, "replicas")
        with pytest.raises(AttributeError, match="'ElasticTrainingJob' object has no attribute 'replicas'"):
            _ = made.replicas  # type: ignore[attr-defined]  # what a type checker finds at once

    run(program)


@pytest.mark.parametrize(("children", "prefix"), [("name", "ranking"), ("resource", "train")])
def test_a_name_of_its_own_reaches_every_object(children: str, prefix: str) -> None:
    """Objects are named after the config's name; resources as well, unless asked otherwise."""
    made = registered({**JOB, "name": "ranking", "children": children})

    assert made[f"{prefix}-workload"][1]["metadata"]["name"] == "ranking"
    assert made[f"{prefix}-service"][1]["metadata"]["name"] == "ranking-rdzv"


class Team(pulumi.ComponentResource):
    """A platform team's own component around jobs."""

    def __init__(self, name: str) -> None:
        super().__init__("acme:index:Team", name)


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [
        (("one", "llm", "name"), ("two", "llm", "name"), "llm"),
        (("llm", "other", "name"), ("two", "llm", "name"), "llm"),
        (("llm", None, "name"), ("two", "llm", "name"), "llm"),
        (("one", "llm", "name"), ("two", "llm", "resource"), None),
        (("llm", "other", "name"), ("two", "llm", "resource"), None),
        (("one", "a", "name"), ("two", "b", "name"), None),
    ],
)
@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("inside", [False, True])
def test_jobs_whose_children_share_a_name_are_told(
    first: tuple[str, str | None, str],
    second: tuple[str, str | None, str],
    shared: str | None,
    order: int,
    inside: bool,  # noqa: FBT001 - parametrized
) -> None:
    """Both resources and the name are in the error, and `children: resource` in the second job fixes it."""

    def program() -> None:
        for resource, name, children in (first, second)[::order]:
            given: Any = {**JOB, "name": name, "children": children}
            parent = Team(f"team-of-{resource}") if inside else None
            ElasticTrainingJob(resource, given, pulumi.ResourceOptions(parent=parent))

    if shared is None:
        run(program)
        return
    with pytest.raises(pulumi.RunError) as error:
        run(program)
    assert all(repr(part) in str(error.value) for part in (first[0], second[0], shared))
    assert "`children: resource`" in str(error.value)


def test_a_job_inside_a_component_may_have_the_name_of_one_outside() -> None:
    """Their resources differ in Pulumi by what they are in."""

    def program() -> None:
        ElasticTrainingJob("one", {**JOB, "name": "llm"})
        ElasticTrainingJob("two", {**JOB, "name": "llm", "namespace": "b"}, pulumi.ResourceOptions(parent=Team("team")))

    assert {"one", "two", "llm-workload"} <= set(run(program).made)


def test_a_wrong_config_is_a_run_error() -> None:
    """Pulumi prints its text without a traceback; every fault is a line."""
    wrong: Any = {"image": "i", "elastic": {"nnodes": "4:2"}, "sript": "s"}
    with pytest.raises(pulumi.RunError) as error:
        inputs.rendered("train", wrong)

    assert str(error.value).splitlines() == [
        "ElasticTrainingJob 'train' cannot be deployed. Fix these:",
        "  - elastic.nnodes: the minimum (4) must be at least 1 and at most the maximum (2); the limit is 10000.",
        "  - sript: is not a known key. Did you mean 'script'?",
    ]


@pytest.mark.parametrize(
    ("name", "args", "faults"),
    [
        ("team", {"namespaces": "x"}, ["namespaces: is not a known key. Did you mean 'namespace'?"]),
        ("team", {"config": "x"}, ["config: is not a known key. Known here: namespace, verify."]),
        (
            "team",
            {"namespace": "a.b"},
            ["namespace: must be lower-case letters, digits and '-' (at most 63 characters)."],
        ),
        (
            "Team_A",
            {"namespace": 3},
            [
                "name: must be lower-case letters, digits and '-', starting with a letter (at most 63 characters).",
                "namespace: must be a string; quote it if it is meant as text.",
            ],
        ),
    ],
)
def test_a_wrong_launcher_is_a_run_error(name: str, args: Any, faults: list[str]) -> None:
    """Before anything is registered, and with every fault, as that of a job."""
    with pytest.raises(pulumi.RunError) as error:
        run(lambda: ElasticLauncher(name, args))

    assert str(error.value).splitlines() == [
        f"ElasticLauncher {name!r} cannot be deployed. Fix these:",
        *(f"  - {fault}" for fault in faults),
    ]


def test_a_launcher_is_in_its_namespace() -> None:
    """Also where another resource delivers the namespace, and in `default` otherwise."""

    def program() -> None:
        ElasticLauncher("a", {})
        ElasticLauncher("b", {"namespace": pulumi.Output.from_input("x")})

    made = [each for each in run(program).made.values() if each.typ == "kubernetes:core/v1:ConfigMap"]
    found = {each.name: each.inputs["metadata"]["namespace"] for each in made}

    assert found == {"a-launcher": "default", "b-launcher": "x"}


def test_a_launcher_that_jobs_verify_is_named_by_its_whole_digest() -> None:
    """A job takes the digest from the name; a launcher without the option keeps the name that it had."""

    def program() -> None:
        team = ElasticLauncher("a", {"verify": True})
        ElasticLauncher("b", {})
        shared: Any = {**JOB, "launcher": {"verify": True, "config_map": team.config_map}}
        ElasticTrainingJob("train", shared)

    made = {each.name: each.inputs for each in run(program).made.values()}
    names = [made[f"{each}-launcher"]["metadata"]["name"] for each in ("a", "b")]
    worker = made["train-workload"]["spec"]["pytorchReplicaSpecs"]["Worker"]
    command = worker["template"]["spec"]["containers"][0]["command"]

    assert re.fullmatch(rf"a-launcher-[0-9a-f]{{6}}-{whole_digest()}", names[0])
    assert re.fullmatch(rf"b-launcher-{digest()}-[0-9a-f]{{6}}", names[1])
    assert command[5] == whole_digest()


def test_a_launcher_that_cannot_be_verified_ends_the_update() -> None:
    """Its name is known late, and then it is refused with what to do."""

    def program() -> None:
        late = pulumi.Output.from_input("team-launcher-1")
        shared: Any = {**JOB, "launcher": {"verify": True, "config_map": late}}
        ElasticTrainingJob("train", shared)

    with pytest.raises(ValueError, match="'team-launcher-1' does not"):
        run(program)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": {"b": [1, 2]}}, {"a": {"b": [1, 3]}}, ["a.b[1]"]),
        ({"a": [1]}, {"a": [1, 2]}, ["a"]),
        ({"a": 1}, {"b": 1}, ["a", "b"]),
        ({"a": 1.0}, {"a": 1}, []),
        ({"a": 1}, {"a": pulumi.output.UNKNOWN}, []),
    ],
)
def test_a_difference_is_a_path(old: Any, new: Any, expected: list[str]) -> None:
    """The cause of a refused restart is named, and what is unknown in a preview is no cause."""
    assert list(guards.changed_paths(old, new)) == expected


def test_the_component_is_cheap_to_import() -> None:
    """The typed modules of pulumi_kubernetes and torch stay out of a program that declares jobs."""
    heavy = ("pulumi_kubernetes", "torch")
    program = f"import sys, elastic_infra.component; print(*[m for m in sys.modules if m.startswith({heavy!r})])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == ""
