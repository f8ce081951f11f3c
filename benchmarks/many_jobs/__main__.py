"""Many jobs in one stack on a real engine: our component beside hand-written programs and YAML in a `ConfigGroup`.

    python -m benchmarks.many_jobs [--jobs N ...] [--write [--add]]     1, 10, 100, 500 by default

All give the engine the same objects. Ours and two of the hand-written programs add a component for each job, one of the
two a record as well; all but ours have the objects as text already. A preview on an empty stack, an update, and a
preview in which nothing changes. Each program runs in a fresh interpreter, its imports are part of the first preview,
and the programs take turns, so that a busy machine is as busy for each. ``--write`` replaces RESULTS.json and
RESULTS.md; with ``--add`` what was measured with other numbers of jobs stays.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sys
import tempfile
import time
from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml
from pulumi.runtime.proto import provider_pb2 as proto
from typing_extensions import override

from benchmarks.common import results, stacks
from benchmarks.many_jobs import programs, report
from tests.engine.alone import empty_stack
from tests.engine.provider import KubernetesProvider

RESULTS: Final = Path(__file__).with_name("RESULTS.json")
ROUNDS: Final = {1: 5, 10: 3, 100: 3}
"""Of each number of jobs; one of others, of which each takes minutes."""
MOST: Final = {"ConfigGroup": 100, report.FLOOR: 100}
"""The most jobs that a program is measured with: a `ConfigGroup` of 500 would take half an hour of the run, and what
two resources cost is seen before."""
ONE_CHECKPOINT: Final = {"PULUMI_EXPERIMENTAL": "true", "PULUMI_SKIP_CHECKPOINTS": "true"}
"""The engine writes the whole state once and not after each step: with a file as the backend these writes alone grow
with the square of the number of jobs, whatever the program (https://github.com/pulumi/pulumi/pull/10750)."""


class YamlProvider(KubernetesProvider):
    """Reads YAML for a `ConfigGroup` too, as the official provider does for the program."""

    @override
    def Invoke(self, request: Any, context: Any) -> proto.InvokeResponse:
        response = proto.InvokeResponse()
        getattr(response, "return").update({"result": list(yaml.safe_load_all(request.args["text"]))})
        return response


def measure(arm: str, jobs: Mapping[str, programs.Objects]) -> dict[str, float]:
    """The figures of one program on a new stack: seconds, the CPU's of all operations together, and bytes."""
    declaring: list[float] = []

    def program() -> Awaitable[None] | None:
        begin = time.thread_time()
        programs.PROGRAMS[arm](jobs)
        declaring.append(time.thread_time() - begin)
        return asyncio.sleep(0) if arm == programs.IN_PULUMI_RUN else None

    with empty_stack(YamlProvider()) as stack:
        operations = {"preview": stack.preview, "up": stack.up, "unchanged": stack.preview}
        costs = {name: stacks.cost_of(partial(operation, program)) for name, operation in operations.items()}
        resources = stack.state()
    return {
        **{name: cost.seconds for name, cost in costs.items()},
        "program_cpu": sum(cost.program for cost in costs.values()),
        "declaring_cpu": sum(declaring),
        "engine_cpu": sum(cost.engine for cost in costs.values()),
        "program_memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "state": len(json.dumps(resources)),
        "resources": len(resources),
    }


def compare(jobs: int) -> dict[str, list[Mapping[str, float]]]:
    """The figures of every round, by program."""
    most = {arm: ROUNDS.get(jobs, 1) for arm in programs.PROGRAMS if jobs <= MOST.get(arm, jobs)}
    with tempfile.TemporaryDirectory() as folder:
        objects = Path(folder) / "objects.json"
        objects.write_text(json.dumps(programs.rendered(jobs)))

        def run(arm: str) -> dict[str, float]:
            return stacks.in_fresh_interpreter(
                "benchmarks.many_jobs", "--arm", arm, "--objects", str(objects), **ONE_CHECKPOINT
            )

        print(f"{jobs} jobs", file=sys.stderr, flush=True)
        return stacks.taking_turns(run, most)


def main(arguments: Sequence[str]) -> int:
    """Measure every number of jobs and print the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.many_jobs")
    parser.add_argument("--jobs", type=int, nargs="+", default=[1, 10, 100, 500])
    parser.add_argument("--write", action="store_true", help="replace the committed figures")
    parser.add_argument("--add", action="store_true", help="keep what was measured with other numbers of jobs")
    parser.add_argument("--arm", choices=programs.PROGRAMS, help=argparse.SUPPRESS)
    parser.add_argument("--objects", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.arm:
        print(json.dumps(measure(options.arm, json.loads(options.objects.read_text()))))
        return 0
    found: dict[int, dict[str, list[Mapping[str, float]]]] = {}
    machine = results.machine(results.command("benchmarks.many_jobs", arguments), "pulumi", "pulumi-kubernetes")
    if options.add:
        earlier = results.load(RESULTS)
        found |= {int(jobs): rounds for jobs, rounds in earlier["rounds"].items()}
        machine = [*earlier["machine"], *machine]
    kept = {"machine": machine, "rounds": found}
    for jobs in options.jobs:
        found[jobs] = compare(jobs)
        if options.write:  # what was measured stays, should a larger number fail
            results.save(RESULTS, kept, report.document)
    print(report.document(kept))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
