"""The workflow that runs each night what no change waits for, and what neither runs."""

from __future__ import annotations

import re
from typing import Any

import yaml

from tests.timeline import jaeger
from tools import modules, python_env
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
    at_night = "".join(recipes[verb.split()[0]] for verb in job()["strategy"]["matrix"]["verb"])

    assert left_out == {"cluster", "slow", "frameworks", "gpu"}
    run = {marker for marker in left_out if re.search(rf'-m "?{marker}\b|tests/{marker}\b', at_night)}
    assert run == left_out - {"gpu"}


def test_training_in_place_runs_on_each_torch_from_the_oldest_to_the_locked_one() -> None:
    """The locked torch has its slow tests in `make soak`; whoever locks a newer one adds the release before it."""
    oldest = re.search(r"^oldest = \[\"torch==2\.(\d+)\.", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    locked = [
        int(minor) for minor in re.findall(r"^torch==2\.(\d+)\.", (ROOT / python_env.LOCK).read_text(), re.MULTILINE)
    ]
    verbs = job()["strategy"]["matrix"]["verb"]
    chosen = [verb.removeprefix("test-torch TORCH=") for verb in verbs if verb.startswith("test-torch ")]

    assert oldest is not None
    assert chosen == [f"2.{minor}" for minor in range(int(oldest[1]), max(locked))]


def test_no_slow_test_is_skipped_for_want_of_a_program() -> None:
    """Every tool is built before `make soak`, those of the slow tests among them, and the rest is installed."""
    (prepared,) = [step["run"] for step in job()["steps"] if step.get("if") == "matrix.verb == 'soak'"]
    names = [step.get("name") for step in job()["steps"]]
    built = {program for tool in modules.load_all().values() if tool.packages for program in tool.programs}

    assert names[-1] == "Test"
    assert re.search(r"\bmake setup tools$", prepared, re.MULTILINE)
    assert {"cyclonus", jaeger.PROGRAM, "kube-score", "kubeconform"} <= built
    assert re.search(r"\bapt-get install\b.* prometheus$", prepared, re.MULTILINE)
    assert re.search(r"\btools\.extra_env linters$", prepared, re.MULTILINE)


def test_no_benchmark_runs_with_a_change_or_at_night() -> None:
    """Times of a machine that is shared with others say nothing, and a run takes minutes."""
    paths = [ROOT / ".ci/run", ROOT / "action.yml", *sorted((ROOT / ".github/workflows").iterdir())]

    assert len(paths) > 2
    assert [path.name for path in paths if "bench" in path.read_text()] == []


def test_each_action_is_pinned() -> None:
    """By commit, since a tag can be moved."""
    uses = [step["uses"] for step in job()["steps"] if "uses" in step]

    assert uses
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", each) for each in uses)
