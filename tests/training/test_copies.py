"""Lost nodes, with real processes on loopback: the memory of one is gone, and the others' have what it held."""

from __future__ import annotations

import json
import pathlib
import random
import shutil
import socket
from typing import Any

import pytest
import torch

from tests.ports import free_port
from tests.training import forked

pytestmark = [pytest.mark.launcher, pytest.mark.timeout(180)]

SCRIPT = pathlib.Path(__file__).resolve().parent / "scripts" / "replaced_node.py"
STEPS = 3


def run(folder: pathlib.Path, *names: str, attempt: int = 0) -> list[dict[str, Any]]:
    """Nodes of one worker each, in the order of their ranks; what each says at its end."""
    port, forks, processes = free_port(), forked.context(), []
    for rank, name in enumerate(names):
        (folder / name).mkdir(exist_ok=True)
        environ = {
            "RANK": str(rank),
            "LOCAL_RANK": "0",
            "WORLD_SIZE": str(len(names)),
            "LOCAL_WORLD_SIZE": "1",
            "GROUP_WORLD_SIZE": str(len(names)),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "ELASTIC_INFRA_ATTEMPT": str(attempt),
            "ELASTIC_INFRA_PROGRESS": f"0:{folder / name / 'progress-1'}",
            "GLOO_SOCKET_IFNAME": "lo",
        }
        argv = (str(SCRIPT), str(folder / f"{name}.json"), str(STEPS))
        processes.append(forked.start(forks, argv, environ, folder / f"{name}.log"))
    for process, name in zip(processes, names, strict=True):
        process.join(120)
        assert process.exitcode == 0, (folder / f"{name}.log").read_text()
    return [json.loads((folder / f"{name}.json").read_text()) for name in names]


def next_draws(rank: int) -> list[float]:
    """What a rank draws after all steps, had no node been lost."""
    torch.manual_seed(rank)
    numbers = random.Random(rank)
    return [[torch.rand(1).item(), numbers.random()] for _ in range(STEPS + 1)][-1]


def test_a_lost_node_is_replaced_from_the_memory_of_others(tmp_path: pathlib.Path) -> None:
    """Twice, one node after the other: state from a peer, and each rank's random numbers go on as if undisturbed.

    The first loss moves the survivor to another rank. After it the new node has made no snapshot yet, and has the state
    in its memory nonetheless when the only other node is lost.
    """
    first = run(tmp_path, "a", "b")
    assert [said["restored"][:2] for said in first] == [[0, "nothing"]] * 2
    assert [said["draws"] for said in first] == [next_draws(0), next_draws(1)]

    shutil.rmtree(tmp_path / "a")
    second = run(tmp_path, "b", "c")
    assert [said["restored"] for said in second] == [[STEPS, "memory", ""], [STEPS, "peer", socket.gethostname()]]
    assert [said["draws"] for said in second] == [next_draws(0), next_draws(1)]

    shutil.rmtree(tmp_path / "b")
    third = run(tmp_path, "c", "d")
    assert [said["restored"][:2] for said in third] == [[STEPS, "memory"], [STEPS, "peer"]]
    assert third[1]["draws"] == next_draws(1)


@pytest.mark.parametrize("newer", ["a", "b"])
def test_one_step_of_two_generations_is_restored_from_the_later_one(tmp_path: pathlib.Path, newer: str) -> None:
    """One node finished a step that others repeated without it: the last bits may differ, and all take the same."""
    for name in ("a", "b"):
        run(tmp_path, name, attempt=10 if name == newer else 9)

    said = dict(zip(("a", "b"), run(tmp_path, "a", "b", attempt=11), strict=True))
    assert [each["weight"] for each in said.values()] == [10.0, 10.0]
    assert {name: each["restored"][:2] for name, each in said.items()} == {
        name: [STEPS, "memory" if name == newer else "peer"] for name in ("a", "b")
    }
