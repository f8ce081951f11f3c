"""One life of a job on each workload object and as plain torchrun: what each event costs, and whether the end is exact.

    python -m benchmarks.cluster.targets [--column COLUMN ...] [--write]

Every column is one job on the testbed, to which all events happen, one after the other. `--write` puts the figures into
TARGETS.json and TARGETS.md beside this file; run it on a machine without other load.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.cluster import figures
from benchmarks.cluster.page import facts, page
from benchmarks.cluster.testbed import fresh, running
from benchmarks.common import results
from tests.cluster import jobs, kube
from tests.cluster.cluster import Cluster
from tests.cluster.story import EVENTS, Life
from tests.cluster.targets import TARGETS
from tests.cluster.testbed import trainer
from tests.cluster.testbed.__main__ import DEFAULT_DIR

RESULTS: Final = Path(__file__).with_name("TARGETS.json")
LIMIT_SECONDS: Final = 200
"""How long an event waits for training, longer than plain torchrun's slowest recovery known (145 s)."""
FINISH: Final = "finish"
WEIGHTS: Final = "weights at the end"
NOT_REACHED: Final = "not reached"
RESOURCES: Final = {"memory": "1200Mi"}
"""There is no bound on the CPU, so that a quota does not slow imports down."""


@dataclass(frozen=True)
class Column:
    """The workload object and the launcher of one job."""

    target: str
    arm: jobs.Arm = "ours"

    @property
    def control(self) -> Mapping[str, Any]:
        """What torchrun needs of the config."""
        return {} if self.arm == "ours" else jobs.TORCHRUN[self.target]


COLUMNS: Final[Mapping[str, Column]] = {
    "`pytorchjob`": Column("pytorchjob"),
    "`job`": Column("job"),
    "`trainjob`": Column("trainjob"),
    "torchrun, `pytorchjob`": Column("pytorchjob", "plain"),
    "torchrun, `job`": Column("job", "plain"),
    "torchrun, `trainjob`": Column("trainjob", "plain"),
}


def main(arguments: Sequence[str]) -> int:
    """Measure, and print or write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster.targets", description=__doc__)
    parser.add_argument("--column", action="append", choices=COLUMNS, help="all by default")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    wanted = parser.parse_args(arguments)
    columns = wanted.column or [*COLUMNS]
    with contextlib.ExitStack() as stack:
        cluster, api = stack.enter_context(running())
        if any(COLUMNS[name].target == "trainjob" for name in columns):
            stack.enter_context(trainer.running(DEFAULT_DIR, api))
        machine = facts(api, "benchmarks.cluster.targets", arguments, "training-operator", "trainer")
        found = {}
        for name in columns:
            found[name] = measure(cluster, api, COLUMNS[name])
            print(f"{name}: {found[name]}", flush=True)
            if wanted.write:  # what was measured stays, should a later column fail
                results.save(RESULTS, {"machine": machine, "found": found}, document)
    print(table(found))
    return 0


def measure(cluster: Cluster, api: kube.Kube, column: Column) -> dict[str, str]:
    """What each event costs one job; the first that it does not survive is the last."""
    with fresh(cluster, api, "targets") as space:
        space.apply(jobs.toy_config_map())
        changes: dict[str, Any] = {"resources": RESOURCES, **column.control}
        life = Life(space, TARGETS[column.target], "life", jobs.Training(), changes, column.arm, LIMIT_SECONDS)
        begins: dict[str, float] = {}
        weights = NOT_REACHED
        with contextlib.suppress(AssertionError):
            for name, event in EVENTS.items():
                begins[name] = time.time()
                print(f"{column.target}, {column.arm}: {name}", flush=True)
                event(life)
            ended = time.time()
            weights = "others"
            jobs.check_result(space, life.training)
            weights = "exact"
        costs = outages(space.lines("*.jsonl"), begins)
        if weights != NOT_REACHED:
            costs[FINISH] = f"{ended - begins[FINISH]:.1f} s"
        else:
            costs[[*begins][-1]] = f"job lost, or no training within {LIMIT_SECONDS} s"
    return {**dict.fromkeys(EVENTS, NOT_REACHED), **costs, WEIGHTS: weights}


def outages(lines: Sequence[Mapping[str, Any]], begins: Mapping[str, float]) -> dict[str, str]:
    """The longest time without a step from each event to the next; for the start from the job's creation on."""
    ends = itertools.pairwise([*begins.values(), float("inf")])
    within = ([line for line in lines if float(line["time"]) < end] for _, end in ends)
    return {
        name: f"{figures.outage(earlier, begin):.1f} s"
        for (name, begin), earlier in zip(begins.items(), within, strict=True)
    }


def table(found: Mapping[str, Mapping[str, str]]) -> str:
    """A row for each event, a column for each job."""
    rows = [["event", *found], ["---"] * (len(found) + 1)]
    rows += [[event, *(column[event] for column in found.values())] for event in (*EVENTS, WEIGHTS)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def document(saved: results.Results) -> str:
    """The page TARGETS.md of what was saved."""
    note = (
        "Each column is one job of one to three nodes, to which everything happens in turn; each cell is the longest "
        "time without a step of any worker from the event to the next one (from the job's creation on for the start), "
        "and for the end the time until the job says that it has succeeded. A lost node is a pod deleted at once, a "
        "preempted one a pod that the cluster evicts; both are replaced, and an Indexed Job's controller waits before "
        "it does (training goes on meanwhile). A TrainJob asks for its maximum at once, so that growth there means "
        "that a pod comes later. Torchrun is as it comes, with its own store on node 0, which is what it loses with "
        "`lose the store`, and with restart policy `OnFailure` everywhere, because its exit code of any failure is 1. "
        "The operator makes its variables on a PyTorchJob. On the other two they are those of this package's pods, "
        "with the Service of index 0 as the endpoint: Trainer's own `torch` policy has one number of nodes, for all "
        "of which torchrun waits, so that the job would not start with two of three. "
        "Weights are exact where they are those of an undisturbed run and no saved step was repeated. One run a column."
    )
    return page("One life of a job on every workload object", saved, note=note, table=table(saved["found"]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
