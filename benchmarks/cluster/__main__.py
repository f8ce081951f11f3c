"""What membership changes cost on a real cluster: this launcher beside torchrun, as it comes and as experts set it.

    python -m benchmarks.cluster [EVENT ...]

Every cell is a job of its own on the test bed: one worker a node, a step of 0.2 s with an all-reduce, a checkpoint
every 5 steps. Writes RESULTS.md beside this file. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import os
import platform
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, Final

from benchmarks.cluster import figures
from benchmarks.cluster.figures import Cost
from tests.cluster import jobs, kube
from tests.cluster.bed import lifecycle, programs
from tests.cluster.bed.__main__ import DEFAULT_DIR
from tests.cluster.bed.layout import IMAGES
from tests.cluster.cluster import Cluster, Namespace, namespace, restarts
from tests.cluster.waiting import until

JOB: Final = "bench"
ARMS: Final[tuple[jobs.Arm, ...]] = ("plain", "tuned", "ours")
RESULTS: Final = Path(__file__).with_name("RESULTS.md")
Event = Callable[[Namespace], None]


def grow(space: Namespace) -> None:
    """A third node comes."""
    space.scale(JOB, 3)
    jobs.await_world(space, 3, after=jobs.last_step(space))


def shrink(space: Namespace) -> None:
    """The second of two nodes leaves."""
    space.scale(JOB, 1)
    jobs.await_world(space, 1, after=jobs.last_step(space))


def lose(node: int, grace: int | None) -> Event:
    """A node's pod is deleted, at once (0) or in its own time (None), and comes again."""

    def event(space: Namespace) -> None:
        pod = space.pod(f"{JOB}-worker-{node}")
        uid = space.api.get(pod)["metadata"]["uid"]
        space.api.delete(pod, grace=grace)
        until("the new pod", lambda: (space.api.find(pod) or {}).get("metadata", {}).get("uid") not in {None, uid})
        jobs.await_world(space, 2, after=jobs.last_step(space))

    return event


EVENTS: Final[Mapping[str, Event]] = {
    "scale up 2 to 3": grow,
    "scale down 2 to 1": shrink,
    "force-delete worker-1": lose(1, 0),
    "force-delete worker-0": lose(0, 0),
    "delete worker-0 gracefully": lose(0, None),
}


def main(wanted: Sequence[str]) -> int:
    """Measure the events, all by default, and write the table."""
    bed = lifecycle.up(DEFAULT_DIR, print)
    cluster = Cluster(programs.built("kubectl"), bed.kubeconfig, IMAGES, DEFAULT_DIR)
    costs: dict[str, dict[str, Cost]] = {}
    with tempfile.TemporaryDirectory() as folder, cluster.client(Path(folder)) as api:
        for name in wanted or EVENTS:
            costs[name] = {arm: measure(cluster, api, name, arm) for arm in ARMS}
            print(name, costs[name], flush=True)
    RESULTS.write_text(report(costs))
    return 0


def measure(cluster: Cluster, api: kube.Kube, name: str, arm: jobs.Arm) -> Cost:
    """One job, one event."""
    training = jobs.Training()
    settings: dict[str, Any] = {} if arm == "ours" else jobs.CONTROL
    with namespace(cluster, api, f"bench-{secrets.token_hex(3)}", {}, small=False) as space:
        space.apply(jobs.toy_config_map())
        jobs.submit(space, JOB, jobs.config(space, training, **settings), arm)
        jobs.await_world(space, 2)
        jobs.await_step(space, 20)
        begin = time.time()
        try:
            EVENTS[name](space)
            restarted = sum(restarts(pod) for pod in space.pods(JOB))
            jobs.finish(space, JOB, training)
            outcome = "succeeded"
        except AssertionError as error:
            restarted = sum(restarts(pod) for pod in space.pods(JOB))
            outcome = str(error).partition(";")[0]
        lines = space.lines("*.jsonl")
    return Cost(figures.outage(lines, begin), figures.lost(lines), restarted, outcome)


def report(costs: Mapping[str, Mapping[str, Cost]]) -> str:
    """The document."""
    machine = f"{os.cpu_count()} CPUs, Linux {platform.release()}, Python {platform.python_version()}"
    note = (
        "Each cell: the longest time without a step after the event, steps done again, container restarts, outcome. "
        "`plain` is torchrun as it comes; `tuned` sets `TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1` and "
        "`last_call_timeout=3`; `ours` is this package's launcher."
    )
    head = f"# What membership changes cost\n\nMeasured {date.today()} on {machine} by `python -m benchmarks.cluster`."  # noqa: DTZ011  # a date for readers
    return f"{head} {note}\n\n{figures.table(costs, ARMS)}\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
