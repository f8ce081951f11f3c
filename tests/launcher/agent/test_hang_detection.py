"""Verdicts on silence, as a table of cases."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_infra.launcher.agent import hang_detection
from elastic_infra.launcher.settings import HangTimeout
from elastic_infra.launcher.workers.progress import Slot

NOTHING = Slot(step=None, at=0.0, reports=0, checkpoint=None, stopped=False, phase_until=None)


def at_step(step: int, at: float, **changes: object) -> Slot:
    return dataclasses.replace(NOTHING, step=step, at=at, reports=step, **changes)  # type: ignore[arg-type]


def look(
    until: float,
    slot: Slot,
    timeout: HangTimeout,
    *,
    state: str = "S",
    cpu_per_second: float = 1.0,
    stop_step: int | None = None,
    watch: hang_detection.Watch | None = None,
) -> hang_detection.Verdict | None:
    """Look every second until a verdict or the end."""
    watch = watch or hang_detection.Watch()
    for now in range(100, int(until) + 1):
        worker = hang_detection.Worker(slot, state, now * cpu_per_second)
        watch, verdict = hang_detection.decide(watch, hang_detection.Seen(float(now), {0: worker}, stop_step), timeout)
        if verdict:
            return verdict
    return None


def steady(seconds: float, steps: int) -> hang_detection.Watch:
    """A watch that has seen steps of this length."""
    return hang_detection.Watch(looked_at=100.0, since=0.0, intervals=(seconds,) * steps, idle_since=100.0)


CASES = [
    ("steps stopped coming", at_step(9, 100.0), 3.0, {}, "hang"),
    ("steps are young enough", at_step(9, 100.0), 60.0, {}, None),
    ("no step yet, slow start", NOTHING, 3.0, {}, None),
    ("off", at_step(9, 100.0), "off", {}, None),
    ("auto before the warm-up", at_step(3, 100.0), "auto", {"until": 9000, "watch": steady(1.0, 4)}, None),
    ("auto below the floor", at_step(9, 100.0), "auto", {"until": 690, "watch": steady(1.0, 5)}, None),
    ("auto above the floor", at_step(9, 100.0), "auto", {"until": 710, "watch": steady(1.0, 5)}, "hang"),
    ("auto, long steps", at_step(9, 100.0), "auto", {"until": 1500, "watch": steady(300.0, 5)}, None),
    ("auto, five long steps late", at_step(9, 100.0), "auto", {"until": 1610, "watch": steady(300.0, 5)}, "hang"),
    ("in a phase without end", at_step(9, 100.0, phase_until=math.inf), 3.0, {}, None),
    ("in a phase with time left", at_step(9, 100.0, phase_until=200.0), 3.0, {}, None),
    ("past the end of its phase", at_step(9, 100.0, phase_until=110.0), 60.0, {}, "hang"),
    ("waits at the stop step", at_step(9, 100.0), 3.0, {"stop_step": 9}, None),
    ("has yet to reach the stop step", at_step(8, 100.0), 3.0, {"stop_step": 9}, "hang"),
    ("was told to stop and saves", at_step(9, 100.0, stopped=True), 3.0, {}, None),
    ("stopped by a signal", NOTHING, "auto", {"state": "T"}, "hang"),
    ("stopped, but off", NOTHING, "off", {"state": "T"}, None),
    ("idle and never reported", NOTHING, 10.0, {"cpu_per_second": 0.0}, "suspected"),
    ("idle for less than ten minutes", NOTHING, "auto", {"cpu_per_second": 0.0, "until": 690}, None),
    ("idle for ten minutes", NOTHING, "auto", {"cpu_per_second": 0.0, "until": 710}, "suspected"),
    ("busy and never reported", NOTHING, 10.0, {}, None),
]


@pytest.mark.parametrize(("case", "slot", "timeout", "more", "expected"), CASES, ids=[case[0] for case in CASES])
def test_verdicts(case: str, slot: Slot, timeout: HangTimeout, more: dict[str, object], expected: str | None) -> None:
    """Each case ends in its verdict."""
    verdict = look(**{"until": 130, "slot": slot, "timeout": timeout, **more})  # type: ignore[arg-type]

    assert expected == (verdict.kind if verdict else None), case


def test_a_suspicion_is_raised_once() -> None:
    """Stacks of a silent script are written once, not every second."""
    watch = hang_detection.Watch()
    verdicts = []
    for now in range(100, 200):
        seen = hang_detection.Seen(float(now), {0: hang_detection.Worker(NOTHING, "S", 0.0)})
        watch, verdict = hang_detection.decide(watch, seen, 10.0)
        verdicts.append(verdict)

    assert sum(verdict is not None for verdict in verdicts) == 1


def test_a_paused_container_is_not_silence() -> None:
    """When the agent did not look for a minute, no process ran: the silence counts from then."""
    worker = {0: hang_detection.Worker(at_step(9, 100.0), "S", 0.0)}
    watch, first = hang_detection.decide(hang_detection.Watch(), hang_detection.Seen(101.0, worker), 30.0)
    watch, second = hang_detection.decide(watch, hang_detection.Seen(161.0, worker), 30.0)

    assert (first, second) == (None, None)


@given(
    lengths=st.lists(st.floats(0.01, 100.0), min_size=6, max_size=60),
    timeout=st.sampled_from(["auto"]),
)
def test_auto_never_fires_while_steps_come(lengths: list[float], timeout: HangTimeout) -> None:
    """Under auto no sequence of steps of up to 100 s is a hang: the floor is 600 s."""
    watch, now = hang_detection.Watch(), 0.0
    for step, length in enumerate(lengths, start=1):
        end = now + length
        slot = at_step(step, now)
        while now < end:
            now = min(now + 4.0, end)
            watch, verdict = hang_detection.decide(
                watch, hang_detection.Seen(now, {0: hang_detection.Worker(slot, "R", now)}), timeout
            )
            assert verdict is None
