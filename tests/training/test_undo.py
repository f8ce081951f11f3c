"""A step that broke leaves no trace, unless its optimizer has stepped."""

from __future__ import annotations

import random
import weakref

import pytest
import torch

from elastic_infra.training import ElasticState
from elastic_infra.training.process_group import BrokenError
from elastic_infra.training.undo import StepUndo


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
