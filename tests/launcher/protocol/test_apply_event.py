"""Events into state: facts are taken down, each by itself."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from elastic_infra.launcher.protocol import apply_event as module
from elastic_infra.launcher.protocol import events
from elastic_infra.launcher.protocol.apply_event import apply_event
from elastic_infra.launcher.protocol.limits import Limits
from elastic_infra.launcher.protocol.state import LocalWorkers, State
from tests.launcher.protocol.states import PAIR, connected, peer

LIMITS = Limits(max_nodes=2, startup_window=60.0)


def training(**known: object) -> State:
    state = connected(LIMITS, PAIR, peer("n1", "member"))
    return replace(state, workers=replace(LocalWorkers(PAIR.identity, "running"), **known))  # type: ignore[arg-type]  # its fields


def test_every_event_has_its_handler() -> None:
    """A new kind of event cannot be forgotten."""
    assert set(module._HANDLERS) == set(get_args(events.Event))


@pytest.mark.parametrize(("fresh", "has_latest"), [(True, True), (False, False)])
def test_the_latest_record_is_held_only_if_the_store_was_seen_to_die(fresh: bool, has_latest: bool) -> None:
    """A node that was away before the store was lost may have missed a later record."""
    lost = apply_event(training(), events.StoreLost(fresh), 1.0)

    assert (lost.store.connected, lost.has_latest) == (False, has_latest)


def test_the_newest_record_is_kept_over_the_lives_of_the_store() -> None:
    """A reborn store shows an older one at first; a deleted one is forgotten on purpose."""
    older = replace(PAIR, number=0)
    seen = apply_event(training(), events.GenerationSeen(older, 9), 1.0)

    assert (seen.generation, seen.latest_seen) == (older, PAIR)
    assert apply_event(training(), events.GenerationSeen(None, 0), 1.0).latest_seen is None


@pytest.mark.parametrize(
    ("known", "code", "now", "startup"),
    [({}, 1, 10.0, True), ({}, -9, 10.0, False), ({}, 1, 61.0, False), ({"highest": 3}, 1, 10.0, False)],
)
def test_a_failure_while_starting_is_told_apart(known: dict[str, object], code: int, now: float, startup: bool) -> None:
    """It failed by itself, early, before any step."""
    failed = apply_event(training(**known), events.WorkerExited(PAIR.number, 0, code, "why", stopped=False), now)

    assert failed.workers is not None
    assert failed.workers.failure is not None
    assert (failed.workers.failure.exit_code, failed.workers.failure.startup) == (code, startup)


@pytest.mark.parametrize(
    ("known", "exception", "noted"),
    [
        ({"failing": True}, "AssertionError", "1 AssertionError"),
        ({"failing": True, "told": True}, "AssertionError", "1 AssertionError"),
        ({"failing": True, "stepped_at": 1.0}, "AssertionError", ""),
        ({"failing": True}, "", ""),
        ({"told": True}, "AssertionError", ""),
    ],
)
def test_an_exception_counts_though_a_signal_came_before_the_end(
    known: dict[str, object], exception: str, noted: str
) -> None:
    """Python's own end takes seconds after a fork of torch: a peer that failed first has this worker killed by then."""
    exited = events.WorkerExited(PAIR.number, 0, -15, exception=exception, stopped=False)
    ended = apply_event(training(**known), exited, 3.0)

    assert ended.workers is not None
    assert ended.workers.start_failure == noted


def test_workers_that_were_told_to_end_do_not_fail() -> None:
    """What they exit with then says nothing."""
    ended = apply_event(training(told=True), events.WorkerExited(PAIR.number, 0, 1, "", stopped=False), 1.0)

    assert ended.workers is not None
    assert (ended.workers.exits, ended.workers.failure) == (((0, 1, False),), None)


def test_what_is_said_of_another_generation_is_ignored() -> None:
    """An answer that comes late changes nothing."""
    state = training()

    assert apply_event(state, events.WorkerExited(PAIR.number - 1, 0, 1, "", stopped=False), 1.0) == state
    assert apply_event(state, events.PortChosen(PAIR.number + 1, 1), 1.0) == state


def test_the_first_signal_starts_the_clock() -> None:
    """A second one does not give more time."""
    once = apply_event(training(), events.SignalSeen(15), 3.0)
    twice = apply_event(once, events.SignalSeen(2), 9.0)

    assert (twice.signal, twice.leaving_since) == (15, 3.0)


def test_peers_are_kept_in_one_order() -> None:
    """Of two records of a node the later one holds, and a forgotten node is gone."""
    state = apply_event(training(), events.PeerSeen(peer("a", "ready")), 1.0)
    state = apply_event(state, events.PeerSeen(peer("a", "warming")), 2.0)

    assert [(each.record.uuid, each.record.state) for each in state.store.peers] == [("a", "warming"), ("n1", "member")]
    assert apply_event(state, events.PeerForgotten("a"), 3.0).store.peers == (peer("n1", "member"),)
