"""What a user reads when the config is wrong: every fault on its line, no traceback, no value."""

from __future__ import annotations

from typing import Any

import pulumi
import pytest

from tests.engine.engine import Stack
from tests.engine.jobs import job

SECRET = "hunter2-secret"


@pytest.mark.parametrize(
    ("name", "changes", "lines"),
    [
        (
            "train",
            {"elastic": {"nnodes": "4:2", "max_restart": 3}, "resources": {"cpu": "many"}},
            [
                "elastic.nnodes: the minimum (4)",
                "elastic.max_restart: is not a known key. Did you mean 'max_restarts'?",
            ],
        ),
        ("Train_1", {}, ["name: must be lower-case letters"]),
        (
            "train",
            {"env": {"RANK": "0"}, "module": "train"},
            ["env.RANK: is set by", "script: exactly one of script, module and command"],
        ),
    ],
)
def test_every_fault_is_a_line(scratch: Stack, name: str, changes: dict[str, Any], lines: list[str]) -> None:
    """All of them at once, so that one run is enough to fix the config."""
    outcome = scratch.preview(job(name, **changes))

    assert outcome.failed
    assert "Traceback" not in outcome.text
    for line in lines:
        assert line in outcome.text


@pytest.mark.parametrize(
    "changes",
    [
        {"env": {"TOKEN": {"value": SECRET, "secret": "also"}}},
        {"env": lambda: {"TOKEN": {"value": pulumi.Output.secret(SECRET), "field": SECRET}}},
        {"working_dir": f"../{SECRET}"},
        {"elastic": {"nnodes": SECRET}},
        {"labels": {"a": f"{SECRET} {SECRET}"}},
    ],
)
def test_no_value_is_quoted(scratch: Stack, changes: dict[str, Any]) -> None:
    """Any of them may be a secret."""
    outcome = scratch.preview(job(**changes))

    assert outcome.failed
    assert SECRET not in outcome.text


def test_warnings_are_shown_with_the_job(scratch: Stack) -> None:
    """What is allowed and surprising is said once, and does not fail the preview."""
    outcome = scratch.preview(job(storage={}))

    assert not outcome.failed
    assert "warning: storage.checkpoint: without a checkpoint volume" in outcome.text
