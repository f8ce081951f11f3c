"""Values that come from other resources or are secret: hidden at their own place, everything else readable."""

from __future__ import annotations

import json
from typing import Any

import pulumi
import pytest

from tests.engine.engine import Engine, Program, Stack
from tests.engine.jobs import JOB, WORKLOAD, job

TOKEN = "hunter2-secret"


def secret_env() -> dict[str, Any]:
    """The usual variables and a secret one."""
    return {**JOB["env"], "TOKEN": pulumi.Output.secret(TOKEN)}


def unknown_image() -> pulumi.Output[str]:
    """An image that another resource makes: unknown until it is there."""
    built = pulumi.CustomResource(
        "kubernetes:core/v1:ConfigMap",
        "build",
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "build"}, "data": {"image": "built"}},
    )
    return built.id.apply(lambda name: f"registry.example.com/{name.replace('/', '-')}:1")


@pytest.fixture(scope="module")
def with_secret(engine: Engine) -> Stack:
    """A stack that holds a job with a secret variable; for looking only."""
    stack = engine.stack()
    stack.up(job(env=secret_env))
    return stack


def test_a_secret_is_masked_where_it_is(scratch: Stack) -> None:
    """A reviewer sees the whole job but the one value, and the token of the store."""
    shown = scratch.preview(job(env=secret_env), diff=True)
    container = shown.inputs(WORKLOAD)["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    variables = {entry["name"]: entry.get("value") for entry in container["env"]}

    assert (variables["DATASET"], variables["SEED"], variables["TOKEN"]["ciphertext"]) == ("/data", "7", "[secret]")
    assert container["image"] == JOB["image"]
    assert TOKEN not in shown.text
    assert shown.text.count("[secret]") == 2


def test_a_secret_variable_is_warned_of(scratch: Stack) -> None:
    """It is plain text in the cluster; a late value that is no secret is nothing to warn of."""
    shown = scratch.preview(job(env=lambda: {"PLAIN": pulumi.Output.from_input("x"), **secret_env()}))

    assert "warning: env.TOKEN: the value is a secret in Pulumi, and plain text in the pod's manifest" in shown.text
    assert "env.PLAIN" not in shown.text
    assert TOKEN not in shown.text


def test_a_secret_is_encrypted_at_rest(with_secret: Stack) -> None:
    """The state holds the job in plain text and the one value as a cipher, in inputs and outputs."""
    workload = next(resource for resource in with_secret.state() if resource["urn"].endswith(WORKLOAD))
    for side in ("inputs", "outputs"):
        container = workload[side]["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
        entry = next(entry for entry in container["env"] if entry["name"] == "TOKEN")
        assert set(entry["value"]) == {"4dabf18193072939515e22adb298388d", "ciphertext"}
        assert container["image"] == JOB["image"]

    assert TOKEN not in json.dumps(with_secret.state())


def test_a_changed_secret_is_one_masked_difference(with_secret: Stack) -> None:
    """Rotation restarts the job, visibly, without showing either value."""
    changed = with_secret.preview(job(env=lambda: {**JOB["env"], "TOKEN": pulumi.Output.secret("hunter3")}), diff=True)

    assert [path.split(".")[-1] for path in changed.diff(WORKLOAD)] == ["value"]
    assert "hunter" not in changed.text


def test_an_unknown_image_leaves_the_rest_visible(scratch: Stack) -> None:
    """Before the image is built, a preview shows all that is known."""
    shown = scratch.preview(job(image=unknown_image), diff=True)
    spec = shown.inputs(WORKLOAD)["spec"]
    worker = spec["pytorchReplicaSpecs"]["Worker"]

    assert spec["elasticPolicy"]["maxReplicas"] == 4
    assert worker["replicas"] == 4
    assert worker["template"]["spec"]["containers"][0]["args"] == ["train.py"]
    assert "spec: [unknown]" not in shown.text
    assert shown.inputs("train")["nnodes"] == "2:4"


def test_a_value_known_later_is_no_difference(stack: Stack) -> None:
    """The run id does not depend on when a value became known, so `up` after `up` is empty."""
    program = job(image=unknown_image)
    stack.up(program)

    assert stack.preview(program).ops() == {}


def test_a_store_does_not_outlive_a_job_whose_late_value_changed(stack: Stack) -> None:
    """The run id does not tell the two jobs apart: the store would end the new one with the result of the old one."""

    def program(bucket: str) -> Program:
        return job(args=lambda: ["--data", pulumi.Output.from_input(bucket)])

    stack.up(program("one")).ops()
    same, changed = stack.preview(program("one")), stack.up(program("two"))

    assert same.ops() == {}
    assert changed.ops() == {"train-store": "delete-replaced", WORKLOAD: "delete-replaced"}
    assert stack.preview(program("two")).ops() == {}


def test_an_upgrade_leaves_the_store_of_a_job_with_late_values(stack: Stack) -> None:
    """What earlier versions made knows nothing of the value."""
    program = job(args=lambda: ["--data", pulumi.Output.from_input("one")])
    stack.up(program).ops()
    stack.load([_without_trigger(each) if each["urn"].endswith("train-store") else each for each in stack.state()])

    assert stack.preview(program).ops() == {}


def _without_trigger(resource: dict[str, Any]) -> dict[str, Any]:
    return {key: part for key, part in resource.items() if key != "replacementTrigger"}


def test_a_late_namespace_reaches_every_child(stack: Stack) -> None:
    """A namespace made by the same program works, and the endpoint follows it."""
    found = stack.up(job(namespace=lambda: unknown_image().apply(lambda _: "research")))
    spaces = {
        resource["inputs"]["metadata"].get("namespace")
        for resource in stack.state()
        if resource["type"].startswith("kubernetes:") and "::train-" in resource["urn"]
    }

    assert not found.failed
    assert spaces == {"research"}


@pytest.mark.parametrize("value", ["", "two words"])
def test_a_late_value_is_checked_when_it_comes(stack: Stack, value: str) -> None:
    """It fails the update with its reason, and is not quoted."""
    outcome = stack.up(job(image=lambda: unknown_image().apply(lambda _: value)))

    assert outcome.failed
    assert "not what its field takes" in outcome.text


def test_a_late_count_is_refused_at_once(scratch: Stack) -> None:
    """What fixes the structure of a preview must be plain."""
    outcome = scratch.preview(job(elastic=lambda: {"max_restarts": pulumi.Output.secret(3)}))

    assert outcome.failed
    assert "elastic.max_restarts: must be known when the program runs" in outcome.text
