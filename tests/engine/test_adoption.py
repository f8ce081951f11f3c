"""A live job that something else made is taken over without a restart, and made anew when the key goes.

What the preview says of both is in `tests/preview/test_pulumi_preview.py`.
"""

from __future__ import annotations

from typing import Any, Final

import pulumi
import pytest

from tests.engine.engine import Stack
from tests.engine.jobs import WORKLOAD, job

POD: Final = {"spec": {"containers": [{"name": "pytorch", "image": "registry.example.com/by-hand:1"}]}}
METADATA: Final = {"name": "train", "namespace": "default", "labels": {"team": "vision"}}
BY_HAND: Final[dict[str, tuple[dict[str, Any], dict[str, Any]]]] = {
    "PyTorchJob": (
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": METADATA,
            "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 3, "template": POD}}},
        },
        {"storage": {"checkpoint": {"size": "10Gi"}}, "run_policy": {"on_restart": "refuse"}},
    ),
    "Job": (
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": METADATA, "spec": {"template": POD}},
        {"elastic": {"nnodes": 1}},
    ),
}
"""Kind to the object, and to what differs in the config of its successor."""


def live(stack: Stack, manifest: dict[str, Any]) -> None:
    """Have an object in the cluster that no state knows."""

    def by_hand() -> None:
        version = manifest["apiVersion"]
        keep = pulumi.ResourceOptions(retain_on_delete=True)
        pulumi.CustomResource(f"kubernetes:{version}:{manifest['kind']}", "by-hand", manifest, keep)

    stack.up(by_hand).ops()
    assert stack.up(lambda: None).ops() == {"by-hand": "delete"}


def inputs(stack: Stack) -> dict[str, Any]:
    """The workload as the state has it."""
    (found,) = [each["inputs"] for each in stack.state() if each["urn"].endswith(f"::{WORKLOAD}")]
    return {key: value for key, value in found.items() if not key.startswith("__")}


@pytest.mark.parametrize("kind", BY_HAND)
def test_a_live_job_is_taken_over_and_trains_on(stack: Stack, kind: str) -> None:
    """The first `up` imports it as it is; no edit reaches it until the key goes, and then the job is made anew.

    Nothing beside the workload is made before that: an autoscaler or a store would reach into the running job.
    """
    manifest, config = BY_HAND[kind]
    live(stack, manifest)
    taken = stack.up(job(adopted=True, **config))
    edited = stack.up(job(adopted=True, **config, image="registry.example.com/train:2"))

    assert taken.ops() == {"train": "create", WORKLOAD: "import"}
    assert edited.ops() == {"train": "update"}
    assert inputs(stack) == manifest
    assert "Take the key out" in taken.text

    done = stack.up(job(**config))

    assert done.ops()[WORKLOAD] == "delete-replaced"
    assert {op for name, op in done.ops().items() if name not in {"train", WORKLOAD}} == {"create"}
    assert inputs(stack) != manifest
    assert stack.preview(job(**config)).ops() == {}


def test_a_job_that_is_not_there_is_not_made(stack: Stack) -> None:
    """Neither is one of another kind taken for it."""
    live(stack, BY_HAND["Job"][0])
    refused = stack.up(job(adopted=True))

    assert refused.failed
    assert "default/train" in refused.text
    assert [each for each in stack.state() if each["urn"].endswith(WORKLOAD)] == []


def test_an_adopted_job_that_leaves_the_program_is_deleted(stack: Stack) -> None:
    """Like any other job: it belongs to the stack."""
    live(stack, BY_HAND["PyTorchJob"][0])
    stack.up(job(adopted=True)).ops()

    assert stack.up(lambda: None).ops() == {"train": "delete", WORKLOAD: "delete"}
