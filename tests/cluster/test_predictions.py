"""What `elastic-infra diff` says of a change, held against what `pulumi up` does to the pods of a running job."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from elastic_infra.config import JobConfig
from elastic_infra.preview import JobDiff
from tests.cluster import jobs
from tests.cluster.cluster import Namespace, is_ready
from tests.cluster.stack import JobStack, job_stack
from tests.cluster.targets import Target
from tests.cluster.waiting import until
from tests.engine.engine import Engine
from tests.preview.pairs import EDITS_OF, config, diff_of, expects_new_pods, predictions, two_nodes
from tests.strategies import Data

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3000)]
JOBS = 4
"""So many jobs are edited side by side: each mostly waits for its pods."""
LEFT_OUT = 2
"""So many edits at most are not for jobs like these."""
MULTIKUEUE = "kueue.x-k8s.io/multikueue"
"""A controller that is not there: a job that is left to it has no pods."""
Foretold = tuple[str, Data, JobDiff]
Pods = dict[str, str]
"""Identity of a job's pods, by name."""


@dataclass(frozen=True)
class Edited:
    """A job that is edited while it runs."""

    space: Namespace
    stack: JobStack

    def settle(self, what: str, settings: dict[str, Any], wanted: int) -> Pods:
        """Deploys a config and gives the pods once there are as many as wanted, all ready."""
        self.stack.up(settings)

        def settled() -> list[Pods]:
            pods = self.space.workers(self.stack.job)
            is_settled = len(pods) == wanted and all(is_ready(pod) for pod in pods)
            return [{pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods}] if is_settled else []

        return until(f"{wanted} pods, {what}", settled, describe=self.space.describe)[0]


def size(edited: JobConfig, diff: JobDiff, before: Pods) -> int:
    """The number of pods that the change leads to, if it does what is foretold."""
    policy = edited.run_policy
    if policy.suspend or policy.managed_by == MULTIKUEUE:
        return 0
    is_left = edited.size_owner != "config" and not expects_new_pods(diff)
    return len(before) if is_left else edited.initial_nodes


def has_come_true(diff: JobDiff, before: Pods, after: Pods) -> bool:
    """Either no pod of before is left, or every one is."""
    return before.items().isdisjoint(after.items()) if expects_new_pods(diff) else before == after


def belied(job: Edited, base: Data, edits: Sequence[Foretold]) -> list[str]:
    """The edits of one job after which, or on whose way back, its pods are not what was foretold."""
    wrong = []
    original = config(base)
    before = job.settle("at first", base, original.initial_nodes)
    for name, data, there in edits:
        edited = config(data)
        back = diff_of(edited, original)
        after = job.settle(name, data, size(edited, there, before))
        again = job.settle(f"back from {name}", base, original.initial_nodes)
        # A suspended job has no pods that could be replaced on the way back.
        wrong += [name] if not has_come_true(there, before, after) else []
        wrong += [f"back from {name}"] if after and not has_come_true(back, after, again) else []
        before = again
    return wrong


def test_pods_are_replaced_exactly_where_foretold(space: Namespace, engine: Engine, target: Target) -> None:
    """Each edit of a running job, and each way back."""
    base = jobs.config(space, jobs.Training(), **jobs.IDLE, **two_nodes(target.name))
    foretold = list(predictions(base))

    def run(number: int) -> list[str]:
        job = Edited(space, job_stack(engine, f"foretold-{number}", "idle"))
        return belied(job, base, foretold[number::JOBS])

    with ThreadPoolExecutor(JOBS) as side_by_side:
        wrong = list(side_by_side.map(run, range(JOBS)))

    assert wrong == [[]] * JOBS
    assert len(foretold) >= len(EDITS_OF[target.name]) - LEFT_OUT
