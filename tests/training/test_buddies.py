"""Each node keeps the shards of another one."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from elastic_infra.training import buddies, exchange, shards
from elastic_infra.training.exchange import Place, are_copied
from elastic_infra.training.host_memory import MAGIC
from elastic_infra.training.neighbour import Invitation, Room
from elastic_infra.training.node_memory import NodeMemory


@given(st.lists(st.integers(1, 4), min_size=2, max_size=5))
def test_every_worker_has_one_keeper_on_another_node(workers: list[int]) -> None:
    """Nodes with any numbers of workers: what one sends, one other expects, and the loss of a node loses nothing."""
    nodes = [f"{node}" for node, count in enumerate(workers) for _ in range(count)]
    rings = [buddies.ring(nodes, rank) for rank in range(len(nodes))]
    sent = {(rank, ring.target) for rank, ring in enumerate(rings)}

    assert sent == {(source, rank) for rank, ring in enumerate(rings) for source in ring.sources}
    assert all(nodes[source] != nodes[target] for source, target in sent)
    assert len(sent) == len(nodes)
    for here, there in zip(range(len(workers)), [*range(1, len(workers)), 0], strict=True):
        assert {nodes[target] for source, target in sent if nodes[source] == str(here)} == {str(there)}


def test_a_group_beside_nccl_goes_with_the_error_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The peer is gone: the group's connections are closed, since its other peers wait at them."""

    def fail(*_: object, **__: object) -> None:
        message = "Connection closed by peer"
        raise RuntimeError(message)

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        mine = buddies.Buddies(NodeMemory(str(tmp_path), 0))
        mine.join(["0", "1"], 0, [Invitation(("127.0.0.1", 1), b"key")] * 2, dist.new_group(backend="gloo"))
        assert mine.are_joined
        monkeypatch.setattr(dist, "all_reduce", fail)
        with pytest.raises(RuntimeError):
            mine.have_arrived()
        assert not mine.are_joined
        assert len(dist.distributed_c10d._world.pg_map) == 1
    finally:
        dist.destroy_process_group()


def test_a_rank_that_takes_no_copies_leaves_none_to_any(tmp_path: Path) -> None:
    """It has no port, for example: without its neighbour's shards a lost node is the state on disk in any case."""
    mine = buddies.Buddies(NodeMemory(str(tmp_path), 0))
    mine.join(["0", "1"], 0, [Invitation(("127.0.0.1", 1), b"key"), None], None)

    assert not mine.are_joined


def test_copies_end_where_they_fail_three_times_in_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A moment's trouble costs one copy, which is sent again; for lasting trouble one line says what a loss means."""
    arrivals, sent = [False, False, True, False, False, False], []
    monkeypatch.setattr(dist, "all_reduce", lambda *_, **__: None)
    mine = buddies.Buddies(NodeMemory(str(tmp_path), 0))
    mine.join(["0", "1"], 0, [Invitation(("127.0.0.1", 1), b"key")] * 2, None)
    monkeypatch.setattr(mine._sender, "await_arrival", lambda: arrivals.pop(0))
    monkeypatch.setattr(mine._sender, "send", lambda content: sent.append(bytes(content())))
    mine.send(memoryview(MAGIC + b"shard"))
    joined = []
    for _ in range(6):
        mine.have_arrived()
        joined.append(mine.are_joined)

    assert joined == [True] * 5 + [False]
    assert sent == [b"shard"] * 5, "once, and again after each failure but the last"
    assert capsys.readouterr().err.count("3 times in a row") == 1


class NotYetError(BaseException):
    """A rank would wait here."""


class Way:
    """Ranks whose steps, and whose copies' ways, are one after another, in any order; each is on a node of its own."""

    def __init__(self, folder: Path, ranks: int) -> None:
        self.steps = [0] * ranks
        self.at: list[set[int]] = [set() for _ in range(100)]
        """By number of steps: the ranks that have asked whether all copies have arrived."""
        self.memories, self.buddies = [], []
        for rank in range(ranks):
            (folder / f"{rank}").mkdir()
            self.memories.append(NodeMemory(str(folder / f"{rank}"), 0))
            self.buddies.append(buddies.Buddies(self.memories[rank]))
        self.senders = [cast("FakeSender", each._sender) for each in self.buddies]
        self.receivers = [cast("FakeReceiver", each._receiver) for each in self.buddies]
        invitations = [Invitation((f"{rank}", 0), b"key") for rank in range(ranks)]
        for rank, each in enumerate(self.buddies):
            each.join([f"{rank}" for rank in range(ranks)], rank, invitations, None)

    def all_reduce(self, *_: object, **__: object) -> None:
        """All have to be there; where one is not, this rank comes again."""
        asked = self.at[self.steps[self.rank]]
        asked.add(self.rank)
        if len(asked) < len(self.steps):
            raise NotYetError

    def step(self, rank: int, *, whole: bool = True) -> None:
        """A step of this rank with its snapshot, unless the rank has to wait."""
        self.rank = rank
        try:
            self.buddies[rank].have_arrived()
        except NotYetError:
            return
        self.steps[rank] += 1
        shard = {"whole": [len(self.steps)], "begin": [rank], "first": True, "values": torch.zeros(1)}
        draft = self.memories[rank].draft(self.steps[rank], rank, {"shards": {"weight": shard}, "run": "run"})
        if whole:
            self.buddies[rank].send(draft.publish())

    def arrived(self) -> int:
        """The newest step of which all copies have arrived."""
        return min(sender.arrived for sender in self.senders)

    def left_by(self, *lost: int) -> int:
        """The newest step that is whole in the memory of the other nodes."""
        inventories = []
        for memory in (memory for rank, memory in enumerate(self.memories) if rank not in lost):
            held, copies = memory.sharded(), memory.copies()
            found = {key: [each["shards"] for each in (tree, *copies.get(key, ()))] for key, tree in held.items()}
            inventories.append({key: shards.inventory(parts) for key, parts in found.items()})
        key, _ = exchange.newest_whole(inventories)
        return key[0] if key is not None else 0


class FakeReceiver:
    """Gives room as the real one."""

    def __init__(self, room: Callable[[int, int], Room | None]) -> None:
        self.room = room

    def follow(self, key: bytes) -> None:
        """The key makes no difference here."""


class FakeSender:
    """Sends half of a snapshot each time it is told to."""

    def __init__(self, *_: object) -> None:
        self.arrived, self.target, self.place = 0, -1, -1
        self.content: memoryview | None = None
        self.room: Room | None = None

    def follow(self, target: tuple[str, int] | None, key: bytes, place: int = 0) -> None:
        """The address is a rank."""
        del key
        assert target is not None
        self.target, self.place = int(target[0]), place

    def send(self, content: Callable[[], memoryview | None]) -> None:
        """It is on its way."""
        assert self.content is None, "the one before has arrived"
        self.content = content()

    def go_on(self, receivers: list[FakeReceiver]) -> None:
        """Half of the way."""
        if self.content is None:
            return
        half = len(self.content) // 2
        if self.room is None:
            self.room = receivers[self.target].room(self.place, len(self.content))
            assert self.room is not None
            self.room.target[:half] = self.content[:half]
        else:
            self.room.target[half:] = self.content[half:]
            self.room.keep()
            self.arrived += 1
            self.content = self.room = None

    def await_arrival(self) -> bool:
        """Whoever asks has to wait."""
        if self.content is not None:
            raise NotYetError
        return True


@contextlib.contextmanager
def way(ranks: int) -> Iterator[Way]:
    """Real ends of the ring with real memory, and a way between them that a test goes step by step."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(buddies, "Receiver", FakeReceiver)
        patch.setattr(buddies, "Sender", FakeSender)
        found = Way(Path(folder), ranks)
        patch.setattr(dist, "all_reduce", found.all_reduce)
        yield found


EVENTS = st.lists(st.integers(0, 5), min_size=20, max_size=100)
"""A rank that makes a step or, from 3 on, whose copy goes on."""


@given(EVENTS, st.integers(0, 2), st.sampled_from(["lost", "killed"]))
def test_the_loss_of_a_node_loses_no_more_than_what_is_on_its_way(events: list[int], victim: int, fate: str) -> None:
    """At any moment, however fast ranks and copies are: the newest step that had arrived everywhere is still whole.

    So is it where a worker is killed instead, in the middle of a snapshot.
    """
    with way(3) as ranks:
        for event in events:
            ranks.step(event) if event < 3 else ranks.senders[event - 3].go_on(ranks.receivers)
        if fate == "killed":
            ranks.step(victim, whole=False)
        assert ranks.left_by(*([victim] if fate == "lost" else [])) >= ranks.arrived()


def test_the_agreement_of_all_ranks_is_needed() -> None:
    """A rank that waits for its own copy alone overwrites a step whose successor is still on another rank's way."""
    with way(3) as ranks:
        for rank in (0, 1, 2, 0, 1):
            ranks.step(rank)
        for rank in (0, 1, 2, 0, 1, 2):
            ranks.senders[rank].go_on(ranks.receivers)
        for rank in (0, 1, 2, 0, 1):
            ranks.step(rank)
        for rank in (0, 0, 1, 1):
            ranks.senders[rank].go_on(ranks.receivers)
        ranks.step(0)
        assert ranks.steps == [2, 2, 2]
        assert ranks.left_by(2) == 1
        ranks.at[2] = {0, 1, 2}
        ranks.step(0)
        assert ranks.steps == [3, 2, 2]
        assert ranks.left_by(2) == 0


def test_where_copies_are_needed() -> None:
    """Not on one node, and not where each shard is on two nodes, as in HSDP."""

    def copied(*places: tuple[str, int]) -> bool:
        return are_copied([Place(node, boxes, keeps=True) for node, boxes in places])

    assert copied(("0", 1), ("0", 2))
    assert copied(("0", 1), ("1", 1))
    assert copied(("0", 1), ("0", 2), ("1", 1), ("1", 2))
    assert not copied(("0", 1), ("1", 2))
    assert not copied(("0", 1), ("0", 1), ("1", 2), ("1", 2))
