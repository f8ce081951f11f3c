"""How many nodes and processes a job has, from its object and its command line."""

from __future__ import annotations

from typing import Any

from elastic_infra.config import JobConfig
from elastic_infra.importing.command_line import Command
from elastic_infra.importing.kinds import Workload

Data = dict[str, Any]


def processes_of(command: Command, default: str) -> Data:
    """Torchrun's number of processes a node where no option gives it."""
    return {"nproc_per_node": default} if command.is_torchrun else {}


def elastic_of(command: Command, workload: Workload) -> tuple[Data, tuple[str, ...]]:
    """As torchrun reads it: the command line counts, then what the object gives; and what is lost."""
    default = "auto" if workload.fields.get("target") in {"pytorchjob", "trainjob"} else "1"
    nodes, notes = _nodes(str(command.elastic.get("nnodes", "")), workload)
    return {**processes_of(command, default), **workload.elastic, **command.elastic, **nodes}, notes


def _nodes(told: str, workload: Workload) -> tuple[Data, tuple[str, ...]]:
    """The object's number of nodes; where that is the number of now alone, the command may have their range."""
    given: Data = {key: workload.elastic[key] for key in ("nnodes", "initial_nodes") if key in workload.elastic}
    low, _, high = told.partition(":")
    if not high or told == given["nnodes"]:
        return given, ()
    has_number_of_now = workload.fields.get("target") in {"job", "pytorchjob"} and "initial_nodes" not in given
    now = given["nnodes"]
    if has_number_of_now and low.isdecimal() and high.isdecimal() and int(low) <= int(now) <= int(high):
        return {"nnodes": told, "initial_nodes": int(now)}, ()
    return given, ("drops the range of --nnodes: the number of nodes is the object's. Set elastic.nnodes to have it.",)


def multiplied(command: Command, config: JobConfig) -> tuple[str, ...]:
    """What is told where a command that started once a pod is started several times."""
    count = config.nproc_per_node
    if command.is_torchrun or count == 1:
        return ()
    return (
        f"starts {count} processes a node, where the command was one: set elastic.nproc_per_node to 1 to keep that.",
    )
