"""The workflow that runs each night what no change waits for."""

from __future__ import annotations

import re
from typing import Any

import yaml

from tools.run import ROOT


def job() -> dict[str, Any]:
    """Its only job, as data."""
    document: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/nightly.yml").read_text())
    (found,) = document["jobs"].values()
    return dict(found)


def test_every_test_that_each_change_leaves_out_runs_at_night() -> None:
    """The verbs together select all markers that `make test` does not, but those that need a GPU."""
    makefile = (ROOT / "Makefile").read_text()
    recipes = dict(re.findall(r"^([\w-]+):.*##.*\n((?:\t.*\n)+)", makefile, re.MULTILINE))
    left_out = set(re.findall(r"not (\w+)", recipes["test"]))
    at_night = "".join(recipes[verb] for verb in job()["strategy"]["matrix"]["verb"])

    assert left_out == {"cluster", "slow", "frameworks", "gpu"}
    run = {marker for marker in left_out if re.search(rf'-m "?{marker}\b|tests/{marker}\b', at_night)}
    assert run == left_out - {"gpu"}


def test_each_action_is_pinned() -> None:
    """By commit, since a tag can be moved."""
    uses = [step["uses"] for step in job()["steps"] if "uses" in step]

    assert uses
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", each) for each in uses)
