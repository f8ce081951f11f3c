"""A newer version of this package restarts nothing: a job keeps its launcher until something else restarts it."""

from __future__ import annotations

from typing import Any

import pulumi
import pytest

from elastic_infra import ElasticLauncher, ElasticTrainingJob
from elastic_infra.manifests import launcher
from tests.engine.engine import Stack
from tests.engine.jobs import JOB, WORKLOAD, job

LAUNCHER = "train-launcher"
NOTE = "a newer launcher is ready"
NEW_IMAGE = {"image": "registry.example.com/train:2"}
VERIFY = {"launcher": {"verify": True}}
REFUSE = {"run_policy": {"on_restart": "refuse"}}


@pytest.fixture
def upgrade(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes this package's launcher another one."""
    return lambda content: monkeypatch.setattr(launcher, "archive", lambda: content)


def touched(ops: dict[str, str]) -> dict[str, str]:
    """What happens to objects in the cluster."""
    return {name: op for name, op in ops.items() if name not in {"train", "train-pin", "train-guard"}}


@pytest.mark.parametrize("kind", [{}, {"elastic": {"nnodes": "1"}}, REFUSE], ids=["range", "single pod", "guarded"])
def test_an_upgrade_touches_no_object(stack: Stack, upgrade: Any, kind: dict[str, Any]) -> None:
    """Not in the preview, not in the update, not in the next one; each says that a newer launcher is ready."""
    upgrade(b"old")
    stack.up(job(**kind))
    old = stack.preview(job(**kind))
    upgrade(b"new")
    outcomes = [stack.preview(job(**kind)), stack.up(job(**kind)), stack.preview(job(**kind))]

    assert NOTE not in old.text
    assert [(each.failed, touched(each.ops()), NOTE in each.text) for each in outcomes] == [(False, {}, True)] * 3
    (kept,) = [each for each in stack.state() if each["urn"].endswith(f"::{LAUNCHER}")]
    assert kept["inputs"]["binaryData"] == {"launcher.zip": "b2xk"}


def test_only_what_mounts_the_launcher_waits_for_it(stack: Stack) -> None:
    """The other objects are made meanwhile, while the state that the engine writes with each step is small."""
    stack.up(job()).ops()
    waiting = {
        each["urn"].rpartition("::")[2]
        for each in stack.state()
        if any(urn.endswith(f"::{LAUNCHER}") for urn in each.get("dependencies", []))
    }

    assert waiting == {"train-store", "train-workload"}


def test_a_job_whose_children_get_other_names_keeps_its_launcher(stack: Stack, upgrade: Any) -> None:
    """The record of it is found by its earlier name, as the job's objects are."""
    upgrade(b"old")
    stack.up(job("ranking", name="train", children="resource")).ops()
    upgrade(b"new")
    renamed = stack.up(job("ranking", name="train"))

    assert {name: op for name, op in renamed.ops().items() if name != "ranking"} == {}
    assert NOTE in renamed.text


@pytest.mark.parametrize("change", [NEW_IMAGE, {"launcher": {"version": "2"}}], ids=["image", "asked for"])
def test_a_restart_takes_the_newest_launcher(stack: Stack, upgrade: Any, change: dict[str, Any]) -> None:
    """Whatever restarts the job, or the question for the newest one alone."""
    upgrade(b"old")
    stack.up(job())
    upgrade(b"new")
    previewed, done = stack.preview(job(**change)), stack.up(job(**change))
    after = stack.preview(job(**change))

    for each in (previewed, done):
        assert not each.failed
        assert (each.ops()[WORKLOAD], each.ops()[LAUNCHER]) == ("delete-replaced", "create-replacement")
        assert NOTE not in each.text
    assert previewed.inputs(WORKLOAD) == done.inputs(WORKLOAD)
    assert launcher.digest() in str(done.inputs(WORKLOAD))
    assert after.ops() == {}


def with_late(text: str, *, secret: bool) -> Any:
    """A program whose job has a variable that another resource delivers."""
    made = pulumi.Output.secret if secret else pulumi.Output.from_input
    return job(env=lambda: {"LATE": made(text)})


@pytest.mark.parametrize("secret", [False, True], ids=["plain", "secret"])
def test_a_late_value_that_changes_restarts_the_job(stack: Stack, upgrade: Any, *, secret: bool) -> None:
    """With the newest launcher; a secret has no part in the record, so the job restarts with the one that it has."""
    upgrade(b"old")
    stack.up(with_late("1", secret=secret))
    upgrade(b"new")
    same, other = stack.preview(with_late("1", secret=secret)), stack.up(with_late("2", secret=secret))

    assert (touched(same.ops()), NOTE in same.text) == ({}, True)
    assert other.ops()[WORKLOAD] == "delete-replaced"
    assert other.ops().get(LAUNCHER) == (None if secret else "create-replacement")


def test_a_job_in_another_namespace_takes_the_newest_launcher(stack: Stack, upgrade: Any) -> None:
    """The job is made anew there, and its launcher with it."""
    upgrade(b"old")
    stack.up(job())
    upgrade(b"new")
    moved = stack.up(job(namespace="other"))

    (made,) = [each["inputs"]["metadata"] for each in stack.state() if each["urn"].endswith(f"::{LAUNCHER}")]

    assert not moved.failed
    assert (made["namespace"], launcher.digest() in made["name"]) == ("other", True)
    assert made["name"] in str(moved.inputs(WORKLOAD))


def test_a_refused_change_leaves_the_launcher_as_well(stack: Stack, upgrade: Any) -> None:
    """The record of the launcher moves only after the guards have let the change pass."""
    upgrade(b"old")
    stack.up(job(**REFUSE))
    upgrade(b"new")
    refused = [stack.preview(job(**REFUSE, **NEW_IMAGE)), stack.up(job(**REFUSE, **NEW_IMAGE))]
    undone = stack.up(job(**REFUSE))

    assert all(each.failed and "containers[0].image" in each.text for each in refused)
    assert (undone.failed, touched(undone.ops())) == (False, {})


def test_asking_for_the_newest_launcher_is_a_restart_to_a_guard(stack: Stack) -> None:
    """It is refused like any other."""
    stack.up(job(**REFUSE))

    assert stack.preview(job(**REFUSE, launcher={"version": "2"})).failed


def test_a_verified_launcher_is_kept_with_its_digest(stack: Stack, upgrade: Any) -> None:
    """Turning the check on restarts the job with the newest launcher; another one that is ready changes no object."""
    upgrade(b"old")
    stack.up(job())
    upgrade(b"new")
    digest = launcher.whole_digest()
    seen = stack.preview(job(**VERIFY))
    turned_on = stack.up(job(**VERIFY))
    upgrade(b"newer")
    upgraded = [stack.preview(job(**VERIFY)), stack.up(job(**VERIFY))]
    restarted = stack.up(job(**VERIFY, **NEW_IMAGE))

    assert (seen.failed, seen.ops()[WORKLOAD], turned_on.ops()[WORKLOAD]) == (False, *["delete-replaced"] * 2)
    assert str(turned_on.inputs(WORKLOAD)).count(digest) == 2
    assert [(each.failed, touched(each.ops()), NOTE in each.text) for each in upgraded] == [(False, {}, True)] * 2
    assert str(restarted.inputs(WORKLOAD)).count(launcher.whole_digest()) == 2


def shared(**changes: Any) -> Any:
    """A program with two jobs that share a launcher."""

    def program() -> None:
        launcher_ = ElasticLauncher("team", {"namespace": "default"})
        for name in ("train", "tune"):
            config: Any = {**JOB, "launcher": {"config_map": launcher_.config_map}, **changes}
            ElasticTrainingJob(name, config)

    return program


def test_jobs_share_a_launcher(stack: Stack, upgrade: Any) -> None:
    """One ConfigMap for all; a newer one stands beside the old one, which stays in the cluster for the jobs."""
    upgrade(b"old")
    made = stack.up(shared())
    again = stack.preview(shared())
    upgrade(b"new")
    upgraded = stack.up(shared())
    restarted = stack.up(shared(image="registry.example.com/train:2"))
    maps = [name for name in made.ops() if name.endswith("-launcher")]

    assert (made.failed, maps, again.ops()) == (False, ["team-launcher"], {})
    assert upgraded.ops()["team-launcher"] == "create-replacement"
    assert not any(name in upgraded.ops() for name in (WORKLOAD, "tune-workload", "train-store", "tune-store"))
    assert "[retain]" in upgraded.text
    assert restarted.ops()[WORKLOAD] == "delete-replaced"
    assert f"team-launcher-{launcher.digest()}" in str(restarted.inputs(WORKLOAD))


def test_a_launcher_that_was_left_is_in_nobodys_way(stack: Stack) -> None:
    """Destroyed and made anew, the ConfigMap has another name."""
    stack.up(shared())
    stack.destroy()

    assert not stack.up(shared()).failed
