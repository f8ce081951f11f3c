"""A job on a real cluster whose workers stay: pods come, go and are lost, and the other pods keep their processes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import faults, jobs, moved
from tests.cluster.cluster import Namespace
from tests.cluster.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
JOB = "moved"
WHOLE_SECONDS = 30.0
"""From a new container's start to a step of all nodes, with a wide margin; importing torch takes most."""


def steps(space: Namespace, world: int) -> list[Mapping[str, Any]]:
    """Each worker's steps in a world of this size, in the order of time."""
    lines = [line for line in space.lines("*.jsonl") if line["world"] == world]
    return sorted(lines, key=lambda line: float(str(line["time"])))


def await_processes(space: Namespace, world: int, gone: Collection[str] = ()) -> set[str]:
    """The processes of a world of this size that trains without those that are gone."""

    def found() -> set[str]:
        there = {line["process"] for line in steps(space, world)} - set(gone)
        return there if len(there) == world else set()

    return until(f"{world} workers", found, jobs.TRAINING_SECONDS, describe=space.describe)


def test_pods_come_and_are_lost_and_the_others_keep_their_processes(space: Namespace) -> None:
    """No worker of a pod that stays starts again, no step is lost or done twice, and a lost pod is back at once."""
    space.apply({**jobs.toy_config_map(), "data": {"toy.py": Path(moved.__file__).read_text()}})
    settings = jobs.config(space, jobs.Training(), resources={"memory": "1200Mi"})  # a bounded CPU slows imports down
    jobs.submit(space, JOB, settings, "ours")
    first = await_processes(space, 2)

    space.scale(JOB, 3)
    grown = await_processes(space, 3)

    lost = f"{JOB}-worker-1"
    gone = {str(line["process"]) for line in space.lines(f"{lost}.jsonl")}
    faults.lose_pod(space, lost, grace=0)
    again = await_processes(space, 3, gone)
    first_whole = next(line for line in steps(space, 3) if line["process"] in again - grown)
    seconds = float(first_whole["time"]) - float(first_whole["started"])

    jobs.tell_to_finish(space)
    space.await_condition(JOB, "Succeeded")
    lines = [line for world in (1, 2, 3) for line in steps(space, world)]
    assert first < grown
    assert len(grown & again) == 2
    assert all(line["weight"] == line["step"] for line in lines)
    assert {line["step"] for line in lines} == set(range(1, max(line["step"] for line in lines) + 1))
    assert seconds < WHOLE_SECONDS
