"""Tensors are copied whole, whoever copies them."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable

import pytest
import torch

from elastic_infra.training import copying


@pytest.mark.parametrize("cores", [1, 2, 7])
def test_each_tensor_is_copied_whole(monkeypatch: pytest.MonkeyPatch, cores: int) -> None:
    """In pieces or not, on one core or on several: large, odd, empty, transposed, and of each kind of number."""
    monkeypatch.setattr(copying, "PIECE_BYTES", 1 << 10)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    sources = [
        torch.randn(3001),
        torch.randn(64, 65).t(),
        torch.randn(()),
        torch.randn(0, 3),
        torch.arange(999, dtype=torch.uint8),
        torch.randn(70, 70, dtype=torch.bfloat16),
        torch.randn(50, 50).requires_grad_(),
    ]
    targets = [torch.full_like(source, 7, requires_grad=False) for source in sources]
    copying.copy_all(zip(targets, sources, strict=True))

    assert all(torch.equal(target, source) for target, source in zip(targets, sources, strict=True))


def test_several_threads_copy_what_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as there are cores, and none for what one core copies in no time."""
    lots: dict[int, int] = {}
    meeting = threading.Barrier(3, timeout=30)

    def copy(pairs: Iterable[copying.Pair], *, inference: bool) -> None:
        assert not inference
        lots[threading.get_ident()] = len([*pairs])
        if threading.current_thread() is not threading.main_thread():
            meeting.wait()

    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    monkeypatch.setattr(copying, "PIECE_BYTES", 1 << 10)
    monkeypatch.setattr(copying, "_copy", copy)
    copying.copy_all([(torch.empty(1536), torch.empty(1536))])
    several = sorted(lots.values())
    lots.clear()
    copying.copy_all([(torch.empty(8), torch.empty(8))])

    assert (several, lots) == ([0, 2, 2, 2], {threading.get_ident(): 1})


def test_what_is_made_in_inference_mode_is_copied_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """An evaluation may take a snapshot: torch refuses to change such a tensor outside of the mode."""
    monkeypatch.setattr(copying, "PIECE_BYTES", 1 << 10)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    source = torch.randn(1 << 12)
    with torch.inference_mode():
        target = torch.zeros(1 << 12)
        copying.copy_all([(target, source)])

    assert torch.equal(target, source)


def test_a_copy_that_fails_is_told() -> None:
    """The error of a thread is the caller's."""
    wrong = [(torch.empty(1 << 23), torch.empty(1 << 22)), (torch.empty(1 << 23), torch.empty(1 << 23))]

    with pytest.raises((RuntimeError, ValueError)):
        copying.copy_all(wrong)
