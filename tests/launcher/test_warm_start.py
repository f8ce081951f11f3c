"""A restart forks from a warm parent, and the forked worker cannot tell."""

from __future__ import annotations

import importlib.util
import json
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.launcher.launched import Launched

pytestmark = [pytest.mark.launcher, pytest.mark.timeout(600)]

SCRIPT = pathlib.Path(__file__).parent / "scripts" / "warm.py"
CHANGES = {"MASTER_PORT", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_ERROR_FILE", "ELASTIC_INFRA_GENERATION",
           "ELASTIC_INFRA_ATTEMPT", "ELASTIC_INFRA_PROGRESS", "ELASTIC_INFRA_MODULES"}  # fmt: skip
"""What a new generation changes in any case."""


@pytest.fixture(scope="module", params=[1, 2], ids=["one worker", "two workers"])
def restarted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launched]:
    """A launch in which the last rank was killed once and replaced from the warm parent."""
    for module in ("torch", "numpy"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"needs {module}")
    folder = tmp_path_factory.mktemp("warm")
    workers = str(request.param)
    environ = {"ELASTIC_INFRA_EVENTS": str(folder / "events"), "ELASTIC_INFRA_NCCL_COLLECTIVE_TIMEOUT_SECONDS": "77"}
    launch = Launched(
        folder, "--nproc-per-node", workers, "--max-restarts", "1", str(SCRIPT), "--flag", "a b", environ=environ
    )
    launch.process.wait(500)
    yield launch
    launch.end()


def found(launch: Launched, generation: int) -> list[dict[str, Any]]:
    records = [record for record in launch.journal("found") if record["generation"] == generation]
    return sorted(records, key=lambda record: record["rank"])


def test_the_job_succeeds(restarted: Launched) -> None:
    """The forked workers train, the launcher exits 0, nothing is left, and the output is there."""
    assert restarted.process.returncode == 0, restarted.output
    assert len(restarted.journal("trained")) == len(found(restarted, 1))
    assert "rank 0 is done" in restarted.output
    assert "leaked" not in restarted.output
    assert restarted.alive() == []


def test_it_was_a_fork(restarted: Launched) -> None:
    """Generation 1 is started cold and generation 2 warm, each by name in the events."""
    lines = (restarted.output_path.parent / "events").read_text().splitlines()
    starts = [event for event in map(json.loads, lines) if event["event"] == "worker_started"]

    assert {(event["generation"], event["warm"]) for event in starts} == {(1, False), (2, True)}


def test_a_forked_worker_finds_what_a_cold_one_finds(restarted: Launched) -> None:
    """Environment, arguments, main module, title, threads, timeouts, handlers, session: all as in a cold start."""
    for cold, warm in zip(found(restarted, 1), found(restarted, 2), strict=True):
        for name in CHANGES:
            cold["environ"].pop(name, None)
            warm["environ"].pop(name, None)
        warm["environ"].pop("TORCHINDUCTOR_CACHE_DIR", None)
        same = ["environ", "argv", "path", "file", "main", "threads", "timeout", "title", "parent", "leads", "handlers"]

        assert {name: cold[name] for name in same} == {name: warm[name] for name in same}
        assert warm["timeout"] == 77.0


def test_forked_ranks_draw_different_numbers(restarted: Launched) -> None:
    """random, NumPy and torch are seeded anew in every worker."""
    draws = [tuple(record["draws"]) for record in restarted.journal("found")]

    for numbers in zip(*draws, strict=True):
        assert len(set(numbers)) == len(numbers)
