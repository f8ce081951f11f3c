"""Workers are forked from a fork server, and cannot tell."""

from __future__ import annotations

import functools
import importlib.util
import json
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.launcher.launched import MARK, Launched

pytestmark = [pytest.mark.launcher, pytest.mark.timeout(600)]

SCRIPT = pathlib.Path(__file__).parents[1] / "scripts" / "warm.py"
CHANGES = {"MASTER_PORT", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_ERROR_FILE", "ELASTIC_INFRA_GENERATION",
           "ELASTIC_INFRA_ATTEMPT", "ELASTIC_INFRA_PROGRESS", "ELASTIC_INFRA_MODULES", "ELASTIC_INFRA_WARM_START",
           "ELASTIC_INFRA_LAUNCH", "ELASTIC_INFRA_CHANNEL", "TORCHELASTIC_RUN_ID",
           "TORCHINDUCTOR_CACHE_DIR", "PYTEST_CURRENT_TEST", "JOURNAL", MARK}  # fmt: skip
"""Variables that differ between launches or generations in any case. Importing parts of torch sets inductor's, in
the process of the tests too."""


Start = Callable[..., Launched]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Gives a launch that has ended, and the same one to every test that asks for it."""
    for module in ("torch", "numpy"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"needs {module}")
    launches: list[Launched] = []

    @functools.cache
    def launched(workers: int, *, warm: bool) -> Launched:
        environ = {"ELASTIC_INFRA_EVENTS": "events", "ELASTIC_INFRA_NCCL_COLLECTIVE_TIMEOUT_SECONDS": "77"}
        environ |= {} if warm else {"ELASTIC_INFRA_WARM_START": "0"}
        options = ("--nproc-per-node", str(workers), "--max-restarts", "1")
        folder = tmp_path_factory.mktemp("warm" if warm else "cold")
        launches.append(Launched(folder, *options, str(SCRIPT), "--flag", "a b", environ=environ))
        launches[-1].process.wait(500)
        return launches[-1]

    yield launched
    for launch in launches:
        launch.end()


@pytest.fixture(params=[1, 2], ids=["one worker", "two workers"])
def workers(request: pytest.FixtureRequest) -> int:
    """Workers of the launch."""
    return int(request.param)


@pytest.fixture
def restarted(start: Start, workers: int) -> Launched:
    """A launch in which the last rank was killed once, and all were replaced."""
    return start(workers, warm=True)


@pytest.fixture
def cold(start: Start, workers: int) -> Launched:
    """The same program without a fork server."""
    return start(workers, warm=False)


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
    """A program that imports torch itself is forked from its first generation on."""
    lines = (restarted.output_path.parent / "events").read_text().splitlines()
    starts = [event for event in map(json.loads, lines) if event["event"] == "worker_started"]

    assert {(event["generation"], event["warm"]) for event in starts} == {(1, True), (2, True)}


@pytest.mark.parametrize("generation", [1, 2])
def test_a_forked_worker_finds_what_a_cold_one_finds(restarted: Launched, cold: Launched, generation: int) -> None:
    """Environment, arguments, main module, title, threads, timeouts, handlers, session: all as in a cold start."""
    same = ["environ", "argv", "path", "file", "main", "threads", "blas_threads", "collects_garbage", "timeout",
            "title", "leads", "handlers"]  # fmt: skip
    for usual, forked in zip(found(cold, 1), found(restarted, generation), strict=True):
        for name in CHANGES:
            usual["environ"].pop(name, None)
            forked["environ"].pop(name, None)

        assert {name: usual[name] for name in same} == {name: forked[name] for name in same}
        assert forked["timeout"] == 77.0
        assert forked["blas_threads"]
        assert forked["parent"] == restarted.process.pid


def test_forked_ranks_draw_different_numbers(restarted: Launched) -> None:
    """random, NumPy and torch are seeded anew in every worker."""
    draws = [tuple(record["draws"]) for record in restarted.journal("found")]

    for numbers in zip(*draws, strict=True):
        assert len(set(numbers)) == len(numbers)
