"""One long job on a real cluster under one random fault after the other: it trains on after each, its weights exact.

    python -m benchmarks.cluster.soak [--seed N] [--rounds N] [--write]

The same seed gives the same faults. `--write` puts the figures into SOAK.json and SOAK.md beside this file. A job that
does not go on ends the program with an error, and nothing is written.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.cluster.page import facts, page
from benchmarks.cluster.testbed import fresh, running
from benchmarks.common import results
from benchmarks.launcher.measure import Summary
from tests.cluster import faults, jobs
from tests.cluster.cluster import Namespace
from tests.cluster.provider.server import ClusterProvider
from tests.cluster.stack import JobStack
from tests.engine.alone import empty_stack

RESULTS: Final = Path(__file__).with_name("SOAK.json")
JOB: Final = "long"
SIZES: Final = (2, 3)
ROUNDS: Final = 20
RESTARTS: Final = 1000
"""More than there are rounds: what is killed on purpose is charged to the job all the same."""
Fault = Callable[[Namespace, str], None]
"""Does something to a job with these many nodes, of which one pod is the victim."""


def scale(space: Namespace, _: str) -> None:
    """One node more, or one less."""
    space.scale(JOB, sum(SIZES) - len(space.pods(JOB)))


def silence(space: Namespace, _: str) -> None:
    """The cluster's node says nothing until the cluster has noticed."""
    if (testbed := space.cluster.testbed) is not None:
        with faults.silent_node(testbed):
            pass


FAULTS: Final[Mapping[str, Fault]] = {
    "a pod deleted at once": lambda space, pod: faults.lose_pod(space, pod, grace=0),
    "a pod deleted in its own time": lambda space, pod: faults.lose_pod(space, pod, grace=None),
    "a worker killed": lambda space, pod: faults.signal_worker(space, pod, signal.SIGKILL),
    "a worker stopped": lambda space, pod: faults.signal_worker(space, pod, signal.SIGSTOP),
    "the store lost": lambda space, _: faults.lose_store(space),
    "a node more or less": scale,
    "the cluster's node silent": silence,
}
TESTBED_ONLY: Final = frozenset({"the cluster's node silent"})


def main(arguments: Sequence[str]) -> int:
    """One life of a job, and what became of it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster.soak", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="draws the faults (%(default)s)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help="%(default)s by default")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    wanted = parser.parse_args(arguments)
    with (
        running() as (cluster, api),
        fresh(cluster, api, "soak") as space,
        empty_stack(ClusterProvider(api)) as stack,
    ):
        machine = facts(api, "benchmarks.cluster.soak", arguments, "training-operator")
        space.apply(jobs.toy_config_map())
        found = live(space, JobStack(stack, JOB, "ours"), wanted.seed, wanted.rounds)
    found = {"machine": machine, **found}
    print(document(found))
    if wanted.write:
        results.save(RESULTS, found, document)
    return 0


def live(space: Namespace, stack: JobStack, seed: int, rounds: int) -> dict[str, Any]:
    """A job from its first step to its end, with so many faults.

    Raises:
        AssertionError: it did not go on after a fault, did a saved step again, or has other weights at the end.
    """
    chance, training = random.Random(seed), jobs.Training()
    elastic = {"nnodes": "1:3", "initial_nodes": 2, "nproc_per_node": 1, "max_restarts": RESTARTS}
    stack.up(jobs.config(space, training, elastic=elastic))
    nodes, struck = go_on(space), []
    for number in range(1, rounds + 1):
        name, pod = chance.choice(faults_there(space)), f"{JOB}-worker-{chance.randrange(nodes)}"
        begin = time.monotonic()
        FAULTS[name](space, pod)
        nodes = go_on(space)
        seconds = round(time.monotonic() - begin, 1)
        struck.append({"kind": name, "pod": pod, "nodes": nodes, "step": jobs.last_step(space), "seconds": seconds})
        print(f"{number}. {struck[-1]}", flush=True)
    jobs.finish(space, JOB, training)
    steps = jobs.first_workers_steps(space)[-1]
    return {"seed": seed, "planned": rounds, "steps": steps, "faults": struck}


def faults_there(space: Namespace) -> list[str]:
    """Names of the faults that this cluster can have."""
    return [name for name in FAULTS if space.cluster.testbed is not None or name not in TESTBED_ONLY]


def go_on(space: Namespace) -> int:
    """Returns the number of nodes once as many pods as the job asks for are ready and train together."""
    replicas = int(space.api.get(space.job(JOB))["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"])
    space.await_running(JOB, replicas)
    jobs.await_world(space, replicas, after=jobs.last_step(space))
    return replicas


def document(found: results.Results) -> str:
    """The page SOAK.md of what was saved."""
    note = (
        "One job of two to three nodes on the testbed (a real API server, kubelet, scheduler and training operator), "
        "made by the real Pulumi engine, and one random fault after the other. After each the round waits until all "
        "nodes that the job asks for train together again, at a step later than any before. At the end the weights "
        "were those of a run without faults, and no step that a checkpoint had was done again; otherwise the command "
        "would have ended without a page. The same seed gives the same faults.\n\n"
        f"Seed {found['seed']}: {len(found['faults'])} of {found['planned']} faults, and the job succeeded at step "
        f"{found['steps']} with exact weights.\n\n"
        "The seconds are those of a round, from the fault on. A new node waits until the generation that trains "
        "without it has trained for half a minute, so that nodes which come in turn cost one change, not one each: "
        "that, and not an outage, is most of a round that adds a node. p95 is by nearest rank."
    )
    return page("Random faults on a cluster", found, note=note, table=results.table(_rows(found["faults"])))


def _rows(struck: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
    yield ["fault", "n", "median", "p95", "longest", "each, with the nodes that train after it"]
    for kind in FAULTS:
        mine = [fault for fault in struck if fault["kind"] == kind]
        if mine:
            seconds = Summary(tuple(fault["seconds"] for fault in mine), {})
            figures = (seconds.median, seconds.p95, max(seconds.values))
            each = ", ".join(f"{fault['seconds']:.0f} s ({fault['nodes']})" for fault in mine)
            yield [kind, str(len(mine)), *(f"{figure:.0f} s" for figure in figures), each]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
