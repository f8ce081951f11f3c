"""What `elastic-infra diff` says of a change, held against what `pulumi up` does to the pods of a running job."""

from __future__ import annotations

from typing import Any

import pytest

from elastic_infra.preview import JobDiff
from tests.cluster import jobs
from tests.cluster.cluster import Namespace, is_ready
from tests.cluster.stack import JobStack, job_stack
from tests.cluster.waiting import until
from tests.engine.engine import Engine
from tests.preview.pairs import config, diff_of, expects_new_pods, predictions

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3000)]
JOB = "foretold"


def settle(space: Namespace, stack: JobStack, settings: dict[str, Any]) -> dict[str, str]:
    """Deploys a config and gives the identity of its pods once there are as many as it asks for, all ready."""
    stack.up(settings)
    wanted = 0 if settings.get("run_policy", {}).get("suspend") else 2

    def is_settled() -> bool:
        pods = space.pods(JOB)
        return len(pods) == wanted and all(is_ready(pod) for pod in pods)

    until(f"{wanted} pods", is_settled, 120, describe=space.describe)
    return space.uids(JOB)


def has_come_true(diff: JobDiff, before: dict[str, str], after: dict[str, str]) -> bool:
    """Either no pod of before is left, or every one is."""
    return before.items().isdisjoint(after.items()) if expects_new_pods(diff) else before == after


def test_pods_are_replaced_exactly_where_foretold(space: Namespace, engine: Engine) -> None:
    """Each edit of a running job, and each way back."""
    base = jobs.config(space, jobs.Training(), **jobs.IDLE)
    compared, wrong = 0, []
    stack = job_stack(engine, JOB, "idle")
    before = settle(space, stack, base)
    for name, edited, there in predictions(base):
        after = settle(space, stack, edited)
        back = diff_of(config(edited), config(base))
        again = settle(space, stack, base)
        # A suspended job has no pods that could be replaced on the way back.
        wrong += [name] if not has_come_true(there, before, after) else []
        wrong += [f"back from {name}"] if after and not has_come_true(back, after, again) else []
        before, compared = again, compared + 1

    assert wrong == []
    assert compared >= 40
