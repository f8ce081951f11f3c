"""Lost nodes, with real processes on loopback: the memory of one is gone, and the others' have what it held."""

from __future__ import annotations

import json
import pathlib
import random
import shutil
import socket
from collections.abc import Mapping
from typing import Any

import pytest
import torch

from tests.ports import free_port
from tests.training import forked

pytestmark = [pytest.mark.launcher, pytest.mark.timeout(180)]

SCRIPTS = pathlib.Path(__file__).resolve().parent / "scripts"
STEPS = 3


def run(folder: pathlib.Path, *names: str, attempt: int = 0) -> list[dict[str, Any]]:
    """Nodes of one worker each, in the order of their ranks; what each says at its end."""
    start(folder, {name: ("replaced_node.py", str(folder / f"{name}.json"), str(STEPS)) for name in names}, attempt)
    return [json.loads((folder / f"{name}.json").read_text()) for name in names]


def start(folder: pathlib.Path, scripts: Mapping[str, tuple[str, ...]], attempt: int) -> None:
    """Run nodes of one worker each to their end, in the order of their ranks, each with its script."""
    port, forks, processes = free_port(), forked.context(), []
    for rank, (name, (script, *arguments)) in enumerate(scripts.items()):
        (folder / name).mkdir(exist_ok=True)
        environ = {
            "RANK": str(rank),
            "LOCAL_RANK": "0",
            "WORLD_SIZE": str(len(scripts)),
            "LOCAL_WORLD_SIZE": "1",
            "GROUP_RANK": str(rank),
            "GROUP_WORLD_SIZE": str(len(scripts)),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "ELASTIC_INFRA_ATTEMPT": str(attempt),
            "ELASTIC_INFRA_PROGRESS": f"0:{folder / name / 'progress-1'}",
            "GLOO_SOCKET_IFNAME": "lo",
        }
        argv = (str(SCRIPTS / script), *arguments)
        processes.append(forked.start(forks, argv, environ, folder / f"{name}.log"))
    for process, name in zip(processes, scripts, strict=True):
        process.join(120)
        assert process.exitcode == 0, (folder / f"{name}.log").read_text()


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


def dropout(folder: pathlib.Path, *names: str, steps: int, attempt: int = 0) -> dict[str, Any]:
    """What rank 0 of a sharded model with dropout has after so many steps."""
    start(folder, {name: ("dropout.py", str(folder), name, str(steps)) for name in names}, attempt)
    found: dict[str, Any] = torch.load(folder / f"{names[0]}.pt")
    return found


@pytest.mark.slow
@pytest.mark.skipif(torch.__version__.startswith("2.6."), reason="FSDP2 of torch 2.6 cannot compute on the CPU")
@pytest.mark.parametrize("survivor", ["a", "b"])
def test_a_lost_node_costs_a_sharded_model_no_random_number(tmp_path: pathlib.Path, survivor: str) -> None:
    """Dropout is what it would be without the loss: the neighbour kept the generators with the shards."""
    (tmp_path / "undisturbed").mkdir()
    expected = dropout(tmp_path / "undisturbed", "a", "b", steps=2 * STEPS)

    dropout(tmp_path, "a", "b", steps=STEPS)
    shutil.rmtree(tmp_path / ("a" if survivor == "b" else "b"))
    found = dropout(tmp_path, survivor, "c", steps=2 * STEPS, attempt=1)
    assert found["restored"][0] == STEPS
    assert [name for name, value in expected["weights"].items() if not torch.equal(found["weights"][name], value)] == []
