"""How often an agent is replaced."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from elastic_infra.launcher.supervisor.agent_replacement import MOST, WINDOW_SECONDS, Replacements


def accepted(times: list[float]) -> list[float]:
    """Those of the failures, in order of time, after which there is a new agent; the launcher ends at the next."""
    taken, replacements = [], Replacements()
    for at in times:
        after = replacements.next(at)
        if after is None:
            break
        taken.append(at)
        replacements = after
    return taken


def test_the_fourth_failure_in_ten_minutes_ends_the_launcher() -> None:
    """Three in a row are replaced; those of an hour ago do not count."""
    assert accepted([0.0, 1.0, 2.0, 3.0]) == [0.0, 1.0, 2.0]
    assert accepted([0.0, 1.0, 2.0, WINDOW_SECONDS]) == [0.0, 1.0, 2.0, WINDOW_SECONDS]


@given(st.lists(st.floats(0, 5 * WINDOW_SECONDS), max_size=30).map(sorted))
def test_no_window_has_more_than_its_share(times: list[float]) -> None:
    """Whenever the agents fail, and the launcher ends only where a window is full."""
    taken = accepted(times)

    assert all(sum(0 <= at - begin < WINDOW_SECONDS for at in taken) <= MOST for begin in taken)
    refused = times[len(taken) : len(taken) + 1]
    assert all(sum(at - before < WINDOW_SECONDS for before in taken) == MOST for at in refused)
