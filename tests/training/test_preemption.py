"""A function that a script gives for its node's end: called in time, whatever it does."""

from __future__ import annotations

import threading

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


def test_an_error_is_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    """The process ends as it would have without the function."""
    preemption.call(lambda: 1 / 0, 10)

    assert "on_preemption failed: ZeroDivisionError: division by zero." in capsys.readouterr().err


def test_a_function_that_takes_too_long_is_abandoned(capsys: pytest.CaptureFixture[str]) -> None:
    """A line says what to do."""
    done = threading.Event()
    preemption.call(lambda: done.wait(60), 0.01)
    done.set()

    assert "longer than its deadline of 0.01 s, and is abandoned" in capsys.readouterr().err


@pytest.mark.parametrize("deadline", [0.0, -1.0, float("nan")])
def test_a_deadline_must_be_positive(shared: Memory, monkeypatch: pytest.MonkeyPatch, deadline: float) -> None:
    """A function without time is a mistake."""
    elastic, _ = loop(shared, monkeypatch)

    with pytest.raises(ValueError, match="must be more than 0 seconds"):
        elastic.on_preemption(lambda: None, deadline)


@pytest.fixture
def shared(tmp_path_factory: pytest.TempPathFactory) -> Memory:
    """What the worker and its launcher share."""
    return Memory.create(str(tmp_path_factory.mktemp("launcher") / "progress-1"), slots=1)
