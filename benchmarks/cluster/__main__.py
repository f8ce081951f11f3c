"""What membership changes cost on a real cluster: this launcher beside torchrun, with defaults and tuned.

    python -m benchmarks.cluster [--arm ARM ...] [--write] [ROW ...]

Every cell is a separate job on the testbed: one worker a node, a step of 0.2 s with an all-reduce, a checkpoint
every 5 steps. `--write` puts the figures into RESULTS.json and RESULTS.md; run it on a machine without other load.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.cluster import figures
from benchmarks.cluster.figures import Cost
from benchmarks.cluster.page import facts, page
from benchmarks.common import results
from tests.cluster import jobs, kube
from tests.cluster.cluster import Cluster, Namespace, namespace
from tests.cluster.testbed import lifecycle, programs
from tests.cluster.testbed.__main__ import DEFAULT_DIR
from tests.cluster.testbed.layout import IMAGES
from tests.cluster.waiting import until

JOB: Final = "bench"
ARMS: Final[tuple[jobs.Arm, ...]] = ("plain", "tuned", "ours")
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
    "start with 2 of max 3 nodes": Row(nothing, from_start=True),
    "scale up 2 to 3": Row(grow),
    "scale down 3 to 2": Row(shrink, nodes=3),
    "force-delete worker-1": Row(lose(1, 0)),
    "delete worker-0 gracefully": Row(lose(0, None)),
    "force-delete worker-0": Row(lose(0, 0)),
    "force-delete worker-1 during a scale-up": Row(lose_while_growing),
}


def main(arguments: Sequence[str]) -> int:
    """Measure, and print or write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster", description="What membership changes cost.")
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"all by default: {', '.join(ROWS)}")
    parser.add_argument("--arm", action="append", choices=ARMS, help="all by default")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    wanted = parser.parse_args(arguments)
    testbed = lifecycle.up(DEFAULT_DIR, print)
    cluster = Cluster(programs.built("kubectl"), testbed.kubeconfig, IMAGES, DEFAULT_DIR)
    costs: dict[str, dict[str, Cost]] = {name: {} for name in wanted.rows or ROWS}
    with tempfile.TemporaryDirectory() as folder, cluster.client(Path(folder)) as api:
        machine = facts(api, "benchmarks.cluster", arguments, "training-operator")
        floor = min(measure_import(cluster, api) for _ in range(2))  # the first one reads torch from disk
        print(f"importing torch alone: {floor:.1f} s", flush=True)
        for name, by_arm in costs.items():
            for arm in wanted.arm or ARMS:
                begin = time.monotonic()
                by_arm[arm] = measure(cluster, api, ROWS[name], arm)
                print(f"{name}, {arm}: {by_arm[arm]} (took {time.monotonic() - begin:.0f} s)", flush=True)
                if wanted.write:  # what was measured stays, should a later cell fail
                    results.save(RESULTS, {"machine": machine, "found": saved(costs, floor)}, document)
    print(figures.table(costs, ARMS))
    return 0


def measure(cluster: Cluster, api: kube.Kube, row: Row, arm: jobs.Arm) -> Cost:
    """One job, one event."""
    training = jobs.Training()
    elastic = {"nnodes": "1:3", "initial_nodes": row.nodes, "nproc_per_node": 1}
    settings: dict[str, Any] = {
        "elastic": elastic,
        "resources": RESOURCES,
        **({} if arm == "ours" else jobs.TORCHRUN["pytorchjob"]),
    }
    with namespace(cluster, api, f"bench-{secrets.token_hex(3)}", {}, small=False) as space:
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
    with namespace(cluster, api, f"bench-{secrets.token_hex(3)}", {}, small=False) as space:
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


def saved(costs: Mapping[str, Mapping[str, Cost]], floor: float) -> dict[str, Any]:
    """What is kept of a measurement."""
    rows = {name: {arm: asdict(cost) for arm, cost in by_arm.items()} for name, by_arm in costs.items()}
    return {"import": floor, "costs": rows}


def document(earlier: results.Results) -> str:
    """The page RESULTS.md of what was saved."""
    rows, floor = earlier["found"]["costs"], earlier["found"]["import"]
    costs = {name: {arm: Cost(**cost) for arm, cost in by_arm.items()} for name, by_arm in rows.items()}
    note = (
        "Each cell: the longest time without a step of any worker after the event (from the job's creation on for the "
        "start), repeated steps, container restarts, outcome. A wait is given up after "
        f"{LIMIT_SECONDS} s, and a job that had not trained again by then counts with that time. The script is the "
        "same in all arms and does not use the launcher. `plain` is torchrun as it comes; `tuned` sets "
        "`TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1` and `last_call_timeout=3`; `ours` is this package's launcher. "
        "One run a cell. No pod has a bound on its CPU. "
        f"For the start: two pods that only import torch had done so {floor:.1f} s after their job was created, and "
        "the first step takes 0.2 s more."
    )
    return page("What membership changes cost", earlier, note=note, table=figures.table(costs, ARMS))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
