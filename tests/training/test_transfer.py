"""The tree by which a state reaches those that lack it."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from elastic_infra.training import transfer


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13])
def test_everybody_has_one_parent_and_is_reached_from_the_first(size: int) -> None:
    """Each rank but the first gets the state once, from a rank that gets it itself."""
    ranks = [10 * position for position in range(size)]
    ways = {rank: transfer._Way(ranks, position, None) for position, rank in enumerate(ranks)}
    sent = [(rank, child) for rank, way in ways.items() for child in way._children]

    assert sorted(child for _, child in sent) == ranks[1:]
    assert all(ways[child]._parent == rank for rank, child in sent)
    assert all(rank < child for rank, child in sent)
    assert len(ways[0]._children) == (size - 1).bit_length()


def test_tensors_pass_through_the_device_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the backend takes no tensors of the CPU; the device needs room for one part."""
    wire: list[torch.Tensor] = []
    monkeypatch.setattr(transfer, "CARRIED", 3)
    monkeypatch.setattr(dist, "send", lambda tensor, *_, **__: wire.append(tensor.clone()))
    monkeypatch.setattr(dist, "recv", lambda tensor, *_, **__: tensor.copy_(wire.pop(0)))
    sent, received = torch.arange(8.0).reshape(2, 4), torch.zeros(2, 4)
    device = torch.device("cpu")

    transfer._Way([0, 1], 0, None, device).pass_on(sent)
    assert [part.numel() for part in wire] == [3, 3, 2]
    transfer._Way([0, 1], 1, None, device).pass_on(received)
    assert torch.equal(received, sent)
