"""From a job's creation to the first step of both nodes, stage by stage, beside pods that import torch alone.

    python -m benchmarks.cluster.start [--rounds N] [--cluster-dir FOLDER] [--write]

Jobs and pods take turns. `--write` puts the figures into START.json and START.md beside this file; run it on a machine
without other load.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.cluster.__main__ import measure_import
from benchmarks.cluster.page import facts, page
from benchmarks.cluster.stages import Times, moments
from benchmarks.cluster.stages import table as stages_table
from benchmarks.cluster.testbed import fresh, running
from benchmarks.common import results
from tests.cluster import jobs, kube
from tests.cluster.cluster import Cluster, Namespace
from tests.cluster.testbed.__main__ import DEFAULT_DIR

JOB: Final = "bench"
NODES: Final = 2
RESULTS: Final = Path(__file__).with_name("START.json")
RESOURCES: Final = {"memory": "1200Mi"}
"""There is no bound on the CPU, so that a quota does not slow imports down."""
STARTED: Final = "the containers run"
STAGES: Final = {
    "launcher_started": "the launchers have read their command lines",
    "rendezvous_started": "the launchers can be in a group",
    "rendezvous_completed": "the group is made",
    "worker_started": "the workers have torch and begin with the script",
}
"""The events of a node, in the order of time."""
FIRST: Final = "both have made a step, of 0.2 s"
ALONE: Final = "two pods that only import torch have done so"
ABOVE: Final = "the first step, less that import and the step itself"
STEP_SECONDS: Final = 0.2
STARTED_AT: Final = """
import os, pathlib, time
fields = pathlib.Path("/proc/1/stat").read_text().rpartition(")")[2].split()
print(time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + int(fields[19]) / os.sysconf("SC_CLK_TCK"))
"""
"""When a container's first process started, in seconds since the epoch."""


def main(arguments: Sequence[str]) -> int:
    """Measure, and print or write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster.start", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="%(default)s by default")
    parser.add_argument("--cluster-dir", type=Path, default=DEFAULT_DIR, help="the testbed's folder (%(default)s)")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    wanted = parser.parse_args(arguments)
    found: list[Times] = []
    with running(wanted.cluster_dir) as (cluster, api):
        machine = facts(api, "benchmarks.cluster.start", arguments, "training-operator")
        measure_import(cluster, api)  # the first one reads torch from disk
        for _ in range(wanted.rounds):
            times, alone = measure(cluster, api), measure_import(cluster, api)
            found.append({**times, ALONE: alone, ABOVE: times[FIRST] - STEP_SECONDS - alone})
            print(found[-1], flush=True)
            if wanted.write:  # what was measured stays, should a later round fail
                results.save(RESULTS, {"machine": machine, "found": found}, document)
    print(table(found))
    return 0


def measure(cluster: Cluster, api: kube.Kube) -> Times:
    """One job of two nodes, from its creation on; of each stage the later node counts."""
    with fresh(cluster, api, "start") as space:
        space.apply(jobs.toy_config_map())
        elastic = {"nnodes": f"1:{NODES + 1}", "initial_nodes": NODES, "nproc_per_node": 1}
        settings = jobs.config(
            space, jobs.Training(seconds=STEP_SECONDS), elastic=elastic, resources=RESOURCES, launcher={"events": "-"}
        )
        begin = time.time()
        jobs.submit(space, JOB, settings, "ours")
        jobs.await_world(space, NODES)
        each = [stages(space, str(pod["metadata"]["name"])) for pod in space.workers(JOB)]
        firsts = [float(str(line["time"])) for line in space.lines("*.jsonl") if line["step"] == 1]
        jobs.tell_to_finish(space)
        space.await_condition(JOB, "Succeeded")
    latest = {stage: max(times[stage] for times in each) for stage in each[0]}
    return {stage: at - begin for stage, at in {**latest, FIRST: max(firsts)}.items()}


def stages(space: Namespace, pod: str) -> Times:
    """When a node reached each stage, in seconds since the epoch."""
    started = float(space.cluster.run("-n", space.name, "exec", pod, "--", "python3", "-c", STARTED_AT))
    return {STARTED: started, **moments(space.cluster.run("-n", space.name, "logs", pod).splitlines(), STAGES)}


def table(found: Sequence[Times]) -> str:
    """A row for each stage: median, p95, the number of rounds, and each of them."""
    return stages_table(found, "the job's creation", "beside it", ALONE)


def document(saved: results.Results) -> str:
    """The page START.md of what was saved."""
    note = (
        "A PyTorchJob of two nodes of one worker on the testbed, from its creation on; of each stage the later node "
        "counts. The script is the tests' toy, whose import of torch is nearly all that it does before its first "
        "step. Beside it a job of two pods, made in the same way, imports torch and does nothing else. The "
        "interpreter and torch are the machine's own, with their bytecode; the launcher is mounted, and has none. No "
        "pod has a bound on its CPU. p95 is by nearest rank: of so few rounds the slowest."
    )
    return page("A job's start", saved, note=note, table=table(saved["found"]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
