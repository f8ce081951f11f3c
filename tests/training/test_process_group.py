"""Which group a script gets, and with which timeout, without a launcher."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import torch.distributed as dist

from elastic_infra.training import ElasticGroup


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
