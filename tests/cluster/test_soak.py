"""One long job under one random fault after the other: it trains on after each, and its weights at the end are exact.

    ELASTIC_INFRA_SOAK_SEED=7 python -m pytest tests/cluster/test_soak.py -m cluster -rP

The same seed gives the same faults in the same order. What a round came to is printed, one line a round.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable

import pytest

from tests.cluster import faults, jobs
from tests.cluster.cluster import Namespace
from tests.cluster.stack import job_stack
from tests.engine.engine import Engine

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(7200)]
JOB = "long"
SEED = "ELASTIC_INFRA_SOAK_SEED"
ROUNDS = "ELASTIC_INFRA_SOAK_ROUNDS"
SIZES = (2, 3)
RESTARTS = 1000
"""More than there are rounds: what is killed on purpose is charged to the job all the same."""
Fault = Callable[[Namespace, str], None]
"""Does something to a job with these many nodes, of which one pod is the victim."""


def scale(space: Namespace, _: str) -> None:
    """One node more, or one less."""
    space.scale(JOB, sum(SIZES) - len(space.pods(JOB)))


def silence(space: Namespace, _: str) -> None:
    """The cluster's node says nothing until the cluster has noticed."""
    assert space.cluster.testbed is not None
    with faults.silent_node(space.cluster.testbed):
        pass


FAULTS: dict[str, Fault] = {
    "a pod deleted at once": lambda space, pod: faults.lose_pod(space, pod, grace=0),
    "a pod deleted in its own time": lambda space, pod: faults.lose_pod(space, pod, grace=None),
    "a worker killed": lambda space, pod: faults.signal_worker(space, pod, signal.SIGKILL),
    "a worker stopped": lambda space, pod: faults.signal_worker(space, pod, signal.SIGSTOP),
    "the store lost": lambda space, _: faults.lose_store(space),
    "a node more or less": scale,
    "the cluster's node silent": silence,
}
TESTBED_ONLY = frozenset({"the cluster's node silent"})


def say(line: str) -> None:
    """Print a line into the test's output, live with `-s`."""
    print(line, flush=True)  # noqa: T201


def faults_there(space: Namespace) -> list[str]:
    """Names of the faults that this cluster can have."""
    return [name for name in FAULTS if space.cluster.testbed is not None or name not in TESTBED_ONLY]


def go_on(space: Namespace) -> int:
    """Returns the number of nodes once as many pods as the job asks for are ready and train together."""
    replicas = int(space.api.get(space.job(JOB))["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"])
    space.await_running(JOB, replicas)
    jobs.await_world(space, replicas, after=jobs.last_step(space))
    return replicas


def test_no_random_fault_costs_the_job(space: Namespace, engine: Engine) -> None:
    """After every fault all nodes train together again, no checkpointed step is done twice, the weights are exact."""
    seed, rounds = int(os.environ.get(SEED, "1")), int(os.environ.get(ROUNDS, "20"))
    say(f"{SEED}={seed}, {rounds} rounds")
    chance, training = random.Random(seed), jobs.Training()
    elastic = {"nnodes": "1:3", "initial_nodes": 2, "nproc_per_node": 1, "max_restarts": RESTARTS}
    stack = job_stack(engine, JOB, "ours")
    stack.up(jobs.config(space, training, elastic=elastic))
    nodes = go_on(space)
    for number in range(1, rounds + 1):
        name, pod = chance.choice(faults_there(space)), f"{JOB}-worker-{chance.randrange(nodes)}"
        begin = time.monotonic()
        FAULTS[name](space, pod)
        nodes = go_on(space)
        taken = time.monotonic() - begin
        say(f"{number}. {name} ({pod}): {nodes} nodes at step {jobs.last_step(space)} after {taken:.0f} s")

    jobs.finish(space, JOB, training)
    say(f"succeeded at step {jobs.first_workers_steps(space)[-1]} with exact weights")
