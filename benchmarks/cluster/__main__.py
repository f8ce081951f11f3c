"""What membership changes cost on a real cluster: this launcher beside torchrun, with defaults and tuned.

    python -m benchmarks.cluster [--ours N] [--tuned N] [--plain N] [--only NAME ...] [--write] [--add]

Every figure is of a job of its own on the testbed: one worker a node, a step of 0.2 s with an all-reduce, a checkpoint
every 5 steps. `--write` puts the figures into RESULTS.json and RESULTS.md, with `--add` to those that are there. Run it
on a machine without other load.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.cluster import figures, report
from benchmarks.cluster.figures import Cost
from benchmarks.cluster.page import facts
from benchmarks.cluster.report import Sample
from benchmarks.cluster.testbed import fresh, running
from benchmarks.common import results
from tests.cluster import jobs, kube
from tests.cluster.cluster import Cluster, Namespace
from tests.cluster.waiting import until

JOB: Final = "bench"
RUNS: Final[Mapping[jobs.Arm, int]] = {"plain": 1, "tuned": 2, "ours": 3}
"""Of each event by default: plain torchrun's take minutes."""
RESULTS: Final = Path(__file__).with_name("RESULTS.json")
LIMIT_SECONDS: Final = 200
"""How long a cell waits for training, longer than plain torchrun's slowest recovery (145 s); then the job is lost."""
RESOURCES: Final = {"memory": "1200Mi"}
"""There is no bound on the CPU, so that a quota does not slow imports down."""
END_SECONDS: Final = 60
"""How long a job may take to succeed once it was told to finish."""


@dataclass(frozen=True)
class Row:
    """An event, and how many nodes train before it."""

    name: str
    event: Callable[[Namespace], None]
    nodes: int = 2
    from_start: bool = False
    """Whether time counts from the job's creation on."""


def nothing(space: Namespace) -> None:
    """The start is all there is to measure."""
    del space


def grow(space: Namespace) -> None:
    """A third node comes."""
    space.scale(JOB, 3)
    await_world(space, 3)


def shrink(space: Namespace) -> None:
    """The third of three nodes leaves."""
    space.scale(JOB, 2)
    await_world(space, 2)


def lose(node: int, grace: int | None) -> Callable[[Namespace], None]:
    """A node's pod is deleted, at once (0) or in its own time (None), and comes again."""

    def event(space: Namespace) -> None:
        pod = space.pod(f"{JOB}-worker-{node}")
        uid = space.api.get(pod)["metadata"]["uid"]
        space.api.delete(pod, grace=grace)
        until("the new pod", lambda: (space.api.find(pod) or {}).get("metadata", {}).get("uid") not in {None, uid})
        await_world(space, 2)

    return event


def lose_while_growing(space: Namespace) -> None:
    """The third node's pod runs, and at this moment the second one's is deleted."""
    space.scale(JOB, 3)
    newcomer = space.pod(f"{JOB}-worker-2")
    until("the third pod", lambda: (space.api.find(newcomer) or {}).get("status", {}).get("phase") == "Running")
    space.api.delete(space.pod(f"{JOB}-worker-1"), grace=0)
    await_world(space, 3)


def await_world(space: Namespace, size: int) -> None:
    """Returns once so many workers train together at a step that none has done yet."""
    jobs.await_world(space, size, after=jobs.last_step(space), seconds=LIMIT_SECONDS)


ROWS: Final[Mapping[str, Row]] = {
    "start": Row("start with 2 of max 3 nodes", nothing, from_start=True),
    "grow": Row("scale up 2 to 3", grow),
    "shrink": Row("scale down 3 to 2", shrink, nodes=3),
    "lose-1": Row("force-delete worker-1", lose(1, 0)),
    "leave-0": Row("delete worker-0 gracefully", lose(0, None)),
    "lose-0": Row("force-delete worker-0", lose(0, 0)),
    "lose-growing": Row("force-delete worker-1 during a scale-up", lose_while_growing),
}


def main(arguments: Sequence[str]) -> int:
    """Measure, and print or write the table."""
    wanted = _parse(arguments)
    with running() as (cluster, api):
        machine = facts(api, "benchmarks.cluster", arguments, "training-operator")
        floor = min(measure_import(cluster, api) for _ in range(2))  # the first one reads torch from disk
        print(f"importing torch alone: {floor:.1f} s", flush=True)
        samples: list[Sample] = []
        if wanted.add:
            earlier = results.load(RESULTS)
            machine, samples = [*earlier["machine"], *machine], report.kept(earlier["samples"])
            floor = earlier["import_seconds"]
        found = {"machine": machine, "import_seconds": floor, "limit_seconds": LIMIT_SECONDS}
        for row, arm in _cells(wanted):
            begin = time.monotonic()
            samples.append(Sample(row.name, arm, measure(cluster, api, row, arm)))
            print(f"{samples[-1]} (took {time.monotonic() - begin:.0f} s)", flush=True)
            if wanted.write:  # what was measured stays, should a later cell fail
                results.save(RESULTS, {**found, "samples": [asdict(each) for each in samples]}, report.document)
    print(report.table(samples))
    return 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster", description="What membership changes cost.")
    for arm, runs in RUNS.items():
        parser.add_argument(f"--{arm}", type=int, default=runs, metavar="N", help="runs of each event (%(default)s)")
    parser.add_argument("--only", nargs="*", choices=ROWS, default=[*ROWS], help="which events")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    parser.add_argument("--add", action="store_true", help="keep the figures that are there")
    return parser.parse_args(arguments)


def _cells(wanted: argparse.Namespace) -> Iterator[tuple[Row, jobs.Arm]]:
    """Everything that is to be run: arms in turn, round after round."""
    runs = {arm: int(getattr(wanted, arm)) for arm in RUNS}
    for number in range(max(runs.values())):
        for name in wanted.only:
            for arm in RUNS:
                if number < runs[arm]:
                    yield ROWS[name], arm


def measure(cluster: Cluster, api: kube.Kube, row: Row, arm: jobs.Arm) -> Cost:
    """One job, one event."""
    training = jobs.Training()
    elastic = {"nnodes": "1:3", "initial_nodes": row.nodes, "nproc_per_node": 1}
    settings: dict[str, Any] = {
        "elastic": elastic,
        "resources": RESOURCES,
        **({} if arm == "ours" else jobs.TORCHRUN["pytorchjob"]),
    }
    with fresh(cluster, api, "bench") as space:
        space.apply(jobs.toy_config_map())
        begin = time.time()
        jobs.submit(space, JOB, jobs.config(space, training, **settings), arm)
        outcome, gave_up = "succeeded", None
        try:
            jobs.await_world(space, row.nodes, seconds=LIMIT_SECONDS)
            jobs.await_step(space, 20)
            begin = begin if row.from_start else time.time()
            row.event(space)
            jobs.finish(space, JOB, training, END_SECONDS)
        except AssertionError as error:
            outcome, gave_up = _went_wrong(space, error), time.time()
        lines, starts = space.lines("*.jsonl"), space.starts(JOB)
        end = gave_up if outcome.startswith("Waited") else None
        again = sum(starts.values()) - len(starts)
    return Cost(figures.outage(lines, begin, end), figures.lost(lines), again, outcome)


def measure_import(cluster: Cluster, api: kube.Kube) -> float:
    """Seconds from a job's creation until both of its nodes have imported torch, with nothing else to do."""
    with fresh(cluster, api, "bench") as space:
        settings = jobs.config(space, jobs.Training(), **jobs.CONTROL, resources=RESOURCES)
        space.apply(jobs.toy_config_map())
        begin = time.time()
        jobs.submit(space, JOB, settings, "import")
        until("two imports", lambda: len(space.lines("*.jsonl")) == 2, LIMIT_SECONDS)  # noqa: PLR2004  two nodes
        return max(float(str(line["time"])) for line in space.lines("*.jsonl")) - begin


def _went_wrong(space: Namespace, error: AssertionError) -> str:
    if "Failed" in space.conditions(JOB):
        return "the job failed"
    said = str(error).partition(";")[0].splitlines()
    return said[0] if said else "other weights than those of an undisturbed run, or steps lost that were saved"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
