"""A step that broke leaves no trace, unless its optimizer has stepped."""

from __future__ import annotations

import random
import weakref
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from elastic_infra.training import ElasticState
from elastic_infra.training.process_group import BrokenError
from elastic_infra.training.undo import MANY, SMALL_BYTES, StepUndo


def test_a_broken_step_leaves_no_trace() -> None:
    """Random numbers, BatchNorm's averages, plain values and gradients are as before it."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    state = ElasticState(None, model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), best=1.0)
    undo = StepUndo(state)
    model(torch.randn(4, 3)).sum().backward()
    undo.begin()
    before = [buffer.clone() for buffer in model.buffers()]
    drawn = (random.random(), torch.rand(1))
    model(torch.randn(4, 3)).sum().backward()
    state.best = 2.0

    assert undo.undo()
    assert all(torch.equal(old, new) for old, new in zip(before, model.buffers(), strict=True))
    assert (random.random(), torch.rand(1)) == drawn
    assert state.best == 1.0
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_step_of_the_optimizer_cannot_be_undone() -> None:
    """The next step can."""
    model = torch.nn.Linear(3, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    undo = StepUndo(ElasticState(None, model=model, optimizer=optimizer))
    undo.begin()
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    assert not undo.undo()

    undo.begin()
    assert undo.undo()


def test_collectives_that_were_cut_reach_no_weights() -> None:
    """They are confirmed before the optimizer takes their gradients, and at the end of a step without one."""
    model = torch.nn.Linear(3, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    faults: list[Exception] = [BrokenError("cut")]

    def confirm() -> None:
        if faults:
            raise faults.pop()

    undo = StepUndo(ElasticState(None, model=model, optimizer=optimizer), confirm)
    before = model.weight.detach().clone()
    undo.begin()
    model(torch.ones(1, 3)).sum().backward()
    with pytest.raises(BrokenError):
        optimizer.step()
    assert torch.equal(model.weight, before)
    assert undo.undo()

    undo.begin()
    faults.append(BrokenError("cut"))
    with pytest.raises(BrokenError):
        undo.confirm()

    undo.begin()
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    faults.append(BrokenError("cut later, where all that counts is done"))
    undo.confirm()
    assert not torch.equal(model.weight, before)


@pytest.mark.parametrize("comes", ["as a part", "to a part"])
def test_a_buffer_that_came_after_the_first_step_is_set_back(comes: str) -> None:
    """A model may get averages while it trains: as a part, or as a buffer of a part that had none."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 4))
    undo = StepUndo(ElasticState(None, model=model))
    undo.begin()
    if comes == "as a part":
        model.append(torch.nn.BatchNorm1d(4))
    else:
        model[0].register_buffer("mean", torch.zeros(4))
    undo.begin()
    before = [buffer.clone() for buffer in model.buffers()]
    for buffer in model.buffers():
        buffer.add_(1)

    undo.undo()
    assert before
    assert all(torch.equal(old, new) for old, new in zip(before, model.buffers(), strict=True))


class Mean(torch.nn.Module):  # type: ignore[misc]  # torch's types are not read
    """A running mean that each forward pass puts in the place of the former one."""

    mean: torch.Tensor
    first: torch.Tensor | None

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(2))
        self.register_buffer("first", None)

    def forward(self, number: float) -> None:
        self.mean = 0.5 * self.mean + 0.5 * number
        if self.first is None:
            self.first = self.mean


def test_a_buffer_that_a_step_replaces_is_put_back() -> None:
    """The tensor that was there, and its values where the step changed these too; None is put back as well."""
    model = Mean()
    undo = StepUndo(ElasticState(None, model=model))
    undo.begin()
    before = model.mean
    model(1.0)
    before.add_(1)

    undo.undo()
    assert model.mean is before
    assert model.mean.tolist() == [0, 0]
    assert model.first is None


def test_buffers_that_steps_replaced_are_let_go() -> None:
    """One that is of no use any more keeps neither itself nor a copy in memory."""
    model = Mean()
    model.first = torch.zeros(2)
    undo = StepUndo(ElasticState(None, model=model))
    replaced = []
    for _ in range(3):
        undo.begin()
        replaced.append(weakref.ref(model.mean))
        model(1.0)
    undo.begin()
    assert [each() for each in replaced] == [None] * 3


def test_a_buffer_from_an_evaluation_is_held() -> None:
    """A tensor of inference mode has no version, and does not change either."""
    model = Mean()
    undo = StepUndo(ElasticState(None, model=model))
    with torch.inference_mode():
        model(1.0)
    undo.begin()
    model.mean = torch.ones(2)

    undo.undo()
    assert model.mean.tolist() == [0.5, 0.5]


def test_what_a_step_adds_to_plain_collections_is_taken_out() -> None:
    """At any depth and in the very same collection, to which the script may hold another name; tensors too."""
    losses = [1.0]
    state = ElasticState(None, losses=losses, seen=Counter(a=1), nested=({"at": [0]}, 2), total=torch.zeros(2))
    undo = StepUndo(state)
    undo.begin()
    losses.append(2.0)
    state.seen["b"] += 1
    state.nested[0]["at"][0] = 5
    state.total += 1

    undo.undo()
    assert state.losses is losses
    assert (losses, state.seen, state.nested) == ([1.0], Counter(a=1), ({"at": [0]}, 2))
    assert state.total.tolist() == [0, 0]


def test_a_long_history_is_not_looked_into() -> None:
    """What a step adds is taken out; a change in one of so many items stays."""
    state = ElasticState(None, history=[{"step": step} for step in range(MANY + 1)])
    undo = StepUndo(state)
    undo.begin()
    state.history.append({"step": MANY + 1})
    state.history[0]["step"] = 5

    undo.undo()
    assert len(state.history) == MANY + 1
    assert state.history[0] == {"step": 5}


class Tokens:
    """A counter of a script's own, and the values it counts."""

    def __init__(self, size: int = 1) -> None:
        self.count = 0
        self.values = torch.zeros(size)
        self.asked = 0

    def add(self, number: int) -> None:
        """Count some more samples."""
        self.count += number
        self.values += number

    def state_dict(self) -> dict[str, Any]:
        """Both counts, as a member has them."""
        self.asked += 1
        return {"count": self.count, "values": self.values}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Count on from there."""
        self.count, self.values = state["count"], state["values"]


class Stream(Tokens):
    """Counts what was read from it."""

    def __iter__(self) -> Iterator[int]:
        while True:
            self.add(1)
            yield self.count


def test_members_that_are_neither_module_nor_optimizer_are_undone() -> None:
    """Not a stream, of which the script may have an iterator; nor a large one, which is asked once."""
    large, small, stream = Tokens(SMALL_BYTES), Tokens(), Stream()
    undo = StepUndo(ElasticState(None, large=large, small=small, stream=stream))
    for _ in range(3):
        undo.begin()
        for member in (large, small, stream):
            member.add(2)
        undo.undo()

    assert (small.count, small.values.tolist(), small.asked) == (0, [0], 3)
    assert (stream.count, stream.asked) == (6, 0)
    assert (large.count, large.asked) == (6, 1)


@pytest.mark.parametrize("rate", [0.1, torch.tensor(0.1)])
def test_a_schedule_that_moved_is_set_back(rate: float | torch.Tensor) -> None:
    """With the learning rate, also one that is a tensor: a script may step the schedule before the optimizer."""
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], lr=rate)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [1], gamma=0.5)
    undo = StepUndo(ElasticState(None, optimizer=optimizer, scheduler=scheduler))
    optimizer.step()
    for _ in range(2):
        undo.begin()
        scheduler.step()
        assert optimizer.param_groups[0]["lr"] == pytest.approx(0.05)
        undo.undo()

    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1)
    assert scheduler.last_epoch == 0


def test_gradients_of_a_repeated_step_are_unscaled() -> None:
    """The scaler has unscaled those of the broken step, and does so once before each ``optimizer.step``."""

    def trained(faults: list[BrokenError | None]) -> torch.Tensor:
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu")

        def confirm() -> None:
            if faults and (fault := faults.pop()) is not None:
                raise fault

        undo = StepUndo(ElasticState(None, model=model, optimizer=optimizer, scaler=scaler), confirm)
        steps = 0
        while steps < 3:
            undo.begin()
            try:
                scaler.scale(model(torch.ones(1, 3)).sum()).backward()
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
                steps += 1
            except BrokenError:
                assert undo.undo()
        weight: torch.Tensor = model.weight.detach()
        return weight

    assert torch.equal(trained([BrokenError("cut"), None, BrokenError("cut")]), trained([]))
