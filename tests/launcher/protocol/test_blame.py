"""What a failure is put down to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastic_infra.launcher.protocol import blame
from elastic_infra.launcher.protocol.member_status import MemberStatus
from elastic_infra.launcher.protocol.records import Member
from tests.launcher.protocol.states import FAILURE, PAIR

TRIO = replace(
    PAIR,
    phase="broken",
    members=tuple(Member(uuid, uuid, 1) for uuid in ("n0", "n1", "n2")),
    cause=replace(FAILURE, uuid="n0"),
    trained=(2,),
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
