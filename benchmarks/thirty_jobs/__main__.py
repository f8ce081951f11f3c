"""Thirty jobs in one stack, by the delivery of their launcher: the time of an update and of a preview, and the state.

    python -m benchmarks.thirty_jobs [JOBS] [--write]     default: 30 jobs; --write replaces RESULTS.md

A real engine makes the jobs on an empty stack and previews the same program again. Each delivery runs in a fresh
interpreter with an engine and a stand-in provider of its own. CPU time counts the program, the engine and the provider;
a busy machine changes the CPU time less than the time on the clock.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.engine.alone import empty_stack

if TYPE_CHECKING:
    from collections.abc import Callable

RESULTS: Final = Path(__file__).with_name("RESULTS.md")
DELIVERIES: Final = {
    "image": "in the image (`delivery: image`)",
    "elsewhere": "one `ElasticLauncher`, in a stack of its own",
    "shared": "one `ElasticLauncher`, in the stack of the jobs",
    "own": "a ConfigMap for each job (the default)",
}
BASE: Final = "image"
BEFORE: Final = (
    "Before there was an `ElasticLauncher`, thirty jobs with a ConfigMap each took 5 min 22 s of `up` and 31 MB of "
    "state, on another machine.\n"
)
"""What the deliveries were made for; kept by hand, since no code of today has these figures."""
JSON_INDENT: Final = 4
"""Of Pulumi's file backend."""


def program(delivery: str, jobs: int) -> None:
    """Declare so many jobs, their launcher delivered in one way."""
    from elastic_infra import ElasticLauncher, ElasticTrainingJob

    launcher: dict[str, Any] = {"delivery": "image"} if delivery == "image" else {}
    if delivery == "elsewhere":
        launcher = {"config_map": "team-launcher-0123456789-abcdef"}
    if delivery == "shared":
        launcher = {"config_map": ElasticLauncher("team", {}).config_map}
    for index in range(jobs):
        config: Any = {
            "image": f"registry.example.com/train:{index}",
            "script": "train.py",
            "elastic": {"nnodes": "2:4"},
            "resources": {"cpu": "8", "memory": "32Gi", "gpu": {"count": 1}},
            "storage": {"checkpoint": {"claim": "checkpoints"}},
            "launcher": launcher,
        }
        ElasticTrainingJob(f"job-{index}", config)


def measure(delivery: str, jobs: int) -> dict[str, float]:
    """The figures of one delivery on a new stack."""
    with empty_stack() as stack:
        up = costs(lambda: stack.up(lambda: program(delivery, jobs), suppress_progress=True))
        preview = costs(lambda: stack.preview(lambda: program(delivery, jobs), suppress_progress=True))
        state = json.dumps(stack.state(), indent=JSON_INDENT)
    return {"up_s": up[0], "up_cpu": up[1], "preview_s": preview[0], "preview_cpu": preview[1], "state": len(state)}


def costs(operation: Callable[[], Any]) -> tuple[float, float]:
    """Seconds on the clock and of CPU."""
    started, before = time.monotonic(), cpu_seconds()
    outcome = operation()
    if outcome.failed:
        sys.exit(outcome.text)
    return time.monotonic() - started, cpu_seconds() - before


def cpu_seconds() -> float:
    """Of this process and of those that it has waited for."""
    usages = [resource.getrusage(processes) for processes in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def in_fresh_interpreter(delivery: str, jobs: int) -> dict[str, float]:
    """The figures of one delivery, imports included."""
    command = [sys.executable, "-m", "benchmarks.thirty_jobs", delivery, str(jobs)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def page(jobs: int, found: dict[str, dict[str, float]]) -> str:
    """The figures as Markdown."""
    head = (
        "# Thirty jobs in one stack\n\n"
        f"Measured {datetime.now(timezone.utc):%Y-%m-%d} on {os.cpu_count()} CPUs, {platform.system()} "
        f"{platform.release()}, by `python -m benchmarks.thirty_jobs --write`: {jobs} jobs of 2 to 4 nodes, one run a "
        "row, load of the machine at the end "
        f"{os.getloadavg()[0]:.1f}. In brackets the ratio to the first row.\n\n"
        "| the launcher is delivered | `up`, s | `up`, CPU s | `preview`, s | `preview`, CPU s | state, MB |\n"
        "| --- | --- | --- | --- | --- | --- |\n"
    )
    rows = "".join(f"| {DELIVERIES[name]} | {' | '.join(cells(found[name], found[BASE]))} |\n" for name in found)
    return f"{head}{rows}\n{BEFORE}"


def cells(figures: dict[str, float], base: dict[str, float]) -> list[str]:
    """One row, each with its ratio to the base."""
    scale = {"state": 1e6}
    return [
        f"{value / scale.get(name, 1):.{2 if name == 'state' else 1}f} ({value / base[name]:.2f})"
        for name, value in figures.items()
    ]


def main(arguments: list[str]) -> int:
    """Measure every delivery and print the page."""
    if arguments and arguments[0] in DELIVERIES:
        print(json.dumps(measure(arguments[0], int(arguments[1]))))
        return 0
    jobs = next((int(each) for each in arguments if each.isdecimal()), 30)
    text = page(jobs, {delivery: in_fresh_interpreter(delivery, jobs) for delivery in DELIVERIES})
    print(text)
    if "--write" in arguments:
        RESULTS.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
