"""Many jobs in one stack on a real engine: our component beside hand-written programs and YAML in a `ConfigGroup`.

    python -m benchmarks.many_jobs [--jobs N ...] [--write]     default: 1, 10, 100 and 500 jobs; --write: RESULTS.md

All give the engine the same objects. Ours and one of the hand-written programs add a component for each job; all but
ours have the objects as text already. A preview on an empty stack, an update, and a preview in which nothing changes.
Each program runs in a fresh interpreter, its imports are part of the first preview, and the programs take turns, so
that a busy machine is as busy for each.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import yaml
from pulumi.runtime.proto import provider_pb2 as proto
from typing_extensions import override

from benchmarks.many_jobs import programs
from tests.engine.alone import empty_stack
from tests.engine.provider import KubernetesProvider

RESULTS: Final = Path(__file__).with_name("RESULTS.md")
ROUNDS: Final = {1: 3, 10: 3, 100: 2}
"""Of each number of jobs; one of others, of which each takes minutes."""
MOST: Final = {"ConfigGroup": 100}
"""The most jobs that a program is measured with: one of 500 would take half an hour of the run."""
BASE: Final = "hand-written"
OURS: Final = "component"
PEER: Final = "hand-written component"
"""What a repository of many jobs would otherwise have: ours is compared with it as well."""
FIGURES: Final = {
    "preview": ("preview, s", 1, 1),
    "up": ("`up`, s", 1, 1),
    "unchanged": ("preview without a change, s", 1, 1),
    "program_memory": ("program's memory, MB", 1e6, 0),
    "state": ("state, MB", 1e6, 2),
}
"""Heading, unit and decimals of each figure."""
TIMES: Final = ("preview", "up", "unchanged")
ONE_CHECKPOINT: Final = {"PULUMI_EXPERIMENTAL": "true", "PULUMI_SKIP_CHECKPOINTS": "true"}
"""The engine writes the whole state once and not after each step: with a file as the backend these writes alone grow
with the square of the number of jobs, whatever the program (https://github.com/pulumi/pulumi/pull/10750)."""

ABOUT: Final = """\
Each job is a PyTorchJob, a Service, a Secret, a NetworkPolicy, the store's Deployment and an autoscaler; the launcher
comes from another stack. `hand-written` declares these six resources and nothing else. `hand-written component` wraps
the same lines in a `ComponentResource` for each job, as a program does that uses them again: seven resources. The
component of this package adds two resources to a job: itself, and the record of the launcher with which
the job started. A program can read such a record only as a resource of its own: Pulumi gives a program nothing back
that the state holds of a component. The resources of the component have the program's line in the state, and not the
whole stack of calls, which is more than a third of the state of the other programs.

The engine writes its state once at the end of an `up` (`PULUMI_SKIP_CHECKPOINTS`): with the default it writes all of it
after each step, which alone grows with the square of the number of objects, for each program alike. The provider is the
tests' stand-in, in the program's process. Memory is the largest that this process had.
"""


class YamlProvider(KubernetesProvider):
    """Reads YAML for a `ConfigGroup` too, as the official provider does for the program."""

    @override
    def Invoke(self, request: Any, context: Any) -> proto.InvokeResponse:
        response = proto.InvokeResponse()
        getattr(response, "return").update({"result": list(yaml.safe_load_all(request.args["text"]))})
        return response


def measure(arm: str, jobs: Mapping[str, programs.Objects]) -> dict[str, float]:
    """The figures of one program on a new stack: seconds and bytes."""

    def program() -> None:
        programs.PROGRAMS[arm](jobs)

    with empty_stack(YamlProvider()) as stack:
        operations = {"preview": stack.preview, "up": stack.up, "unchanged": stack.preview}
        figures = {name: seconds_of(partial(operation, program)) for name, operation in operations.items()}
        figures["state"] = len(json.dumps(stack.state()))
    figures["program_memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return figures


def seconds_of(operation: Callable[..., Any]) -> float:
    """On the clock; ends the program where the engine failed."""
    started = time.monotonic()
    outcome = operation(suppress_progress=True)
    if outcome.failed:
        sys.exit(outcome.text)
    return time.monotonic() - started


def in_fresh_interpreter(arm: str, objects: Path) -> dict[str, float]:
    """The figures of one program, imports included."""
    command = [sys.executable, "-m", "benchmarks.many_jobs", "--arm", arm, "--objects", str(objects)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, **ONE_CHECKPOINT})
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def compare(jobs: int) -> dict[str, list[dict[str, float]]]:
    """The figures of every round, by program."""
    found: dict[str, list[dict[str, float]]] = {arm: [] for arm in programs.PROGRAMS if jobs <= MOST.get(arm, jobs)}
    with tempfile.TemporaryDirectory() as folder:
        objects = Path(folder) / "objects.json"
        objects.write_text(json.dumps(programs.rendered(jobs)))
        for number in range(ROUNDS.get(jobs, 1)):
            for arm, figures in found.items():
                figures.append(in_fresh_interpreter(arm, objects))
                print(f"{jobs} jobs, round {number + 1}, {arm}: {figures[-1]}", file=sys.stderr, flush=True)
    return found


def page(found: Mapping[int, Mapping[str, Sequence[Mapping[str, float]]]]) -> str:
    """The figures as Markdown."""
    heads = [head for head, _, _ in FIGURES.values()]
    measured = (
        f"Measured {datetime.now(timezone.utc):%Y-%m-%d} on {os.cpu_count()} CPUs, {platform.system()} "
        f"{platform.release()}, Python {platform.python_version()}, pulumi {metadata.version('pulumi')}, "
        f"pulumi-kubernetes {metadata.version('pulumi-kubernetes')}, by `python -m benchmarks.many_jobs --write`; "
        f"load at the end {os.getloadavg()[0]:.1f}. Medians; in brackets the median of the ratios to the hand-written "
        "program's run of the same round, and behind it, for our component, the same to the hand-written component."
    )
    lines = [
        "# Many jobs in one stack",
        "",
        measured,
        "",
        f"| jobs | program | runs | {' | '.join(heads)} |",
        f"| --- | --- | --- |{' --- |' * len(heads)}",
        *(row(jobs, arm, rounds) for jobs, rounds in found.items() for arm in rounds),
        "",
        *slopes(found),
        "",
        ABOUT,
    ]
    return "\n".join(lines)


def row(jobs: int, arm: str, rounds: Mapping[str, Sequence[Mapping[str, float]]]) -> str:
    """One program with one number of jobs."""
    bases = [rounds[BASE], *([rounds[PEER]] if arm == OURS else [])]
    cells = [cell(name, rounds[arm], *bases) for name in FIGURES]
    return f"| {jobs} | {arm} | {len(rounds[arm])} | {' | '.join(cells)} |"


def cell(name: str, rounds: Sequence[Mapping[str, float]], *bases: Sequence[Mapping[str, float]]) -> str:
    """One figure with its ratio to each base."""
    _, unit, decimals = FIGURES[name]
    ratios = (
        statistics.median(ours[name] / theirs[name] for ours, theirs in zip(rounds, base, strict=True))
        for base in bases
    )
    shown = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    return f"{statistics.median(each[name] for each in rounds) / unit:.{decimals}f} ({shown})"


def slopes(found: Mapping[int, Mapping[str, Sequence[Mapping[str, float]]]]) -> list[str]:
    """How each program's times grow between the two largest numbers of jobs; 1 is linear."""
    *_, few, many = [0, *sorted(found)]
    if not few:
        return []
    grown = [
        f"{arm} {' / '.join(f'{slope(name, found[few][arm], found[many][arm], many / few):.2f}' for name in TIMES)}"
        for arm in found[few]
        if arm in found[many]
    ]
    return [f"Slope from {few} to {many} jobs (1 is linear), {' / '.join(TIMES)}: {', '.join(grown)}."]


def slope(
    name: str, few: Sequence[Mapping[str, float]], many: Sequence[Mapping[str, float]], times_as_many: float
) -> float:
    """In logarithms, between two numbers of jobs."""
    before, after = (statistics.median(each[name] for each in rounds) for rounds in (few, many))
    return math.log(after / before) / math.log(times_as_many)


def main(arguments: Sequence[str]) -> int:
    """Measure every number of jobs and print the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.many_jobs")
    parser.add_argument("--jobs", type=int, nargs="+", default=[1, 10, 100, 500])
    parser.add_argument("--write", action="store_true", help="replace RESULTS.md")
    parser.add_argument("--arm", choices=programs.PROGRAMS, help=argparse.SUPPRESS)
    parser.add_argument("--objects", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.arm:
        print(json.dumps(measure(options.arm, json.loads(options.objects.read_text()))))
        return 0
    text = page({jobs: compare(jobs) for jobs in options.jobs})
    print(text)
    if options.write:
        RESULTS.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
