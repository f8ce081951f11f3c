"""Members that a function builds anew for each process group."""

from __future__ import annotations

import contextlib
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from elastic_infra.launcher.workers.progress import VARIABLE
from elastic_infra.training import ElasticSampler, ElasticState, Restored, StateError, exchange, shards
from elastic_infra.training.buddies import Buddies
from elastic_infra.training.node_memory import NodeMemory
from elastic_infra.training.places import Disk
from elastic_infra.training.snapshots import Folder


def build() -> dict[str, Any]:
    """A layer with random weights, and its optimizer."""
    model = torch.nn.Linear(2, 2)
    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1)}


def test_a_restore_fills_what_is_built(tmp_path: Path) -> None:
    """The first restore builds; each later build has new members, which the next restore fills."""
    state = ElasticState(tmp_path, build=build, data=ElasticSampler(9, global_batch=3))
    with pytest.raises(AttributeError, match="no 'model' before it is built"):
        _ = state.model
    assert state.restore() == Restored(0, "nothing")
    state.model.weight.data.fill_(7)
    state.step = 1
    state.snapshot(durable=True)
    state.wait()
    old = state.model
    state.rebuild()

    assert state.model is not old
    assert state.optimizer.param_groups[0]["params"][0] is state.model.weight
    assert state.restore() == Restored(1, "disk")
    assert torch.equal(state.model.weight, torch.full((2, 2), 7.0))


@pytest.fixture
def slow_volume(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Each save waits for this event before it writes anything."""
    goes_on = threading.Event()
    save = Folder.save
    monkeypatch.setattr(Folder, "save", lambda *given: goes_on.wait(30) and save(*given))
    return goes_on


def test_what_is_handed_over_to_disk_is_waited_for(tmp_path: Path, slow_volume: threading.Event) -> None:
    """Without memory a planned change hands the state over on disk, a model that no rank shares out included."""
    state = ElasticState(tmp_path, build=build, in_memory=False)
    state.restore()
    state.step = 1
    state.hand_over(durable=False)
    threading.Timer(0.2, slow_volume.set).start()
    state.rebuild()

    assert state.restore() == Restored(1, "disk")


def test_a_slow_volume_costs_no_step_at_a_planned_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow_volume: threading.Event
) -> None:
    """While an older step is written from the memory, that of the agreed stop waits for its room there."""
    (tmp_path / "node").mkdir()
    monkeypatch.setenv(VARIABLE, f"0:{tmp_path}/node/progress-1")
    state = ElasticState(tmp_path / "checkpoints", build=build)
    state.restore()
    state.step = 1
    state.snapshot(durable=True)
    state.step = 2
    threading.Timer(0.2, slow_volume.set).start()
    state.hand_over(durable=False)
    state.rebuild()

    assert state.restore() == Restored(2, "memory")


def test_each_build_begins_where_the_first_one_did() -> None:
    """Random numbers, plain values, the step and the other members are as before the first build."""
    sampler = ElasticSampler(9, global_batch=3)
    state = ElasticState(None, build=build, data=sampler, best=0.0, seen=[])
    state.rebuild()
    weight, random = state.model.weight.detach().clone(), torch.rand(1)
    sampler.advance()
    state.step, state.best = 1, 2.0
    state.seen.append(3)
    for _ in range(2):
        state.rebuild()
        assert torch.equal(state.model.weight, weight)
        assert torch.equal(torch.rand(1), random)
        assert (state.step, state.best, state.seen) == (0, 0.0, [])
        assert sampler.state_dict() == ElasticSampler(9, global_batch=3).state_dict()
        state.seen.append(4)


def test_a_build_that_broke_is_tried_again() -> None:
    """A peer is lost while the groups of a mesh are made: the next generation builds as if nothing had been tried."""
    broken = [False]

    def fragile() -> dict[str, Any]:
        if broken[0]:
            message = "Connection closed by peer"
            raise RuntimeError(message)
        return build()

    state = ElasticState(None, build=fragile)
    for broken[0] in (False, True, True):
        with pytest.raises(RuntimeError) if broken[0] else contextlib.nullcontext():
            state.rebuild()
    broken[0] = False
    state.rebuild()

    assert state.optimizer.param_groups[0]["params"][0] is state.model.weight


def test_a_process_may_have_another_rank_in_a_group_of_the_same_size() -> None:
    """DTensor takes the two meshes for equal, and would give results of its operators the older one."""

    def shard() -> dict[str, Any]:
        model = torch.nn.Linear(4, 5, bias=False)
        fully_shard(model, mesh=init_device_mesh("cpu", (3,)))
        return {"model": model}

    state = ElasticState(None, build=shard)
    old: list[weakref.ref[DeviceMesh]] = []
    for rank in (2, 1, 0):
        dist.init_process_group("fake", rank=rank, world_size=3, store=FakeStore())
        try:
            state.rebuild()
            kept = [mesh for each in old if (mesh := each()) is not None]
            if (2, 10) <= torch.__version__ < (2, 13):  # these never free a mesh with which DTensor has computed
                kept = [mesh for mesh in kept if getattr(mesh, "_pg_registry", None)]
            assert kept == [], "its group keeps threads and descriptors"
            old.append(weakref.ref(state.model.weight.device_mesh))
            mine = state.model.state_dict()["weight"].detach().clone()
            assert list(mine.device_mesh.get_coordinate()) == [rank]
            del mine
            assert shards.box_in(state.capture()["shards"]["model.weight"]).begin == (2 * rank, 0)
        finally:
            dist.destroy_process_group()


def test_the_old_model_is_gone_before_the_new_one_is_built() -> None:
    """A device has no room for two; the parts of an FSDP2 model refer to each other."""
    built: list[weakref.ref[torch.nn.Module]] = []

    def shard() -> dict[str, Any]:
        assert [old for old in built if old() is not None] == []
        model = fully_shard(torch.nn.Linear(2, 3), mesh=init_device_mesh("cpu", (1,)))
        built.append(weakref.ref(model))
        return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1)}

    state = ElasticState(None, build=shard)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        for _ in range(3):
            state.rebuild()
    finally:
        dist.destroy_process_group()

    assert len(built) == 3


class FakeBuddies(Buddies):
    """A place in a ring of nodes, where copies arrive as they are told to."""

    arrivals: tuple[bool, ...] = ()
    is_parted = False

    @property
    def are_joined(self) -> bool:
        """Until this is given up."""
        return not self.is_parted

    def part(self) -> None:
        """There are no copies any more."""
        self.is_parted = True

    def send(self, content: memoryview | None) -> None:
        """Training leaves no copy on the other node."""
        assert content is not None

    def have_arrived(self) -> bool:
        """What comes next; at last they arrive."""
        arrived, self.arrivals = self.arrivals[0] if self.arrivals else True, self.arrivals[1:]
        return arrived


@pytest.mark.parametrize("arrivals", [None, (True, False), (True, True, True, False), ()])
def test_shards_without_copies_are_handed_over_on_disk(
    arrivals: tuple[bool, ...] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two nodes, each with its own shards; a copy did not arrive before, or with the last snapshot, or never could.

    A node that leaves takes its shards along. Those of the last step that has copies stay in memory.
    """
    (tmp_path / "node").mkdir()
    monkeypatch.setenv(VARIABLE, f"0:{tmp_path}/node/progress-1")
    monkeypatch.setattr(exchange, "are_copied", lambda _: False)
    state = ElasticState(tmp_path / "checkpoints", build=sharded)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        state.rebuild()
        if arrivals is not None:
            buddies = FakeBuddies(NodeMemory(str(tmp_path / "node"), 0))
            buddies.arrivals = arrivals
            object.__setattr__(state, "_buddies", buddies)
        state.step = 1
        state.snapshot()
        state.step = 2
        state.hand_over(durable=False)
        state.wait()
    finally:
        dist.destroy_process_group()

    is_safe = arrivals == ()
    assert Folder(Disk(tmp_path / "checkpoints"), pytest.fail).steps() == (() if is_safe else (2,))
    assert {step for step, _ in NodeMemory(str(tmp_path / "node"), 0).sharded()} == {1, 2}


def test_the_last_step_with_copies_stays_until_its_successor_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy of step 2 is late: the memory keeps step 1 meanwhile, and the disk gets what is due there."""
    (tmp_path / "node").mkdir()
    monkeypatch.setenv(VARIABLE, f"0:{tmp_path}/node/progress-1")
    state = ElasticState(tmp_path / "checkpoints", build=sharded)
    memory = NodeMemory(str(tmp_path / "node"), 0)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    copied, held = [], []
    try:
        state.rebuild()
        buddies = FakeBuddies(memory)
        buddies.arrivals = (True, True, False, False, True)
        object.__setattr__(state, "_buddies", buddies)
        for step in range(1, 6):
            state.step = step
            copied.append(state.snapshot(durable=step == 4))
            held.append({step for step, _ in memory.sharded()})
        state.wait()
    finally:
        dist.destroy_process_group()

    assert copied == [True, True, False, True, True]
    assert held == [{1}, {1, 2}, {1, 2}, {1, 2}, {2, 5}]
    assert Folder(Disk(tmp_path / "checkpoints"), pytest.fail).steps() == (4,)


def sharded() -> dict[str, Any]:
    """A layer whose shards are all on one rank."""
    return {"model": fully_shard(torch.nn.Linear(2, 3), mesh=init_device_mesh("cpu", (1,)))}


def test_a_build_of_another_shape_is_named(tmp_path: Path) -> None:
    """It depends on the group, for example: the snapshot of the group before does not fit."""
    widths = iter((3, 4))

    def shard() -> dict[str, Any]:
        return {"model": fully_shard(torch.nn.Linear(2, next(widths)), mesh=init_device_mesh("cpu", (1,)))}

    state = ElasticState(tmp_path, build=shard)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        state.restore()
        state.snapshot(durable=True)
        state.wait()
        state.rebuild()
        with pytest.raises(StateError, match=r"model\.weight is 3x2 in the snapshot and 4x2 here"):
            state.restore()
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize(
    ("result", "says"),
    [
        (torch.nn.Linear(1, 1), "must return its members by name"),
        ({}, "must return its members by name"),
        ({"model": 3}, "must return its members by name"),
        ({"data": torch.nn.Linear(1, 1)}, "'data', which ElasticState was given as well"),
    ],
)
def test_what_a_build_may_not_return(result: Any, says: str) -> None:
    """An error says what it must return."""
    state = ElasticState(None, build=lambda: result, data=ElasticSampler(9, global_batch=3))
    with pytest.raises(TypeError, match=says):
        state.restore()
