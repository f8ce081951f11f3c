"""What `elastic-infra diff` says of a change, held against what `pulumi up` does to the pods of a running job."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from elastic_infra.preview import JobDiff
from tests.cluster import jobs
from tests.cluster.cluster import Namespace, is_ready
from tests.cluster.stack import JobStack, job_stack
from tests.cluster.waiting import until
from tests.engine.engine import Engine
from tests.preview.pairs import config, diff_of, expects_new_pods, predictions
from tests.strategies import Data

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3000)]
JOBS = 3
"""So many jobs are edited side by side: each mostly waits for its pods."""
Foretold = tuple[str, Data, JobDiff]


def settle(space: Namespace, stack: JobStack, settings: dict[str, Any]) -> dict[str, str]:
    """Deploys a config and gives the identity of its pods once there are as many as it asks for, all ready."""
    stack.up(settings)
    wanted = 0 if settings.get("run_policy", {}).get("suspend") else 2

    def is_settled() -> bool:
        pods = space.pods(stack.job)
        return len(pods) == wanted and all(is_ready(pod) for pod in pods)

    until(f"{wanted} pods", is_settled, 120, describe=space.describe)
    return space.uids(stack.job)


def has_come_true(diff: JobDiff, before: dict[str, str], after: dict[str, str]) -> bool:
    """Either no pod of before is left, or every one is."""
    return before.items().isdisjoint(after.items()) if expects_new_pods(diff) else before == after


def belied(space: Namespace, stack: JobStack, base: Data, edits: Sequence[Foretold]) -> list[str]:
    """The edits of one job after which, or on whose way back, its pods are not what was foretold."""
    wrong = []
    before = settle(space, stack, base)
    for name, edited, there in edits:
        after = settle(space, stack, edited)
        back = diff_of(config(edited), config(base))
        again = settle(space, stack, base)
        # A suspended job has no pods that could be replaced on the way back.
        wrong += [name] if not has_come_true(there, before, after) else []
        wrong += [f"back from {name}"] if after and not has_come_true(back, after, again) else []
        before = again
    return wrong


def test_pods_are_replaced_exactly_where_foretold(space: Namespace, engine: Engine) -> None:
    """Each edit of a running job, and each way back."""
    base = jobs.config(space, jobs.Training(), **jobs.IDLE)
    foretold = list(predictions(base))

    def run(number: int) -> list[str]:
        return belied(space, job_stack(engine, f"foretold-{number}", "idle"), base, foretold[number::JOBS])

    with ThreadPoolExecutor(JOBS) as side_by_side:
        wrong = list(side_by_side.map(run, range(JOBS)))

    assert wrong == [[]] * JOBS
    assert len(foretold) >= 40
