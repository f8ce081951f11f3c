"""From the start of a lost pod's successor to the first step of all nodes, stage by stage, while the others train on.

    python -m benchmarks.cluster.in_place [--losses N] [--cluster-dir FOLDER] [--write]

A job of three nodes, whose workers stay while nodes come and go, loses a pod at once, several times in a row. Beside
each loss the same pod imports torch alone, which no worker can do without. `--write` puts the figures into
IN_PLACE.json and IN_PLACE.md beside this file; run it on a machine without other load.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.cluster.page import facts, page
from benchmarks.cluster.stages import Times, moments
from benchmarks.cluster.stages import table as stages_table
from benchmarks.cluster.testbed import fresh, running
from benchmarks.common import results
from tests.cluster import faults, jobs
from tests.cluster.cluster import Namespace
from tests.cluster.testbed.__main__ import DEFAULT_DIR
from tests.cluster.waiting import until

JOB: Final = "bench"
LOST: Final = f"{JOB}-worker-1"
NODES: Final = 3
RESULTS: Final = Path(__file__).with_name("IN_PLACE.json")
SCRIPT: Final = Path(jobs.__file__).with_name("moved.py")
SETTLED_STEPS: Final = 25
"""Steps of all nodes between two losses, five seconds of training."""
RESOURCES: Final = {"memory": "2400Mi"}
"""There is no bound on the CPU, so that a quota does not slow imports down; the second import of torch has room."""
STAGES: Final = {
    "launcher_started": "the launcher has read its command line",
    "fork_server": "the fork server has imported torch and `torch._dynamo`",
    "worker_started": "the worker begins with the script",
    "workers_prepared": "its model is built",
    "workers_started": "the others have left their step, and it is told its place",
    "state_restored": "it has the state",
}
"""The new node's events, in the order of time."""
WHOLE: Final = "all nodes have made a step"
ALONE, WITH_DYNAMO = "a Python that imports torch alone", "and `torch._dynamo`, as the first optimizer does"
IMPORT: Final = """
import os, pathlib, time, torch
def age():
    fields = pathlib.Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
alone = age()
import torch._dynamo
print(alone, age())
"""


def main(arguments: Sequence[str]) -> int:
    """Measure, and print or write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster.in_place", description=__doc__)
    parser.add_argument("--losses", type=int, default=3, metavar="N", help="%(default)s by default")
    parser.add_argument("--cluster-dir", type=Path, default=DEFAULT_DIR, help="the testbed's folder (%(default)s)")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    wanted = parser.parse_args(arguments)
    with (
        running(wanted.cluster_dir) as (cluster, api),
        fresh(cluster, api, "in-place") as space,
    ):
        machine = facts(api, "benchmarks.cluster.in_place", arguments, "training-operator")
        found = measure(space, wanted.losses)
        print(table(found))
        if wanted.write:  # what was measured stays, should the end of the namespace fail
            results.save(RESULTS, {"machine": machine, "found": found}, document)
    return 0


def measure(space: Namespace, losses: int) -> list[Times]:
    """One job, and so many losses of one of its pods, one after the other."""
    space.apply({**jobs.toy_config_map(), "data": {"toy.py": SCRIPT.read_text()}})
    elastic = {"nnodes": f"1:{NODES}", "initial_nodes": NODES, "nproc_per_node": 1}
    settings = jobs.config(
        space, jobs.Training(), elastic=elastic, resources=RESOURCES, launcher={"events": "-"}, runtime={}
    )
    jobs.submit(space, JOB, settings, "ours")
    found: list[Times] = []
    for number in range(losses):
        jobs.await_world(space, NODES)
        jobs.await_world(space, NODES, after=jobs.last_step(space) + SETTLED_STEPS)
        found.append(lose(space))
        print(f"loss {number + 1}: {found[-1]}", flush=True)
    jobs.tell_to_finish(space)
    space.await_condition(JOB, "Succeeded")
    return found


def lose(space: Namespace) -> Times:
    """The stages of one pod's successor, and the time that torch's import takes in it."""
    old = {str(line["process"]) for line in space.lines(f"{LOST}.jsonl")}
    faults.lose_pod(space, LOST, grace=0)

    def steps() -> list[Mapping[str, Any]]:
        new = [line for line in space.lines(f"{LOST}.jsonl") if line["process"] not in old]
        return [line for line in new if line["world"] == NODES]

    first = until("the new worker's step", steps, jobs.TRAINING_SECONDS, describe=space.describe)[0]
    log = space.cluster.run("-n", space.name, "logs", LOST).splitlines()
    alone = space.cluster.run("-n", space.name, "exec", LOST, "--", "python3", "-c", IMPORT).split()
    return {**stages(log, first), **dict(zip((ALONE, WITH_DYNAMO), map(float, alone), strict=True))}


def stages(log: Iterable[str], first: Mapping[str, Any]) -> Times:
    """Seconds from a container's start to each stage, from its log and its worker's first step with all nodes."""
    started = float(first["started"])
    return {text: at - started for text, at in {**moments(log, STAGES), WHOLE: float(first["time"])}.items()}


def table(found: Sequence[Times]) -> str:
    """A row for each stage: median, p95, the number of losses, and each of them."""
    beside = "beside it, in the same pod, seconds from its own start"
    return stages_table(found, "the container's start", beside, ALONE)


def document(saved: results.Results) -> str:
    """The page IN_PLACE.md of what was saved."""
    note = (
        f"A job of {NODES} nodes on the testbed, whose workers stay (`ElasticGroup`) and make a step of 0.2 s, loses "
        "worker-1 at once, and the two others train on. The worker's script has a model with DistributedDataParallel "
        "and an optimizer, so it needs `torch._dynamo` too. The interpreter and torch are the machine's own, with "
        "their bytecode. No pod has a bound on its CPU. p95 is by nearest rank: of so few losses the slowest."
    )
    return page("A lost node's way back", saved, note=note, table=table(saved["found"]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
