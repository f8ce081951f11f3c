"""Which node runs a rank."""

from __future__ import annotations

import pytest

from elastic_infra.launcher.command_line.plan import LogPlan
from elastic_infra.launcher.workers.logs import prefix
from elastic_infra.operations.objects import RefusedError
from elastic_infra.operations.ranks import is_of, place
from tests.operations import kube

PODS = ["job-worker-0", "job-worker-1", "job-worker-2"]


def test_the_launchers_say_who_has_a_rank() -> None:
    """A node that waits has none, wherever it is among the pods; the newest generation counts."""
    snapshots = {
        "job-worker-0": kube.snapshot(0, generation=2, nodes=["job-worker-0", "job-worker-1"]),
        "job-worker-1": kube.snapshot(1, nodes=["job-worker-1", "job-worker-2"]),
    }
    found = place(3, PODS, snapshots, 2)

    assert (found.node, found.local_rank, found.first, found.last) == ("job-worker-2", 1, 2, 3)
    assert found.is_known


def test_without_status_ports_the_order_of_the_pods_says_it() -> None:
    """Eight workers a node: rank 10 is the third of the second node. That it is a guess is told."""
    found = place(10, PODS, {}, 8)

    assert (found.node, found.local_rank, found.first, found.last) == ("job-worker-1", 2, 8, 15)
    assert not found.is_known


@pytest.mark.parametrize(
    ("rank", "pods", "why"),
    [
        (24, PODS, "the job's ranks are 0 to 23 now"),
        (0, [], "the job has no pods now"),
        (9, PODS[:1], "the job's ranks are 0 to 7 now"),
    ],
)
def test_a_rank_that_is_not_there_is_refused(rank: int, pods: list[str], why: str) -> None:
    """With the ranks that there are."""
    with pytest.raises(RefusedError, match=why):
        place(rank, pods, {}, 8)


def test_a_member_whose_pod_is_gone_is_named() -> None:
    """The others have not noticed yet."""
    with pytest.raises(RefusedError, match="Rank 2 is on job-worker-1, which is gone"):
        place(2, ["job-worker-0"], {"job-worker-0": kube.snapshot(0)}, 2)


@pytest.mark.parametrize(("local_rank", "shown"), [(1, True), (0, False), (11, False)])
def test_a_teed_line_is_its_own_workers(local_rank: int, shown: bool) -> None:  # noqa: FBT001 - a case
    """By the prefix that the launcher writes; a line without one is the launcher's, and belongs to all."""
    assert is_of(prefix(LogPlan(), "default", local_rank, 9, "host") + "loss 1", 1) is shown
    assert is_of("elasticrun: a line of the launcher", 1)
