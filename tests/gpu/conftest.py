"""A job on the chosen device, or a skip with the reason: ``make test-gpu``, ``make test-gpu DEVICE=cpu``."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator

import pytest

from tests.gpu import device as devices
from tests.launcher.loopback import Job

SCRIPT = pathlib.Path(__file__).parent / "scripts" / "train.py"
QUICK = ("last_call_timeout=1", "join_timeout=300")
STEPS = 250
"""Few: a step of ranks that share a GPU waits until each of them has had its turn."""
STEP_SECONDS = 0.3
"""Nodes that come have over a minute for it."""
Start = Callable[..., Job]


@pytest.fixture(scope="session")
def device() -> devices.Kind:
    """The device; a skip where there is none."""
    kind = devices.chosen()
    if reason := devices.missing(kind):
        pytest.skip(reason)
    return kind


@pytest.fixture
def start(device: devices.Kind, tmp_path: pathlib.Path) -> Iterator[Start]:
    """Starts a job of so many nodes of one worker, which train; skips where so many ranks cannot meet.

    ``mode`` is that of the script; with one, workers keep their processes.
    """
    jobs: list[Job] = []

    def started(nodes: int, *, largest: int = 0, backend: str = "", mode: str = "", **environ: str) -> Job:
        if max(nodes, largest) > 1 and (reason := devices.missing_for(device, max(nodes, largest))):
            pytest.skip(reason)
        events = {"events": str(tmp_path / "events")}
        backend = backend or (devices.IN_PLACE[device] if mode else devices.BACKENDS[device][0])
        script = (str(SCRIPT), str(tmp_path), str(STEPS), str(STEP_SECONDS), device, backend)
        job = Job(
            tmp_path,
            nnodes=f"1:{max(3, largest)}",
            options=("--max-restarts", "1"),
            script=(*script, *([mode] if mode else [])),
            environ={f"ELASTIC_INFRA_{name.upper()}": value for name, value in {**events, **environ}.items()},
        )
        jobs.append(job)
        job.start_store()
        for _ in range(nodes):
            job.start_node(*QUICK)
        job.wait_for_world(nodes)
        return job

    yield started
    for job in jobs:
        job.end()
