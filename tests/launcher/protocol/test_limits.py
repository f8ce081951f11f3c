"""The numbers of the protocol: which sizes may train, and how long newcomers wait."""

from __future__ import annotations

import pytest

from elastic_infra.launcher.protocol.limits import UNKNOWN_START, Limits


@pytest.mark.parametrize(
    ("limits", "nodes", "workers", "refused", "is_allowed"),
    [
        (Limits(), 3, 24, (), True),
        (Limits(), 3, 24, (8, 24), False),
        (Limits(node_unit=2), 3, 24, (), False),
        (Limits(node_unit=2), 4, 24, (), True),
        (Limits(world_sizes=(8, 16)), 3, 24, (), False),
        (Limits(world_sizes=(8, 16)), 2, 16, (), True),
        (Limits(world_sizes=(8, 16)), 2, 16, (16,), False),
        (Limits(node_unit=2, world_sizes=(8,)), 1, 8, (), False),
    ],
)
def test_sizes_that_may_train(
    limits: Limits, nodes: int, workers: int, refused: tuple[int, ...], is_allowed: bool
) -> None:
    """Whole units of nodes, with a number of workers that the user lists and the script has not refused."""
    assert limits.allows(nodes, workers, refused) == is_allowed


@pytest.mark.parametrize(
    ("limits", "longest_start", "seconds"),
    [
        (Limits(), None, UNKNOWN_START),
        (Limits(planned_gap=30.0), 5, 30.0),
        (Limits(planned_gap=30.0), 60, 180.0),
        (Limits(startup_patience=7.0), None, 7.0),
        (Limits(startup_patience=7.0), 60, 7.0),
        (Limits(startup_patience=0.0), 60, 0.0),
    ],
)
def test_newcomers_wait_for_a_first_step(limits: Limits, longest_start: int | None, seconds: float) -> None:
    """Three times the longest start so far and the planned gap at least; a value that the user gives counts alone."""
    assert limits.patience(longest_start) == seconds


def test_a_silent_node_is_dead_later_than_its_workers() -> None:
    """Peers count a node as dead only after its own supervisor must have ended its workers."""
    assert Limits(orphan_timeout=60.0, orphan_margin=5.0).dead_after == 65.0
