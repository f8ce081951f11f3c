"""The generators are set back to where they were, whatever was drawn in between."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import mtrand

from elastic_infra.training import generators

DRAWS: dict[str, Callable[[], object]] = {
    "python": random.random,
    "python normal": lambda: random.gauss(0, 1),
    "torch": lambda: torch.rand(1).item(),
    "numpy": np.random.random,
    "numpy normal": np.random.standard_normal,
    "numpy seed": lambda: np.random.seed(3),  # noqa: NPY002  as scripts do
    "numpy other generator": lambda: mtrand.set_bit_generator(np.random.PCG64(1)),
    "numpy twister": lambda: mtrand.set_bit_generator(np.random.MT19937(1)),
}
DRAWN = st.lists(st.sampled_from(sorted(DRAWS)), max_size=5)


def drawn() -> list[object]:
    """What the generators give next: normal numbers come in pairs, so that the odd one tells too."""
    numbers = ("python", "python normal", "torch", "numpy normal", "numpy normal", "numpy")
    return [DRAWS[name]() for name in numbers]


@given(steps=st.lists(st.tuples(DRAWN, st.booleans()), min_size=1, max_size=6))
def test_generators_are_set_back(steps: list[tuple[list[str], bool]]) -> None:
    """Each hold replaces the one before, broken steps are set back, and what is drawn after it is drawn again."""
    held = generators.Held()
    try:
        for names, breaks in steps:
            for name in names:
                DRAWS[name]()
            held.hold()
            if breaks:
                DRAWS["numpy normal"]()
                held.set_back()
        expected = drawn()
        held.set_back()
        assert drawn() == expected
    finally:
        mtrand.set_bit_generator(np.random.MT19937())


def test_a_kept_normal_number_counts() -> None:
    """Normal numbers come in pairs: taking the second one leaves the twister as it was."""
    held = generators.Held()
    DRAWS["numpy normal"]()
    held.hold()
    DRAWS["numpy normal"]()
    held.hold()
    expected = drawn()
    held.set_back()
    assert drawn() == expected


def test_ranks_without_numbers_of_their_own_get_others() -> None:
    """By seed, step and rank: no two are alike, and another run draws the same."""
    held = generators.Held()
    held.hold()
    try:
        found = []
        for seed, step, rank in [(0, 5, 1), (0, 5, 2), (0, 6, 1), (1, 5, 1), (0, 5, 1)]:
            torch.manual_seed(seed)
            generators.begin(step, rank)
            found.append(tuple(drawn()))
        assert found[0] == found[4]
        for each in zip(*found[:4], strict=True):
            assert len(set(each)) == 4
    finally:
        held.set_back()


def test_numbers_drawn_aside_count_for_nothing() -> None:
    """They are others for another number and the same in a repeated run, and what comes after them does not change."""
    held = generators.Held()
    held.hold()
    try:
        torch.manual_seed(0)
        found = []
        for number in (1, 2, 1):
            with generators.aside(number):
                found.append(tuple(drawn()))
        after = torch.rand(1)
        assert found[0] == found[2]
        assert not set(found[0]) & set(found[1])
        torch.manual_seed(0)
        assert torch.equal(torch.rand(1), after)
    finally:
        held.set_back()


def test_numbers_are_drawn_aside_with_any_generator_of_numpy() -> None:
    """It is seeded like the others, and goes on as it would have."""
    try:
        mtrand.set_bit_generator(np.random.PCG64(1))
        expected = DRAWS["numpy"]()
        mtrand.set_bit_generator(np.random.PCG64(1))
        with generators.aside(1):
            DRAWS["numpy"]()
        assert DRAWS["numpy"]() == expected
    finally:
        mtrand.set_bit_generator(np.random.MT19937())


def test_the_page_tells_how_large_the_generators_of_a_worker_are() -> None:
    """On the CPU, with NumPy: what each node sends to another after a snapshot."""
    page = Path(__file__).parents[2].joinpath("docs/training.md").read_text()
    told = re.findall(r"some (\d+) kB a\s+worker", page)
    leaves = [leaf for part in generators.capture().values() for leaf in (part if isinstance(part, list) else [part])]
    size = sum(leaf.nbytes for leaf in leaves if isinstance(leaf, torch.Tensor))

    assert [int(each) for each in told] == [pytest.approx(size / 1e3, rel=0.05)]
