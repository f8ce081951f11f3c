"""How long an Indexed Job takes to replace a lost pod: the first, third and sixth loss, of one index and of several.

    python -m benchmarks.cluster.index_losses [--write]

The Job controller waits before it makes a pod anew, longer with each failure. The pods only sleep, so that the figures
are the controller's and the kubelet's alone. `--write` puts the figures into INDEX_LOSSES.json and
INDEX_LOSSES.md beside this file.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from benchmarks.cluster.page import facts, page
from benchmarks.cluster.testbed import fresh, running
from benchmarks.common import results
from tests.cluster import faults, jobs, kube
from tests.cluster.cluster import Namespace, is_ready
from tests.cluster.waiting import until

RESULTS: Final = Path(__file__).with_name("INDEX_LOSSES.json")
NODES: Final = 6
LOSSES: Final = 6
SHOWN: Final = (1, 3, 6)
"""The losses that the table has."""
LIMIT_SECONDS: Final = 700
"""Longer than the controller's longest delay, ten minutes."""
INDEX: Final = "batch.kubernetes.io/job-completion-index"


@dataclass(frozen=True)
class Row:
    """Which index each loss takes, how, and whether the delay is the index's own."""

    index: Callable[[int], int]
    lose: Callable[[Namespace, str], None]
    is_per_index: bool = True


def delete(space: Namespace, pod: str) -> None:
    """The pod is gone at once, as with its cluster node: a failure."""
    space.api.delete(space.pod(pod), grace=0)


ROWS: Final = {
    "one index, deleted": Row(lambda _: 0, delete),
    "one index, evicted": Row(lambda _: 0, faults.evict),
    "different indices, deleted": Row(lambda loss: loss - 1, delete),
    "different indices, deleted, without `backoffLimitPerIndex`": Row(
        lambda loss: loss - 1, delete, is_per_index=False
    ),
}


def main(arguments: Sequence[str]) -> int:
    """Measure, and print or write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster.index_losses", description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    wanted = parser.parse_args(arguments)
    with (
        running() as (cluster, api),
        fresh(cluster, api, "losses") as space,
        ThreadPoolExecutor(len(ROWS)) as pool,  # the delays are long, and the jobs do nothing
    ):
        machine = facts(api, "benchmarks.cluster.index_losses", arguments)
        space.apply(jobs.toy_config_map())
        measured = pool.map(lambda item: measure(space, f"job{item[0]}", item[1]), enumerate(ROWS.values()))
        found = dict(zip(ROWS, measured, strict=True))
        print(table(found))
        if wanted.write:  # what was measured stays, should the end of the namespace fail
            results.save(RESULTS, {"machine": machine, "found": found}, document)
    return 0


def measure(space: Namespace, name: str, row: Row) -> list[float]:
    """Seconds from each loss until the controller has made the next pod, of one job."""
    for manifest in jobs.objects(name, settings(space), "ours"):
        if manifest["kind"] == "Job":
            space.apply(idle(manifest, is_per_index=row.is_per_index))
    until("all pods", lambda: len(ready(space, name)) == NODES, describe=space.describe)
    found = []
    for loss in range(1, LOSSES + 1):
        index = row.index(loss)
        before, begin = ready(space, name)[index], time.time()
        row.lose(space, before)
        after = until(
            f"another pod {index} of {name}",
            lambda index=index, before=before: another(space, name, index, before),  # type: ignore[misc]
            LIMIT_SECONDS,
            describe=space.describe,
        )
        made = space.api.get(space.pod(after))["metadata"]["creationTimestamp"]
        found.append(datetime.fromisoformat(made.replace("Z", "+00:00")).timestamp() - begin)
        print(f"{name}, loss {loss}: {found[-1]:.0f} s", flush=True)
    space.api.delete(space.named("batch/v1", "Job", name), propagation="Foreground")
    return found


def settings(space: Namespace) -> dict[str, Any]:
    """The config of a job of small pods."""
    elastic = {"nnodes": NODES, "nproc_per_node": 1}
    run_policy = {"backoff_limit": 1000}
    resources = {"cpu": "10m", "memory": "32Mi"}
    return jobs.config(
        space,
        jobs.Training(),
        **{**jobs.CONTROL, "target": "job", "elastic": elastic, "run_policy": run_policy, "resources": resources},
        launcher={"delivery": "image"},
    )


def idle(job: kube.Object, *, is_per_index: bool) -> kube.Object:
    """The Job with pods that sleep until they are told to go."""
    container = job["spec"]["template"]["spec"]["containers"][0]
    container.update(command=["sh", "-c", "trap 'exit 143' TERM; sleep infinity & wait"], args=[])
    if not is_per_index:
        del job["spec"]["backoffLimitPerIndex"]
    return job


def ready(space: Namespace, name: str) -> dict[int, str]:
    """Names of the pods that run and stay, by index."""
    found = space.api.list("v1", "Pod", space.name, f"batch.kubernetes.io/job-name={name}")
    alive = [pod for pod in found if is_ready(pod) and "deletionTimestamp" not in pod["metadata"]]
    return {int(pod["metadata"]["labels"][INDEX]): pod["metadata"]["name"] for pod in alive}


def another(space: Namespace, name: str, index: int, before: str) -> str:
    """Name of the pod that has taken the place of another and is ready; empty as long as there is none."""
    now = ready(space, name).get(index, "")
    return "" if now == before else now


def table(found: dict[str, list[float]]) -> str:
    """A row for each way to lose pods, a column for each loss."""
    head = ["replaced after loss", *map(str, SHOWN)]
    rows = [[name, *(f"{seconds[loss - 1]:.0f} s" for loss in SHOWN)] for name, seconds in found.items()]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows])


def document(saved: results.Results) -> str:
    """The page INDEX_LOSSES.md of what was saved."""
    note = (
        f"Jobs of {NODES} pods that sleep; each loss comes once the one before has been replaced. `deleted` counts as "
        "a failure, `evicted` is a disruption, which the job's pod failure policy ignores. A time begins with the "
        "request and ends when the controller makes the next pod. One run a row, all at the same time."
    )
    return page("Losses of an Indexed Job's pods", saved, note=note, table=table(saved["found"]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
