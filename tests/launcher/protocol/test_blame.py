"""What a failure is put down to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastic_infra.launcher.protocol import blame, commit
from elastic_infra.launcher.protocol.limits import Limits
from elastic_infra.launcher.protocol.member_status import MemberStatus
from elastic_infra.launcher.protocol.records import Cause, Member
from elastic_infra.launcher.protocol.state import record
from tests.launcher.protocol.states import FAILURE, PAIR, connected, peer

TRIO = replace(
    PAIR,
    phase="broken",
    members=tuple(Member(uuid, uuid, 1) for uuid in ("n0", "n1", "n2")),
    cause=replace(FAILURE, uuid="n0"),
    trained=(2,),
)
LIMITS = Limits(max_nodes=3, max_restarts=1)
HANG = Cause("hang", "n0", "n0", 0, step=9, message="Local rank 0 has reported no step after 9 for 600 s.")
HUNG = replace(
    PAIR, phase="broken", cause=HANG, members=(replace(PAIR.members[0], local_world_size=2), PAIR.members[1])
)


@pytest.mark.parametrize(
    ("failures", "refused"),
    [
        (("1 AssertionError", "1 AssertionError", ""), True),
        (("1 RuntimeError", "1 DistBackendError", "1 DistBackendError"), False),
        (("1 AssertionError", "", ""), False),
        (("", "1 AssertionError", "1 AssertionError"), False),
    ],
)
def test_size_is_refused_where_another_node_fails_like_the_first(failures: tuple[str, ...], refused: bool) -> None:
    """The peers of one broken node fail alike too, in the collective that needs it: no size is to blame for that."""
    statuses = tuple(
        MemberStatus(member, failure=failure) for member, failure in zip(TRIO.members, failures, strict=True)
    )

    assert blame.is_size_refused(TRIO, statuses) == refused


@pytest.mark.parametrize(("trained", "in_question"), [((), False), ((2,), True), ((2, 3), False)])
def test_size_is_in_question_where_only_another_has_trained(trained: tuple[int, ...], in_question: bool) -> None:
    """Before any has, the script itself may be at fault."""
    assert blame.is_size_in_question(replace(TRIO, trained=trained)) == in_question


@pytest.mark.parametrize(
    ("at", "uuid", "rank"), [((4, 0), "n1", 2), ((9, 0), "n0", 0), ((12, 0), "n0", 1), ((), "n0", 0)]
)
def test_a_hang_is_put_down_to_the_worker_furthest_behind(at: tuple[int, ...], uuid: str, rank: int) -> None:
    """Over all nodes, for the node that saw the hang may only wait; where all are level, the worker seen there."""
    state = connected(LIMITS, HUNG, peer("n1", "stopped", hung_at=at), phase="stopped")
    assert state.workers is not None
    state = replace(state, workers=replace(state.workers, lowest=9, slowest=1, highest=9))
    after = commit.commit(state, 0.0)

    assert after is not None
    assert after.cause is not None
    assert (after.cause.uuid, after.cause.rank, after.budget.culprit) == (uuid, rank, uuid)
    assert ("furthest behind, at step 4. Seen on n0: Local rank 0" in after.cause.message) == (at == (4, 0))


def test_steps_are_told_only_where_the_generation_hangs() -> None:
    """They would be news all the time."""
    state = connected(LIMITS, PAIR, peer("n1", "member"), phase="running")
    assert state.workers is not None
    workers = replace(state.workers, lowest=9, slowest=1, highest=12)

    assert record(replace(state, workers=workers)).hung_at == ()
    assert record(replace(state, workers=replace(workers, failure=HANG))).hung_at == (9, 1)
    assert record(replace(connected(LIMITS, HUNG, phase="stopped"), workers=workers)).hung_at == (9, 1)
