"""Which nodes are taken, and in which order."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_infra.launcher.protocol import ranks
from elastic_infra.launcher.protocol.records import Generation, Member, NodeRecord, NodeState


def node(uuid: int, index: int | None = None, workers: int = 1) -> NodeRecord:
    return NodeRecord(f"{uuid:02}", "", "ready", workers, index, joined=uuid)


NODES = st.lists(st.integers(0, 30), unique=True, max_size=8)


@given(NODES, NODES, st.integers(1, 8))
def test_survivors_come_first_and_keep_their_order(old: list[int], new: list[int], most: int) -> None:
    """Without replica indices survivors are never displaced nor reordered; newcomers follow by age."""
    survivors, newcomers = [node(uuid) for uuid in old], [node(100 + uuid) for uuid in new]
    members = ranks.assign(survivors, newcomers, most)

    expected = [record.uuid for record in [*survivors, *sorted(newcomers, key=lambda record: record.joined)]]
    assert [member.uuid for member in members] == expected[:most]


@given(st.permutations(range(6)), st.integers(0, 6))
def test_replica_indices_give_the_order(indices: list[int], survivors: int) -> None:
    """Where all nodes have different indices, ranks follow the indices."""
    records = [node(50 + place, index) for place, index in enumerate(indices)]
    members = ranks.assign(records[:survivors], records[survivors:], 6)

    by_uuid = {record.uuid: record.replica_index for record in records}
    assert [by_uuid[member.uuid] for member in members] == sorted(indices)


@given(st.integers(0, 6), st.integers(0, 6), st.integers(1, 12))
def test_in_place_replica_indices_displace_no_survivor(old: int, new: int, most: int) -> None:
    """The indices are those in the inverse order: survivors stay in front in theirs, newcomers follow by index."""
    survivors = [replace(node(uuid, 100 - uuid), state="parked") for uuid in range(old)]
    newcomers = [node(50 + uuid, 50 - uuid) for uuid in range(new)]
    members = ranks.assign(survivors, newcomers, most, in_place=True)

    assert [member.uuid for member in members] == [record.uuid for record in (*survivors, *reversed(newcomers))][:most]


def test_in_place_rank_0_has_parked() -> None:
    """It has the state; a survivor whose workers were started anew, with a lower index, comes after it."""
    stopped, parked = replace(node(1, 0), state="stopped"), replace(node(2, 1), state="parked")
    members = ranks.assign([stopped, parked], [], 2, in_place=True)

    assert [member.uuid for member in members] == [parked.uuid, stopped.uuid]


@given(st.lists(st.integers(1, 8), min_size=1, max_size=6))
def test_ranks_are_dense(workers: list[int]) -> None:
    """First ranks count the workers before; the world is their sum."""
    members = ranks.assign([node(place, workers=count) for place, count in enumerate(workers)], [], 9)

    assert [ranks.first_rank(members, member.uuid) for member in members] == [
        sum(workers[:place]) for place in range(len(workers))
    ]
    assert ranks.world_size(members) == sum(workers)


@pytest.mark.parametrize(
    ("state", "number", "incarnation", "expected"),
    [
        ("finished", 3, "i", (2, 3)),
        ("stopped", 3, "i", ()),
        ("member", 3, "i", ()),
        ("finished", 2, "i", ()),
        ("finished", 3, "former", ()),
    ],
)
def test_ranks_of_nodes_that_have_finished(
    state: NodeState, number: int, incarnation: str, expected: tuple[int, ...]
) -> None:
    """All ranks of a node that says so of this very generation."""
    members = tuple(Member(uuid, uuid, 2) for uuid in ("a", "b", "c"))
    record = NodeRecord("b", "b", state, 2, generation=number, incarnation=incarnation)

    generation = Generation(3, members=members, incarnation="i")

    assert ranks.of_finished_nodes(generation, [record]) == expected
    assert ranks.of_finished_nodes(replace(generation, finished=("a",)), [record]) == (0, 1, *expected)
