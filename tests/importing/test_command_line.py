"""Command lines of torchrun and of what starts it, as fields."""

from __future__ import annotations

from typing import Any

import pytest

from elastic_infra import ConfigError
from elastic_infra.importing.command_line import Command, read_command

GIVEN: dict[str, dict[str, Any]] = {
    "torchrun t.py": {},
    "torchrun --nproc_per_node=1 --max-restarts 0 t.py": {"nproc_per_node": "1", "max_restarts": 0},
    "torchrun --nproc_per_node=cpu t.py": {"nproc_per_node": "auto"},
    "torchrun --node_rank=$(RANK) --master_port $(MASTER_PORT) t.py": {},
    "torchrun --rdzv-conf=timeout=7,read_timeout=60 t.py": {"rdzv_configs": {"timeout": 7}},
    "python -m torch.distributed.launch --use_env --nproc_per_node=2 t.py": {"nproc_per_node": "2"},
}


@pytest.mark.parametrize(("line", "elastic"), GIVEN.items(), ids=GIVEN.keys())
def test_only_options_on_the_command_line_count(line: str, elastic: dict[str, Any]) -> None:
    """Torchrun's defaults may be replaced by variables of the operator; a place of a node is the job's."""
    found = read_command(line.split())

    assert (found.fields, found.elastic, found.is_torchrun) == ({"script": "t.py", "args": []}, elastic, True)


def test_arguments_of_the_script_are_its_own() -> None:
    """Options of torchrun's names behind the script are none of torchrun's."""
    words = ["torchrun", "-r", "3", "--standalone", "t.py", "--node_rank", "$(RANK)", "--use_env"]

    assert read_command(words).fields["args"] == ["--node_rank", "$(RANK)", "--use_env"]


NOTES = {
    "torchrun --rdzv-conf=timeout=7,read_timeout=60 t.py": "drops read_timeout of --rdzv-conf",
    "python -m torch.distributed.launch t.py": "drops the argument --local-rank",
    "/opt/venv/bin/python -m torch.distributed.run t.py": "runs the image's python3 instead of that in /opt/venv/bin",
    "/opt/conda/bin/torchrun t.py": "runs the image's python3 instead of that in /opt/conda/bin",
    "bash -lc 'torchrun t.py'": "runs without the profile of a login shell",
    "accelerate launch --num_processes=8 t.py": "starts accelerate once a node",
    "/usr/bin/mpirun -np 8 torchrun t.py": "starts mpirun once a node",
    "python -m deepspeed.launcher.runner t.py": "starts deepspeed once a node",
}


@pytest.mark.parametrize(("line", "said"), NOTES.items(), ids=NOTES.keys())
def test_what_is_lost_of_a_command_line_is_told(line: str, said: str) -> None:
    """A line each, and no other."""
    words = line.split() if "'" not in line else ["bash", "-lc", line.split("'")[1]]
    (note,) = read_command(words).notes

    assert note.startswith(said)


@pytest.mark.parametrize(
    "line",
    [
        "torchrun t.py",
        "/usr/bin/python3 -m torch.distributed.run t.py",
        "python -m torch.distributed.launch --use-env t.py",
        "./train --fast",
    ],
)
def test_where_nothing_is_lost_nothing_is_told(line: str) -> None:
    """A note is read only where notes are rare."""
    assert read_command(line.split()).notes == ()


@pytest.mark.parametrize(
    "line", ["accelerate launch t.py", "deepspeed t.py", "python -m accelerate.commands.launch t.py"]
)
def test_what_starts_processes_of_its_own_runs_once_a_node(line: str) -> None:
    """Otherwise it would start them once a GPU."""
    assert read_command(line.split()).elastic == {"nproc_per_node": "1"}


@pytest.mark.parametrize(
    "line",
    [
        "uv run torchrun t.py",
        "time torchrun t.py",
        "sudo -E /opt/torchrun t.py",
        "uv run python -m torch.distributed.run t",
    ],
)
def test_a_wrapper_around_torchrun_is_refused(line: str) -> None:
    """The launcher would start it, and by it torchrun, once for each worker."""
    with pytest.raises(ConfigError, match=r"would start once for each worker\. Leave (uv|time|sudo) out"):
        read_command(line.split())


def test_variables_of_a_shell_go_with_the_command() -> None:
    """They are no part of the words."""
    found = read_command(["bash", "-c", "OMP_NUM_THREADS=1 torchrun t.py"])

    assert found == Command({"script": "t.py", "args": []}, is_torchrun=True, env={"OMP_NUM_THREADS": "1"})
