"""A resource renamed in Pulumi keeps its job, and what guards a job stays with it."""

from __future__ import annotations

import re
from typing import Any

import pulumi
import pytest

from elastic_infra import ElasticTrainingJob
from tests.engine.engine import Engine, Program, Stack
from tests.engine.jobs import FULL, JOB, job

REFUSE = {"run_policy": {"on_restart": "refuse"}}
NEW_IMAGE = {"image": "registry.example.com/train:2"}


def objects(ops: dict[str, str]) -> dict[str, str]:
    """What happens to children: everything but the components themselves."""
    return {name: op for name, op in ops.items() if "-" in name}


@pytest.mark.parametrize("before", [{}, {"name": "train"}])
def test_a_renamed_resource_keeps_every_object(stack: Stack, before: dict[str, str]) -> None:
    """With the job's name kept nothing is created, changed or deleted in the cluster; no alias is needed."""
    stack.up(job("train", **before, **FULL))
    renamed = stack.up(job("ranking", name="train", **FULL))

    assert (renamed.failed, objects(renamed.ops())) == (False, {})
    assert stack.preview(job("ranking", name="train", **FULL)).ops() == {}


def test_a_rename_does_not_get_past_a_guard(stack: Stack) -> None:
    """The component is created then, not updated; the guard is where the objects are."""
    stack.up(job("train", **REFUSE))
    changed = stack.preview(job("ranking", name="train", **REFUSE, **NEW_IMAGE))

    assert changed.failed
    assert "ElasticTrainingJob 'ranking' would be restarted" in changed.text
    assert "containers[0].image" in changed.text


@pytest.mark.parametrize("kept", [REFUSE, FULL])
def test_another_name_of_the_job_is_refused_where_something_is_guarded(stack: Stack, kept: dict[str, Any]) -> None:
    """All its objects would be others, the claim of the checkpoints among them."""
    stack.up(job(**kept))
    for outcome in (stack.preview(job(name="other", **kept)), stack.up(job(name="other", **kept))):
        assert outcome.failed
        assert "What differs: metadata.name." in outcome.text
        assert objects(outcome.attempted()) == {}


def test_a_job_of_an_earlier_version_is_found_under_its_resources_name(stack: Stack) -> None:
    """Children were named after the resource; the alias takes them over."""
    stack.up(job("train", name="ranking", children="resource", **FULL))
    upgraded = stack.preview(job("train", name="ranking", **FULL))

    assert objects(upgraded.ops()) == {}


def test_an_earlier_versions_guard_still_holds_once(stack: Stack) -> None:
    """The records were in the component's inputs, and are compared there the first time."""
    stack.up(job(**REFUSE))
    resources = stack.state()
    (records,) = [each["inputs"]["input"] for each in resources if each["urn"].endswith("::train-guard")]
    old = [each for each in resources if not each["urn"].endswith("::train-guard")]
    for each in old:
        each["dependencies"] = [urn for urn in each.get("dependencies", []) if not urn.endswith("::train-guard")]
        if each["urn"].endswith("::train"):
            each["inputs"] = {**each["inputs"], **records}
            del each["inputs"]["name"]
    stack.load(old)

    assert "containers[0].image" in stack.preview(job(**REFUSE, **NEW_IMAGE)).text
    assert objects(stack.preview(job(**REFUSE)).ops()) == {}


def test_two_jobs_of_one_name_live_in_two_namespaces(stack: Stack) -> None:
    """One of them names its children after the resource."""

    def program(children: str) -> Any:
        def jobs() -> None:
            first: Any = {**JOB, "name": "llm", "namespace": "a"}
            second: Any = {**first, "namespace": "b", "children": children}
            ElasticTrainingJob("one", first)
            ElasticTrainingJob("two", second)

        return jobs

    refused, made = stack.preview(program("name")), stack.up(program("resource"))

    assert refused.failed
    assert re.search(
        r"'(one|two)' and ElasticTrainingJob '(one|two)' both have children called after 'llm'", refused.text
    )
    assert "Traceback" not in refused.text
    assert not made.failed
    assert {"llm-workload", "two-workload"} <= set(made.ops())


def namesakes(**teams: dict[str, Any]) -> Program:
    """A program with a job `train` below a component of each team, which is of the team's own type.

    Args:
        teams: what the config of each team's job has beside the rest.
    """

    def program() -> None:
        for team, changes in teams.items():
            parent = pulumi.ComponentResource(f"acme:index:{team}", "team")
            config: Any = {**JOB, **FULL, "namespace": team, **changes}
            ElasticTrainingJob("train", config, pulumi.ResourceOptions(parent=parent))

    return program


def test_namesakes_below_parents_of_two_types_are_two_jobs(stack: Stack) -> None:
    """Each with its claim and its guard: made, left alone by a second run, and destroyed without the program."""
    both = namesakes(vision=REFUSE, speech=REFUSE)
    preview, made = stack.preview(both), stack.up(both)
    recorded = {each["urn"]: each.get("resourceHooks") for each in stack.state()}
    again = stack.up(both)

    assert (preview.failed, made.failed) == (False, False), preview.text + made.text
    assert [step.name for step in made.steps].count("train-checkpoint") == 2
    assert again.ops() == {}
    assert {each["urn"]: each.get("resourceHooks") for each in stack.state()} == recorded
    assert not stack.destroy().failed


def test_a_hook_that_the_state_remembers_is_nobody_elses(stack: Stack) -> None:
    """Where the first of two goes, the other one's hook is the first one's by name, and guards the other one alone."""
    stack.up(namesakes(vision=REFUSE, speech=REFUSE))
    fewer = stack.up(namesakes(speech=REFUSE))
    changed = stack.preview(namesakes(speech={**REFUSE, **NEW_IMAGE}))

    assert not fewer.failed, fewer.text
    assert [step.name for step in fewer.steps if step.op == "delete"].count("train-workload") == 1
    assert changed.failed
    assert "ElasticTrainingJob 'train' would be restarted" in changed.text


def test_a_refusal_is_not_its_namesakes(stack: Stack) -> None:
    """`--continue-on-error`: one job refuses its change, the other one of its name is made anew."""
    stack.up(namesakes(vision=REFUSE, speech={}))
    changed = namesakes(vision={**REFUSE, **NEW_IMAGE}, speech=NEW_IMAGE)
    preview, update = stack.preview(changed), stack.up(changed, continue_on_error=True)
    workloads = [each["inputs"] for each in stack.state() if each["urn"].endswith("::train-workload")]

    assert (preview.failed, update.failed) == (True, True)
    assert "Refused by 'train'" in preview.text
    assert {each["metadata"]["namespace"]: NEW_IMAGE["image"] in str(each) for each in workloads} == {
        "vision": False,
        "speech": True,
    }


def test_destroying_a_job_leaves_its_checkpoints(stack: Stack) -> None:
    """The engine reports the retained claim, and a new job's error says how to go on from the checkpoints."""
    stack.up(job(**FULL))
    destroyed = stack.destroy()
    again = stack.up(job(**FULL))
    named = stack.up(job(storage={"checkpoint": {"claim": "train-checkpoint"}}))

    assert not destroyed.failed
    assert stack.state() != []
    assert "[retain]" in destroyed.text
    assert again.failed
    assert "storage.checkpoint.claim: train-checkpoint, in place of `size`" in again.text
    assert not named.failed


def test_a_preview_on_an_engine_with_two_stacks_confuses_no_names(engine: Engine) -> None:
    """Names are taken for one deployment, not for the process."""
    for stack in (engine.stack(), engine.stack()):
        assert not stack.preview(job("one", name="llm")).failed
        assert not stack.preview(job("two", name="llm")).failed
