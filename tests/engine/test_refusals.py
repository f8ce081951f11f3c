"""A refused change in a stack of several jobs: which are named, and what becomes of the others."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from elastic_infra import ElasticTrainingJob, guards
from tests.engine.engine import Stack
from tests.engine.jobs import JOB, job

REFUSE = {"run_policy": {"on_restart": "refuse"}}


def stack_of(image: str, *guarded: str) -> Callable[[], None]:
    """A program with three jobs of one image; those that are named refuse a restart."""

    def program() -> None:
        for name in ("one", "two", "free"):
            config: Any = {**JOB, "image": image, **(REFUSE if name in guarded else {})}
            ElasticTrainingJob(name, config)

    return program


def _inputs(stack: Stack, job_name: str) -> dict[str, Any]:
    """Inputs of a job's objects in the state; the store's token is encrypted anew whenever the state is written."""
    found = {each["urn"].rpartition("::")[2]: each.get("inputs") for each in stack.state()}
    return {name: each for name, each in found.items() if name.startswith(f"{job_name}-") and "token" not in name}


def test_each_refused_job_is_named_with_its_remedy(stack: Stack) -> None:
    """One preview names all of them, also where it looks at one after the other; an update ends at the first."""
    stack.up(stack_of("team/train:1", "one", "two"))
    before = {name: _inputs(stack, name) for name in ("one", "two")}
    changed = stack_of("team/train:2", "one", "two")
    preview, update = stack.preview(changed, parallel=1), stack.up(changed)

    assert (preview.failed, update.failed) == (True, True)
    for name in ("one", "two"):
        assert f"ElasticTrainingJob '{name}' would be restarted" in preview.text
    assert "set on_restart to 'replace'" in preview.text
    assert "Refused by 'one', 'two'" in preview.text
    assert re.search("ElasticTrainingJob '(one|two)' would be restarted", update.text)
    assert "set on_restart to 'replace'" in update.text
    assert {name: _inputs(stack, name) for name in ("one", "two")} == before


def test_other_jobs_go_on_where_that_is_asked_for(stack: Stack) -> None:
    """`--continue-on-error`: the refused job is left whole, the others are updated."""
    stack.up(stack_of("team/train:1", "one"))
    before = _inputs(stack, "one")
    done = stack.up(stack_of("team/train:2", "one"), continue_on_error=True)

    assert done.failed
    assert "ElasticTrainingJob 'one' would be restarted" in done.text
    assert _inputs(stack, "one") == before
    for name in ("two", "free"):
        assert "team/train:2" in str(_inputs(stack, name)[f"{name}-workload"])


def test_an_upgrade_is_named_as_the_cause(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who changed nothing else must not look for the cause in the program."""
    stack.up(job(**REFUSE))
    monkeypatch.setattr(guards, "_version", lambda: "9.9.9")
    upgraded = stack.preview(job(**REFUSE, image="registry.example.com/train:2"))
    unchanged = stack.preview(job(**REFUSE))

    assert upgraded.failed
    assert "to 9.9.9 in between" in upgraded.text
    assert not unchanged.failed
