"""The random number generators of Python, NumPy, torch and CUDA as one tree that a snapshot holds."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import random
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import torch

from .host_memory import Tree


def capture() -> Tree:
    """The states of all generators."""
    version, numbers, gauss = random.getstate()
    state: dict[str, Tree] = {
        "python": [version, torch.tensor(numbers, dtype=torch.int64), gauss],
        "torch": torch.get_rng_state(),
    }
    if "numpy" in sys.modules:
        name, keys, position, has_gauss, cached = sys.modules["numpy"].random.get_state()
        numbers = torch.tensor(keys.astype("int64"))
        state["numpy"] = [str(name), numbers, int(position), int(has_gauss), float(cached)]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def begin(step: int, rank: int) -> None:
    """Seed all generators for a rank whose numbers are not known after a step.

    From the seed of torch's generator, the step and the rank: each rank draws other numbers than its peers and than it
    did before, and those of a repeated run are the same.
    """
    seed = _seed(step, rank)
    torch.manual_seed(seed)
    _seed_host(seed)


@contextlib.contextmanager
def aside(number: int) -> Iterator[None]:
    """Let a block draw numbers that count for nothing after it: all generators then are as they were before.

    For what is done again in a run that was disturbed: ``iter`` of a ``DataLoader`` draws the seed of its workers from
    torch's generator, without workers too (https://docs.pytorch.org/docs/stable/data.html#data-loading-randomness).

    Args:
        number: the block's numbers come from it and the seed of torch's generator, so that they are other ones for
            another number, and the same in a repeated run.
    """
    held = Held()
    held.hold()
    _seed_host(_seed(number))
    try:
        yield
    finally:
        held.set_back()


class Held:
    """The states of all generators at one moment, for this process alone: much quicker than ``capture``."""

    def __init__(self) -> None:
        self._set_back: list[Callable[[], None]] = []
        self._numpy = _HeldNumPy()

    def hold(self) -> None:
        """Hold the states that the generators have now, in place of those held before."""
        python, cpu = random.getstate(), torch.get_rng_state()
        self._set_back = [partial(random.setstate, python), partial(torch.set_rng_state, cpu)]
        if "numpy" in sys.modules:
            numbers = self._numpy.hold()
            self._set_back.append(partial(sys.modules["numpy"].random.set_state, numbers))
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            self._set_back.append(partial(torch.cuda.set_rng_state, torch.cuda.get_rng_state()))

    def set_back(self) -> None:
        """Set all generators to the states that are held."""
        for each in self._set_back:
            each()


class _HeldNumPy:
    """The state of NumPy's generator, which is read anew only where it may have changed.

    ``get_state`` takes a tenth of a millisecond, in each step. The bytes of the Mersenne Twister are read in less than
    one in a hundred of that (https://numpy.org/doc/stable/reference/random/extending.html). Where they are what they
    were, nothing was drawn, unless a second normal number was kept from a draw before: then the state is read.
    """

    _TWISTER_BYTES: Final = 624 * 4 + 4
    """Its numbers and its position, each of 32 bits."""

    def __init__(self) -> None:
        self._state: Tree = None
        self._bytes: bytes | None = None
        """What the twister held when ``_state`` was read; None where the next state has to be read in any case."""

    def hold(self) -> Tree:
        """The state of now."""
        now = self._twister()
        if self._bytes is None or now != self._bytes:
            self._state = sys.modules["numpy"].random.get_state(legacy=False)
            self._bytes = now if now is not None and self._is_told_by(now) else None
        return self._state

    def _twister(self) -> bytes | None:
        """What the generator holds; None where it is no Mersenne Twister, or NumPy is older than 1.24."""
        numpy = sys.modules["numpy"].random
        generator = numpy.get_bit_generator() if hasattr(numpy, "get_bit_generator") else None
        if generator is None or type(generator).__name__ != "MT19937":
            return None
        return ctypes.string_at(generator.ctypes.state_address, self._TWISTER_BYTES)

    def _is_told_by(self, twister: bytes) -> bool:
        """Whether these bytes tell all of the state that was read."""
        numbers, position = self._state["state"]["key"], self._state["state"]["pos"]
        return not self._state["has_gauss"] and twister == numbers.tobytes() + position.to_bytes(4, sys.byteorder)


def restore(state: Tree) -> None:
    """Set all generators to a captured state."""
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers.tolist()), gauss))
    torch.set_rng_state(state["torch"].clone())
    if "numpy" in state and "numpy" in sys.modules:
        name, keys, position, has_gauss, cached = state["numpy"]
        numpy = sys.modules["numpy"]
        numpy.random.set_state((name, numpy.array(keys.tolist(), dtype="uint32"), position, has_gauss, cached))
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"].clone())


def _seed(*numbers: int) -> int:
    """Another seed for other numbers, from the one of torch's generator."""
    text = " ".join(map(str, (torch.initial_seed(), *numbers))).encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "little", signed=True)


def _seed_host(seed: int) -> None:
    """Seed the generators of the CPU, and none of a device, whose seed torch would keep for later."""
    random.seed(seed)
    torch.default_generator.manual_seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)
