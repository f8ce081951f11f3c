"""Copies many tensors at once while training waits: a core alone copies slower than the memory takes.

Only tensors in host memory are copied by several threads. Those of a device follow the stream of the calling thread.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import torch

THREADS: Final = 4
"""More do not help, since the memory is the limit then, and each worker of a node may copy."""
PIECE_BYTES: Final = 1 << 25
"""A larger tensor is copied in pieces, so that one embedding does not keep one thread busy while the others wait."""

Pair = tuple[torch.Tensor, torch.Tensor]
"""Target and source, of one shape."""


def copy_all(pairs: Iterable[Pair]) -> None:
    """Copy each source to its target."""
    pieces = [piece for pair in pairs for piece in _pieces(pair)]
    on_host = [piece for piece in pieces if _is_on_host(*piece)]
    threads = min(THREADS, len(os.sched_getaffinity(0)), sum(map(_bytes_of, on_host)) // PIECE_BYTES)
    inference = torch.is_inference_mode_enabled()
    if threads <= 1:
        _copy(pieces, inference=inference)
        return
    with ThreadPoolExecutor(threads) as pool:
        copied = [pool.submit(_copy, each, inference=inference) for each in _shared_out(on_host, threads)]
        _copy((piece for piece in pieces if not _is_on_host(*piece)), inference=inference)
        for each in copied:
            each.result()


def _copy(pairs: Iterable[Pair], *, inference: bool) -> None:
    with torch.inference_mode(inference), torch.no_grad():  # both are settings of each thread
        for target, source in pairs:
            target.copy_(source)


def _shared_out(pieces: Iterable[Pair], threads: int) -> list[list[Pair]]:
    """The pieces, in as many lots of nearly as many bytes."""
    lots: list[list[Pair]] = [[] for _ in range(threads)]
    sizes = [0] * threads
    for piece in sorted(pieces, key=_bytes_of, reverse=True):
        least = sizes.index(min(sizes))
        lots[least].append(piece)
        sizes[least] += _bytes_of(piece)
    return lots


def _pieces(pair: Pair) -> Iterator[Pair]:
    target, source = pair
    if _bytes_of(pair) <= PIECE_BYTES or not (target.is_contiguous() and source.is_contiguous()):
        yield pair
        return
    length = PIECE_BYTES // source.element_size()
    yield from zip(target.view(-1).split(length), source.view(-1).split(length), strict=True)


def _is_on_host(target: torch.Tensor, source: torch.Tensor) -> bool:
    return {target.device.type, source.device.type} == {"cpu"}


def _bytes_of(pair: Pair) -> int:
    size: int = pair[1].numel() * pair[1].element_size()
    return size
