"""Nodes and processes, as torchrun would have found them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.importing.objects import GPUS, batch_job, imported, noted, pytorch_job, train_job

COMMAND = ["torchrun", "--nproc_per_node=8", "--max_restarts=3", "--rdzv_conf=timeout=7", "t.py"]
POLICY = {"nProcPerNode": 2, "maxRestarts": 100, "rdzvConf": [{"key": "join_timeout", "value": "9"}]}


@pytest.mark.parametrize(
    ("manifest", "processes"),
    [
        (pytorch_job(GPUS), "auto"),
        (pytorch_job(GPUS, nprocPerNode="4"), "4"),
        (train_job(resourcesPerNode=GPUS["resources"]), "auto"),
        (train_job(numProcPerNode=4), "4"),
        (batch_job(GPUS), "1"),
        (pytorch_job({"command": ["torchrun", "--nproc_per_node=1", "t.py"]}, nprocPerNode="4"), "1"),
    ],
)
def test_processes_without_an_option_are_the_objects_or_the_operators(manifest: dict[str, Any], processes: str) -> None:
    """Torchrun's own 1 is the default only where no operator sets PET_NPROC_PER_NODE."""
    assert imported(manifest).job["elastic"]["nproc_per_node"] == processes


def test_the_command_line_counts_before_the_object() -> None:
    """Torchrun reads the operator's variables as defaults only."""
    elastic = imported(pytorch_job({"command": COMMAND}, nprocPerNode="1", elasticPolicy=POLICY)).job["elastic"]

    assert elastic == {
        "nnodes": "2", "nproc_per_node": "8", "max_restarts": 3, "rdzv_configs": {"timeout": 7},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("manifest", "nodes", "is_lost"),
    [
        (pytorch_job({"command": ["torchrun", "--nnodes=1:2", "t.py"]}), ("1:2", 2), False),
        (pytorch_job({"command": ["torchrun", "--nnodes=3:4", "t.py"]}), ("2", None), True),
        (
            pytorch_job(
                {"command": ["torchrun", "--nnodes=1:9", "t.py"]}, elasticPolicy={"minReplicas": 1, "maxReplicas": 4}
            ),
            ("1:4", 2),
            True,
        ),
        (
            pytorch_job(
                {"command": ["torchrun", "--nnodes=1:4", "t.py"]}, elasticPolicy={"minReplicas": 1, "maxReplicas": 4}
            ),
            ("1:4", 2),
            False,
        ),
        (train_job(command=["torchrun", "--nnodes=1:2", "t.py"]), ("2", None), True),
        (batch_job({"command": ["torchrun", "--nnodes=1:4", "t.py"]}), ("1", None), True),
        (batch_job({"command": ["torchrun", "--nnodes=$(N):4", "t.py"]}, parallelism=2), ("2", None), True),
    ],
)
def test_a_range_in_the_command_is_kept_or_told(
    manifest: dict[str, Any],
    nodes: tuple[str, int | None],
    is_lost: bool,  # noqa: FBT001 - a case
) -> None:
    """It holds where the object has the number of now alone, and that lies in it."""
    found = imported(manifest)

    assert (found.job["elastic"]["nnodes"], found.job["elastic"].get("initial_nodes")) == nodes
    assert noted(found, "drops the range of --nnodes") is is_lost


@pytest.mark.parametrize(
    ("container", "is_told"),
    [
        ({"command": ["python", "t.py"], **GPUS}, True),
        ({"command": ["./train"], **GPUS}, True),
        ({"command": ["python", "t.py"]}, False),
        ({"command": ["accelerate", "launch", "t.py"], **GPUS}, False),
        (GPUS, False),
    ],
)
def test_a_command_that_becomes_several_processes_is_told(container: dict[str, Any], is_told: bool) -> None:  # noqa: FBT001 - a case
    """Without torchrun it was one process a pod, whatever the GPUs."""
    assert noted(imported(pytorch_job(container)), "starts 8 processes a node") is is_told
