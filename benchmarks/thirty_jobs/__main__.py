"""Thirty jobs in one stack, by the delivery of their launcher: the time of an update and of a preview, and the state.

    python -m benchmarks.thirty_jobs [--jobs N] [--write]     --write replaces RESULTS.json and RESULTS.md

A real engine makes the jobs on an empty stack and previews the same program again. Each delivery runs in a fresh
interpreter with an engine and a stand-in provider of its own, and the deliveries take turns.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.common import results, stacks
from benchmarks.thirty_jobs import report
from tests.engine.alone import empty_stack

RESULTS: Final = Path(__file__).with_name("RESULTS.json")
JOBS: Final = 30
ROUNDS: Final = {delivery: 2 if delivery == report.OWN else 3 for delivery in report.DELIVERIES}
"""Fewer of the slowest, of which each takes minutes: together they take nine on two processors."""
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
        declared = partial(program, delivery, jobs)
        up = stacks.cost_of(partial(stack.up, declared))
        preview = stacks.cost_of(partial(stack.preview, declared))
        state = json.dumps(stack.state(), indent=JSON_INDENT)
    return {
        "up": up.seconds,
        "up_cpu": up.program + up.engine,
        "preview": preview.seconds,
        "preview_cpu": preview.program + preview.engine,
        "state": len(state),
    }


def main(arguments: Sequence[str]) -> int:
    """Measure every delivery and print the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.thirty_jobs")
    parser.add_argument("--jobs", type=int, default=JOBS, help=f"by default {JOBS}")
    parser.add_argument("--write", action="store_true", help="replace the committed figures")
    parser.add_argument("--delivery", choices=report.DELIVERIES, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.delivery:
        print(json.dumps(measure(options.delivery, options.jobs)))
        return 0
    machine = results.machine(results.command("benchmarks.thirty_jobs", arguments), "pulumi", "pulumi-kubernetes")

    def run(delivery: str) -> Mapping[str, float]:
        return stacks.in_fresh_interpreter(
            "benchmarks.thirty_jobs", "--delivery", delivery, "--jobs", str(options.jobs)
        )

    found = {"machine": machine, "jobs": options.jobs, "rounds": stacks.taking_turns(run, ROUNDS)}
    print(results.save(RESULTS, found, report.document) if options.write else report.document(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
