"""A running job survives what only changes names in Pulumi: renamed resources, new parents, new versions of ours."""

from __future__ import annotations

from typing import Any

import pulumi
import pytest

from elastic_infra import ElasticTrainingJob
from elastic_infra.manifests import launcher
from tests.engine.engine import Engine, Stack
from tests.engine.jobs import FULL, JOB, job
from tests.engine.recorded_state import RECORDED, recorded, restored
from tests.released import PROMISES


@pytest.fixture(scope="module")
def deployed(engine: Engine) -> Stack:
    """A stack that holds a job with every child; for previews only."""
    stack = engine.stack()
    stack.up(job(**FULL))
    return stack


def test_a_renamed_resource_keeps_its_job(deployed: Stack) -> None:
    """With an alias, and the old name in the config, nothing is created, changed or deleted in the cluster."""
    renamed = deployed.preview(
        job("ranking", lambda: pulumi.ResourceOptions(aliases=[pulumi.Alias(name="train")]), name="train", **FULL)
    )

    assert renamed.ops() == {}


def test_the_state_holds_the_program_and_its_stack_once(deployed: Stack) -> None:
    """A child has the component's place in the program, but not the whole stack behind it; none names our source."""
    component = next(each for each in deployed.state() if each["type"].endswith(":ElasticTrainingJob"))
    children = [each for each in deployed.state() if each.get("parent") == component["urn"]]

    assert len(component["stackTrace"]) > 4
    assert len(children) > 8
    assert all(len(each.get("stackTrace", ())) <= 4 for each in children)
    assert {each.get("sourcePosition") for each in children} <= {component["sourcePosition"], None}


def test_a_job_moves_under_a_parent(deployed: Stack) -> None:
    """A platform team wraps an existing job into another component."""

    class Team(pulumi.ComponentResource):
        def __init__(self) -> None:
            super().__init__("acme:index:Team", "team")
            config: Any = {**JOB, **FULL}
            here = pulumi.ResourceOptions(parent=self, aliases=[pulumi.Alias(parent=pulumi.ROOT_STACK_RESOURCE)])
            ElasticTrainingJob("train", config, here)
            self.register_outputs({})

    def program() -> None:
        Team()

    assert deployed.preview(program).ops() == {"team": "create"}


def test_each_released_version_has_its_promise() -> None:
    """The page's table has a row for each recorded state, and no other."""
    assert PROMISES.keys() == RECORDED.keys()


@pytest.mark.parametrize("version", RECORDED)
def test_a_recorded_state_keeps_its_resources(stack: Stack, version: str) -> None:
    """A stack made by a released version meets this one: each resource is found again under its name.

    Its job restarts only where the upgrade page says so. The store's Secret and the NetworkPolicy came after 0.1.0.
    """
    stack.load(restored(RECORDED[version].read_text(), stack.name))
    found = stack.preview(job(**FULL)).ops()

    new = dict.fromkeys(("train-token", "train-network_policy"), "create") if version == "0.1.0" else {}
    assert {name: op for name, op in found.items() if op in {"create", "delete"}} == new
    assert ("replace" in found.get("train-workload", "")) == (PROMISES[version] == "restart once"), found


def test_what_is_recorded_today_is_taken_over_by_another_launcher(stack: Stack, engine: Engine) -> None:
    """The record of a release, met by a version with another launcher: nothing restarts, for each job keeps its own."""
    first = engine.stack()
    first.up(job(**FULL))
    text = recorded(first.exported(), first.name).replace(launcher.digest(), "0" * 8)
    stack.load(restored(text, stack.name))
    found = stack.preview(job(**FULL))

    assert "newer launcher is ready" in found.text
    assert {name: op for name, op in found.ops().items() if op != "update"} == {}
    assert "project:///" not in text, "a place of this machine"
    assert len(text) < 100_000


def test_two_programs_share_a_process(scratch: Stack) -> None:
    """Nothing is bound to the first program's event loop: no Output is made at import."""
    outcomes = [scratch.preview(job(name)) for name in ("one", "two")]

    assert [(outcome.failed, len(outcome.ops())) for outcome in outcomes] == [(False, 7), (False, 7)]
