"""Pulumi's options on the component: those that reach the children, and those that Pulumi drops."""

from __future__ import annotations

from typing import Any

import pulumi
import pytest

from elastic_infra.inputs import INEFFECTIVE_OPTIONS
from tests.engine.engine import Program, Stack
from tests.engine.jobs import AUTOSCALED, FULL, WORKLOAD, job

ROLES = ("launcher", "network_policy", "service", "store", "token", "autoscaler")
CHILDREN = {WORKLOAD, *(f"train-{role}" for role in ROLES)}


def cluster(name: str = "other") -> pulumi.ProviderResource:
    """An explicit provider, as for a second cluster."""
    return pulumi.ProviderResource("kubernetes", name, {})


def namespace() -> pulumi.Resource:
    """Something that must be there first, as the operator must."""
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "first"}}
    return pulumi.CustomResource("kubernetes:core/v1:Namespace", "first", manifest)


def test_protection_reaches_every_child(scratch: Stack) -> None:
    """`protect` means the job as a whole."""
    shown = scratch.preview(job("train", lambda: pulumi.ResourceOptions(protect=True), **AUTOSCALED))

    assert {step.name for step in shown.steps if step.state.protect} == {"train", *CHILDREN}


def test_a_protected_job_is_changed_in_place_and_never_restarted(stack: Stack) -> None:
    """A restart deletes the workload, which protection forbids: the preview says so, and nothing is changed."""

    def options() -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(protect=True)

    def objects() -> dict[str, Any]:
        state = [each for each in stack.state() if each["type"].startswith("kubernetes:")]
        return {
            each["urn"]: each["inputs"] for each in state if "Secret" not in each["type"]
        }  # encrypted anew each time

    stack.up(job("train", options))
    before = objects()
    restart = stack.up(job("train", options, image="registry.example.com/train:2"))
    after = objects()
    in_place = stack.up(job("train", options, run_policy={"backoff_limit": 30}))

    assert restart.failed
    assert [urn for urn in before | after if before.get(urn) != after.get(urn)] == []
    assert "protect" in restart.text
    assert in_place.attempted()[WORKLOAD] == "update"
    assert not in_place.failed


def test_a_dependency_comes_before_every_child_and_goes_after_it(stack: Stack) -> None:
    """`depends_on` means the job as a whole: its operator is there as long as it is."""
    made = stack.up(job("train", lambda: pulumi.ResourceOptions(depends_on=[namespace()])))
    ended = stack.destroy()
    order, reverse = ([step.name for step in outcome.steps if step.state.custom] for outcome in (made, ended))

    assert order[0] == reverse[-1] == "first"
    assert set(order[1:]) == set(reverse[:-1]) == CHILDREN - {"train-autoscaler"}


@pytest.mark.parametrize("given", ["provider", "providers", "list of providers"])
def test_the_provider_reaches_every_child(scratch: Stack, given: str) -> None:
    """All objects go to one cluster, however it is named."""
    options = {
        "provider": lambda: pulumi.ResourceOptions(provider=cluster()),
        "providers": lambda: pulumi.ResourceOptions(providers={"kubernetes": cluster()}),
        "list of providers": lambda: pulumi.ResourceOptions(providers=[cluster()]),
    }[given]
    shown = scratch.preview(job("train", options, **AUTOSCALED))

    assert {step.name for step in shown.steps if "::other::" in step.provider} == CHILDREN


def test_transforms_reach_every_child(scratch: Stack) -> None:
    """The way to set what the config has no field for."""

    def label(args: pulumi.ResourceTransformArgs) -> pulumi.ResourceTransformResult | None:
        if "metadata" not in args.props:
            return None
        metadata: Any = args.props["metadata"]
        labelled = {**metadata, "labels": {**metadata["labels"], "team": "vision"}}
        return pulumi.ResourceTransformResult({**args.props, "metadata": labelled}, args.opts)

    shown = scratch.preview(job("train", lambda: pulumi.ResourceOptions(transforms=[label]), **AUTOSCALED))

    assert {name for name in CHILDREN if shown.inputs(name)["metadata"]["labels"].get("team") == "vision"} == CHILDREN


def _as_it_is(args: pulumi.ResourceTransformArgs) -> pulumi.ResourceTransformResult:
    return pulumi.ResourceTransformResult(args.props, args.opts)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"elastic": {"nnodes": "1"}},
        {"target": "trainjob"},
        {**FULL, "run_policy": {"on_restart": "refuse"}},
        {"placement": {"queue": "gpu"}},
        {"env": lambda: {"SEED": pulumi.Output.from_input("1")}},
        {"env": lambda: {"SEED": pulumi.Output.from_input("1")}, "target": "trainjob"},
    ],
    ids=["range", "single pod", "trainjob", "guarded", "queued", "late", "late trainjob"],
)
def test_a_transform_that_returns_what_it_was_given_changes_nothing(stack: Stack, fields: dict[str, Any]) -> None:
    """As one does that tags what has tags: the SDK reads all options of a child, and writes them anew."""

    def through() -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(transforms=[_as_it_is, _as_it_is])

    made = stack.up(job("train", through, **fields))

    assert not made.failed, made.text
    assert stack.preview(job("train", through, **fields)).ops() == {}
    assert stack.preview(job("train", **fields)).ops() == {}


def test_a_job_below_a_transform_is_made_anew_as_another_is(stack: Stack) -> None:
    """With the size of its config, and the store that it had."""

    def through() -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(transforms=[_as_it_is])

    stack.up(job("train", through)).ops()
    changed = stack.up(job("train", through, image="registry.example.com/train:2"))

    assert changed.ops() == {"train": "update", "train-store": "update", "train-workload": "delete-replaced"}


def test_a_transform_does_not_get_past_a_guard(stack: Stack) -> None:
    """The hooks are among the options that the SDK writes anew."""

    def guarded(image: str) -> Program:
        options = pulumi.ResourceOptions(transforms=[_as_it_is])
        return job("train", lambda: options, image=image, run_policy={"on_restart": "refuse"})

    stack.up(guarded("registry.example.com/train:1")).ops()
    changed = guarded("registry.example.com/train:2")

    for outcome in (stack.preview(changed), stack.up(changed)):
        assert outcome.failed
        assert "would be restarted, and its run_policy.on_restart is 'refuse'" in outcome.text


def test_options_that_pulumi_drops_are_named(scratch: Stack) -> None:
    """Each gives a warning with the way that works; the job is deployed all the same."""
    shown = scratch.preview(
        job(
            "train",
            lambda: pulumi.ResourceOptions(
                additional_secret_outputs=["labels"],
                custom_timeouts=pulumi.CustomTimeouts(create="1m"),
                ignore_changes=["spec"],
                replace_on_changes=["spec"],
            ),
        )
    )

    assert not shown.failed
    for option in INEFFECTIVE_OPTIONS:
        assert f"warning: Pulumi ignores {option} on a component. Use `transforms`" in shown.text
