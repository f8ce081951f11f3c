"""Which group a script gets, and with which timeout, without a launcher."""

from __future__ import annotations

import os
import pathlib
import time
from datetime import timedelta
from typing import Any

import pytest
import torch.distributed as dist

from elastic_infra.launcher.workers import channel
from elastic_infra.training import ElasticGroup
from elastic_infra.training.process_group import BrokenError


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What torch is asked for, in place of a group."""
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(dist, "init_process_group", lambda backend, **options: asked.append({"is": backend, **options}))
    return asked


@pytest.mark.parametrize("backend", ["nccl", "cpu:gloo,cuda:nccl"])
def test_torchs_own_group_has_torchs_own_timeout(made: list[dict[str, Any]], backend: str) -> None:
    """Ten minutes for NCCL, or what the job's `nccl_collective_timeout_sec` made of it."""
    ElasticGroup.start(backend, environ={"RANK": "0"})

    assert made == [{"is": backend, "timeout": None}]


def test_a_timeout_that_the_script_gives_counts(made: list[dict[str, Any]]) -> None:
    """It is the script's to say."""
    ElasticGroup.start("nccl", timeout=timedelta(minutes=3), environ={"RANK": "0"})

    assert made == [{"is": "nccl", "timeout": timedelta(minutes=3)}]


def test_a_worker_that_others_went_on_without_takes_their_state(tmp_path: pathlib.Path) -> None:
    """Also where the first group that it enters breaks before it has the state; from then on the state is its own."""
    server = channel.Server.listen(str(tmp_path / "channel"))
    connection = channel.connect({channel.VARIABLE: server.path})
    assert connection is not None
    server.end.setblocking(True)  # noqa: FBT003  its only form
    server.accept()
    agent = server.claim(os.getpid())
    assert agent is not None
    group = ElasticGroup(connection, environ={})
    group._make = lambda: None  # type: ignore[method-assign]  # no peers are here
    assert group._orders is not None
    group._orders.listen()
    seen: list[tuple[int, bool]] = []

    def settle() -> None:
        seen.append((group.generation, group.is_behind))
        if group.generation == 2:
            agent.send(channel.Break(2))
            agent.send(channel.Enter(3, {}))
            while not group.is_broken:
                time.sleep(0.001)
            raise BrokenError

    agent.send(channel.Enter(2, {}, behind=True))
    assert group.move(7, settle) is None
    agent.send(channel.Enter(4, {}))
    assert group.move(8, settle) is None

    assert seen == [(2, True), (3, True), (4, False)]
    for end in (agent, connection, server):
        end.close()
