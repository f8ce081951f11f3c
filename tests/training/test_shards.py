"""Boxes of any world fill the boxes of any other, and what cannot be restored is refused."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from elastic_infra.launcher.workers import channel, progress
from elastic_infra.training import Elastic, ElasticGroup, ElasticState, Restored, StateError, exchange, shards
from elastic_infra.training.shards import Assembly, Box, Held, Target, box_of

Layout = tuple[tuple[int, ...], tuple[int | None, ...]]
"""Sizes of a mesh, and in which dimension of the tensor each one cuts."""
SHAPES = st.lists(st.integers(0, 7), min_size=1, max_size=3).map(tuple)


def layouts(dims: int) -> st.SearchStrategy[Layout]:
    """Meshes of one or two dimensions."""
    cuts = st.lists(st.tuples(st.integers(1, 5), st.none() | st.integers(0, dims - 1)), min_size=1, max_size=2)
    return cuts.map(lambda cut: (tuple(size for size, _ in cut), tuple(dim for _, dim in cut)))


def boxes(shape: Sequence[int], layout: Layout) -> list[Box]:
    """The box of each rank."""
    mesh, dims = layout
    return [box_of(shape, mesh, place, dims) for place in itertools.product(*map(range, mesh))]


def values_of(shape: Sequence[int]) -> torch.Tensor:
    """A tensor whose values are all different."""
    return torch.arange(math.prod(shape)).view(tuple(shape))


@settings(max_examples=50)
@given(SHAPES, st.integers(1, 9), st.data())
def test_a_box_is_torchs_chunk(shape: tuple[int, ...], ranks: int, data: st.DataObject) -> None:
    """Along one dimension of a mesh, as ``fully_shard`` cuts; ranks beyond the last chunk have nothing."""
    dim = data.draw(st.integers(0, len(shape) - 1))
    whole = Box((0,) * len(shape), shape)
    chunks = values_of(shape).chunk(ranks, dim)
    found = [whole.view(values_of(shape), box) for box in boxes(shape, ((ranks,), (dim,)))]

    assert all(torch.equal(mine, theirs) for mine, theirs in zip(found, chunks, strict=False))
    assert not any(rest.numel() for rest in found[len(chunks) :])


@given(SHAPES, st.data())
def test_any_world_is_filled_from_any_other(shape: tuple[int, ...], data: st.DataObject) -> None:
    """Over a wire that is only played here: what each rank holds, wants, sends and receives gives the whole tensor.

    A rank may keep another one's box, and ranks may be lost. Where values are lost with them, the snapshot counts as
    incomplete, and only there.
    """
    whole = Box((0,) * len(shape), shape)
    old, new = (boxes(shape, data.draw(layouts(len(shape)))) for _ in range(2))
    lost = data.draw(st.sets(st.integers(0, len(old) - 1)))
    ranks = max(len(old), len(new))
    kept = [{rank, data.draw(st.integers(0, len(old) - 1))} if rank < len(old) else set() for rank in range(ranks)]
    held = [[old[each] for each in sorted(kept[rank] if rank not in lost else ())] for rank in range(ranks)]
    wanted = [new[rank] if rank < len(new) and new[rank].volume else None for rank in range(ranks)]
    inventories = [{(5, "run"): {"x": tuple(Held(shape, box) for box in found)}} for found in held if found]
    there = torch.zeros(shape, dtype=torch.bool)
    for box in itertools.chain(*held):
        whole.view(there, box).fill_(1)

    key, reason = exchange.newest_whole(inventories)
    assert (key is not None) == (bool(inventories) and bool(there.all()))
    assert bool(reason) == (bool(inventories) and key is None)
    if key is None:
        return
    plans = [exchange.parcels(rank, held, wanted) for rank in range(ranks)]
    sent = {(source, target, part) for source in range(ranks) for target, _, part in plans[source][0]}
    assert sent == {(source, target, part) for target in range(ranks) for source, part in plans[target][1]}
    for rank in range(len(new)):
        values = torch.empty(new[rank].shape, dtype=torch.int64)
        assembly = Assembly({"x": Target(values, new[rank], values)})
        for box in (*held[rank], *(part for _, part in plans[rank][1]), *held[rank]):
            assembly.take("x", box, whole.view(values_of(shape), box))
        assert assembly.missing == ()
        assert torch.equal(values, whole.view(values_of(shape), new[rank]))


@pytest.fixture(scope="module")
def alone() -> Iterator[None]:
    """A group with this process as its only member."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def spread(*shape: int, placement: object = Shard(0)) -> DTensor:
    """A sharded tensor of ones."""
    return DTensor.from_local(torch.ones(shape), init_device_mesh("cpu", (1,)), [placement])


def sharded(folder: Path | None, *, width: int = 3) -> ElasticState:
    """A state with a layer of so many rows under FSDP2, after a step whose gradients are all one.

    There is no forward pass, which FSDP2 of torch 2.6 cannot do on the CPU.
    """
    model = fully_shard(torch.nn.Linear(2, width, bias=False), mesh=init_device_mesh("cpu", (1,)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model.weight.grad = spread(width, 2)
    optimizer.step()
    return ElasticState(folder, model=model, optimizer=optimizer)


@pytest.mark.usefixtures("alone")
def test_training_goes_on_with_shards(tmp_path: Path) -> None:
    """Weights and momentum are sharded as before, and their values are those of the snapshot."""
    state = sharded(tmp_path)
    state.step = 1
    state.snapshot(durable=True)
    state.wait()
    expected = state.model.weight.detach().full_tensor().clone()
    state.optimizer.step()
    momentum = state.optimizer.state[state.model.weight]["momentum_buffer"]
    momentum.zero_()

    assert state.restore() == Restored(1, "disk")
    momentum = state.optimizer.state[state.model.weight]["momentum_buffer"]
    assert isinstance(momentum, DTensor)
    assert torch.equal(momentum.full_tensor(), torch.ones(3, 2))
    assert torch.equal(state.model.weight.full_tensor(), expected)


@pytest.mark.usefixtures("alone")
def test_later_snapshots_do_not_reach_what_was_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not sharded lies in the node's memory, which the second one overwrites in another place."""
    monkeypatch.setenv(progress.VARIABLE, f"0:{tmp_path}/progress-1")
    members = sharded(None).members
    state = ElasticState(None, **members, best=torch.rand(2000), note="")
    state.optimizer.state[state.model.weight]["step"] = torch.rand(2000)
    state.snapshot()
    saved = [state.best.clone(), state.optimizer.state[state.model.weight]["step"].clone()]
    assert state.restore() == Restored(0, "memory")
    state.note = "longer " * 100
    for _ in range(2):
        state.step += 1
        state.snapshot()

    assert torch.equal(state.best, saved[0])
    assert torch.equal(state.optimizer.state[state.model.weight]["step"], saved[1])


@pytest.mark.usefixtures("alone")
def test_shards_that_do_not_fit_are_named(tmp_path: Path) -> None:
    """Another shape, and tensors that only one of snapshot and members spreads over the ranks."""
    state = sharded(tmp_path)
    state.snapshot(durable=True)
    state.wait()
    with pytest.raises(StateError, match=r"model\.weight is 3x2 in the snapshot and 4x2 here; optimizer\.state\.0\."):
        sharded(tmp_path, width=4).restore()
    state.members["model"] = torch.nn.Linear(5, 1)
    with pytest.raises(StateError, match=r"model\.weight is 3x2 in the snapshot and 1x5 here"):
        state.restore()

    whole = ElasticState(tmp_path / "whole", model=torch.nn.Linear(2, 3, bias=False))
    whole.snapshot(durable=True)
    whole.wait()
    with pytest.raises(StateError, match=r"model\.weight is whole in the snapshot and sharded here"):
        ElasticState(tmp_path / "whole", model=sharded(None).model).restore()


@pytest.mark.usefixtures("alone")
def test_what_no_restore_could_place_is_refused_when_it_is_saved() -> None:
    """An optimizer's value of another shape than its parameter, and a sum that is not made yet."""
    state = sharded(None)
    state.optimizer.state[state.model.weight]["rows"] = spread(3)
    with pytest.raises(TypeError, match=r"optimizer\.state\.0\.rows is sharded, and has another shape"):
        state.capture()
    tensors, mine = shards.cut({"copy": spread(2, placement=Replicate())})
    assert tensors["copy"][shards.REFERENCE]["shape"] == [2]
    assert shards.box_in(mine["copy"]) == Box((0,), (2,))
    with pytest.raises(TypeError, match=r"sum has the placement P.*Shard and Replicate only"):
        shards.cut({"sum": spread(2, placement=Partial())})


@pytest.mark.usefixtures("alone")
def test_a_sharded_state_is_not_saved_by_one_rank(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The other ranks have the rest."""
    failed: list[int] = []
    sharded(tmp_path).save_alone(failed=failed.append)

    assert failed == [0]
    assert list(tmp_path.iterdir()) == []
    assert "Step 0 is not saved, because the other ranks have shards of the state." in capsys.readouterr().err


@pytest.mark.usefixtures("alone")
def test_a_model_that_was_sharded_without_its_peers_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its ranks would train apart from each other. With ``sharded`` the group is torch's, which is said once."""
    server = channel.Server.listen(str(tmp_path / "channel"))
    connection = channel.connect({channel.VARIABLE: server.path})
    assert connection is not None
    movable = ElasticGroup(connection)
    with pytest.raises(RuntimeError, match=r"this process alone\. Give ElasticState a function .*\.start\("):
        next(Elastic(sharded(None), group=movable).steps(1))
    connection.close()
    server.close()

    monkeypatch.setattr(dist, "init_process_group", lambda *_, **__: None)  # this process has its group already
    assert not ElasticGroup.start(sharded=True, environ={channel.VARIABLE: "a path", "RANK": "0"}).is_movable
    (line,) = capsys.readouterr().err.splitlines()
    assert "cannot leave the group in which it was built. Workers restart when nodes come or go." in line
