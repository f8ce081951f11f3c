"""A function that a script gives for its node's end: called in time, whatever it does."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

import pytest
import torch

from elastic_infra.launcher.workers.progress import Memory
from elastic_infra.training import Elastic, ElasticState, preemption


def loop(shared: Memory, monkeypatch: pytest.MonkeyPatch) -> tuple[Elastic, list[str]]:
    """A loop under the launcher, and the list in which its function notes its calls."""
    for name, value in shared.variable(0).items():
        monkeypatch.setenv(name, value)
    elastic = Elastic(ElasticState(None, model=torch.nn.Linear(1, 1), in_memory=False))
    calls: list[str] = []
    elastic.on_preemption(lambda: calls.append("told"))
    return elastic, calls


@pytest.mark.parametrize(("leaving", "stop", "expected"), [(True, 2, ["told"]), (False, 2, []), (True, None, [])])
def test_only_where_this_node_leaves(
    shared: Memory, monkeypatch: pytest.MonkeyPatch, *, leaving: bool, stop: int | None, expected: list[str]
) -> None:
    """A stop for other nodes is none, and neither is the end of the training."""
    elastic, calls = loop(shared, monkeypatch)
    shared.set_stop(stop, agreed=True)
    if leaving:
        shared.set_leaving()

    assert elastic.run(lambda _: None, until=3) == (stop is None)
    assert calls == expected


def test_a_newcomer_that_is_sent_away_has_made_no_step(shared: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its loop ends before the first step, and its function has nothing to say."""
    elastic, calls = loop(shared, monkeypatch)
    shared.set_leaving()
    monkeypatch.setattr(elastic, "_begin", lambda: setattr(elastic, "stopped", True))

    assert not elastic.run(lambda _: None, until=3)
    assert calls == []


@pytest.mark.parametrize(
    ("function", "said"),
    [(lambda: 1 / 0, "ZeroDivisionError: division by zero."), (lambda: sys.exit(3), "SystemExit: 3.")],
)
def test_an_error_is_a_warning(capsys: pytest.CaptureFixture[str], function: Callable[[], object], said: str) -> None:
    """The process ends as it would have without the function, which cannot end it either."""
    preemption.call(function, 10)

    assert f"on_preemption failed: {said}" in capsys.readouterr().err


def test_a_function_that_takes_too_long_is_abandoned(capsys: pytest.CaptureFixture[str]) -> None:
    """A line says what to do."""
    done = threading.Event()
    preemption.call(lambda: done.wait(60), 0.01)
    done.set()

    assert "longer than its deadline of 0.01 s, and is abandoned" in capsys.readouterr().err


@pytest.mark.parametrize("deadline", [0.0, -1.0, float("nan"), float("inf"), 1e10])
def test_a_deadline_must_be_a_time_that_can_be_waited_for(
    shared: Memory, monkeypatch: pytest.MonkeyPatch, deadline: float
) -> None:
    """A function without time is a mistake, and no thread is waited for without end."""
    elastic, _ = loop(shared, monkeypatch)

    with pytest.raises(ValueError, match=r"must be more than 0 and at most [0-9]+ seconds"):
        elastic.on_preemption(lambda: None, deadline)


@pytest.fixture
def shared(tmp_path_factory: pytest.TempPathFactory) -> Memory:
    """What the worker and its launcher share."""
    return Memory.create(str(tmp_path_factory.mktemp("launcher") / "progress-1"), slots=1)
