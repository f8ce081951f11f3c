"""A step that broke leaves no trace, unless its optimizer has stepped."""

from __future__ import annotations

import random

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
