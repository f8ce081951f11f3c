"""What an operation on a stack costs, and programs in interpreters of their own."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class Cost(NamedTuple):
    """What an operation took."""

    seconds: float
    program: float
    """Seconds of CPU of this process: the program, and the stand-in provider."""
    engine: float
    """Seconds of CPU of the engine."""


def cost_of(operation: Callable[..., Any]) -> Cost:
    """Do it; ends the program where the engine failed."""
    started, program, engine = time.monotonic(), cpu(resource.RUSAGE_SELF), cpu(resource.RUSAGE_CHILDREN)
    outcome = operation(suppress_progress=True)
    if outcome.failed:
        sys.exit(outcome.text)
    own, others = cpu(resource.RUSAGE_SELF) - program, cpu(resource.RUSAGE_CHILDREN) - engine
    return Cost(time.monotonic() - started, own, others)


def cpu(processes: int) -> float:
    """Seconds of CPU of this process, or of those that it has waited for."""
    usage = resource.getrusage(processes)
    return usage.ru_utime + usage.ru_stime


def in_fresh_interpreter(module: str, *arguments: str, **variables: str) -> dict[str, float]:
    """The figures that a program prints last, as JSON; its imports are part of them."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, **variables})
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def taking_turns(
    measure: Callable[[str], Mapping[str, float]], rounds: Mapping[str, int]
) -> dict[str, list[Mapping[str, float]]]:
    """The figures of every round, by program: a machine that is busy for a while is so for each of them.

    Args:
        measure: runs one program.
        rounds: how often, by program.
    """
    found: dict[str, list[Mapping[str, float]]] = {program: [] for program in rounds}
    for number in range(max(rounds.values())):
        for program in (each for each, most in rounds.items() if number < most):
            found[program].append(measure(program))
            print(f"round {number + 1}, {program}: {found[program][-1]}", file=sys.stderr, flush=True)
    return found
