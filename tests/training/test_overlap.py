"""A snapshot that is copied while the next step computes is the state of its step, or it is not there."""

from __future__ import annotations

import copy
import ctypes
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elastic_infra.launcher.workers.progress import Memory
from elastic_infra.training import Elastic, ElasticState, Snapshots, overlap
from elastic_infra.training.host_memory import tensors_in
from elastic_infra.training.node_memory import NodeMemory
from elastic_infra.training.overlap import Copying

WIDTH = 160
"""Of the layers: their weights have 100 kB, more than the size below which tensors are copied at once."""
OPTIMIZERS: dict[str, Callable[[torch.nn.Module], torch.optim.Optimizer]] = {
    "sgd": lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
    "adam": lambda model: torch.optim.Adam(model.parameters()),
    "fused": lambda model: torch.optim.AdamW(model.parameters(), fused=True),
    "lbfgs": lambda model: torch.optim.LBFGS(model.parameters(), max_iter=2),
}


@pytest.fixture
def _latest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies begin as late as they may: once the training thread waits for them."""
    memmove, end, is_awaited = ctypes.memmove, Copying.end, threading.Event()

    def late(*arguments: Any) -> None:
        assert is_awaited.wait(20)
        memmove(*arguments)

    def awaited(copying: Copying) -> list[str]:
        is_awaited.set()
        changed = end(copying)
        is_awaited.clear()
        return changed

    monkeypatch.setattr(ctypes, "memmove", late)
    monkeypatch.setattr(Copying, "end", awaited)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Small tensors are computed fastest by one."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the node's memory."""
    shared = Memory.create(str(tmp_path / "progress-1"), slots=1)
    for name, value in shared.variable(0).items():
        monkeypatch.setenv(name, value)
    return tmp_path


def made(optimizer: str = "adam", **plain: Any) -> ElasticState:
    """A state with a trained model, so that all moments are there."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.BatchNorm1d(WIDTH))
    state = ElasticState(None, model=model, optimizer=OPTIMIZERS[optimizer](model), **plain)
    step(state)
    state.step = 1
    return state


def compute(state: ElasticState) -> torch.Tensor:
    """One forward and one backward pass, which leaves the gradients in the parameters."""
    state.optimizer.zero_grad()
    loss: torch.Tensor = state.model(torch.randn(4, WIDTH)).square().mean()
    loss.backward()
    return loss


def step(state: ElasticState) -> None:
    """What a script does in one step."""
    state.optimizer.step(lambda: compute(state))


def held(memory: Path) -> tuple[int, Any] | None:
    """The newest snapshot as the next process finds it."""
    return NodeMemory(str(memory), 0).newest()


def assert_is(memory: Path, number: int, state: Any) -> None:
    """The newest snapshot is that of a step, to the bit."""
    found = held(memory)
    assert found is not None
    assert found[0] == number
    pairs = zip(tensors_in(found[1]["members"]), tensors_in(state["members"]), strict=True)
    assert all(torch.equal(kept, then) for kept, then in pairs)
    assert found[1]["plain"] == state["plain"]


ACTIONS: dict[str, Callable[[ElasticState], object]] = {
    "compute": compute,
    "step": step,
    "draw": lambda _: torch.randn(3),
    "average": lambda state: state.model(torch.randn(8, WIDTH)),
    "plain": lambda state: setattr(state, "best", state.best + 1),
    "rate": lambda state: state.optimizer.param_groups[0].update(lr=0.01),
    "step of another optimizer": lambda state: torch.optim.SGD(state.model.parameters(), lr=0.1).step(),
    "end": lambda state: state.end_copy(),
}


@pytest.mark.usefixtures("_latest")
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(optimizer=st.sampled_from(sorted(OPTIMIZERS)), steps=st.lists(st.lists(st.sampled_from(sorted(ACTIONS)))))
@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")  # LBFGS of torch 2.8 does so
def test_a_snapshot_is_the_state_of_its_step(memory: Path, optimizer: str, steps: list[list[str]]) -> None:
    """Whatever a script does within the rule before it ends, also where the copy begins as late as it may."""
    check(memory, optimizer, steps)


def check(memory: Path, optimizer: str, steps: list[list[str]]) -> None:
    """Take a snapshot before each of these lists of actions, and compare it with the state of then."""
    for file in memory.glob("state.*"):
        file.unlink()
    state = made(optimizer, best=0)
    for number, actions in enumerate(steps, 1):
        state.step = number
        then = copy.deepcopy(state.capture())
        assert state.snapshot(overlap=True)
        for action in actions:
            ACTIONS[action](state)
        state.end_copy()
        assert_is(memory, number, then)


def _counted(state: ElasticState) -> None:
    with torch.no_grad():
        state.model[0].weight.mul_(0.5)


def _uncounted(state: ElasticState) -> None:
    state.model[0].weight.data.mul_(0.5)


def _moments(state: ElasticState) -> None:
    state.optimizer.state[state.model[0].weight]["exp_avg"].data.zero_()


def _loaded(state: ElasticState) -> None:
    state.model.load_state_dict({name: value + 1 for name, value in state.model.state_dict().items()})


BREACHES = {
    "counted": (_counted, "model.0.weight was changed"),
    "by .data": (_uncounted, "model.0.weight was changed"),
    "moments": (_moments, "optimizer.state.0.exp_avg was changed"),
    "loaded": (_loaded, "model.0.weight was changed"),
}


@pytest.mark.usefixtures("_latest")
@pytest.mark.parametrize("breach", BREACHES)
def test_a_torn_snapshot_is_thrown_away_by_name(memory: Path, capsys: pytest.CaptureFixture[str], breach: str) -> None:
    """The one before it stays, one line says why, and all later snapshots are copied at once."""
    change, named = BREACHES[breach]
    state = made()
    before = copy.deepcopy(state.capture())
    state.snapshot()
    state.step = 2
    state.snapshot(overlap=True)
    change(state)
    step(state)
    assert_is(memory, 1, before)
    (line,) = capsys.readouterr().err.splitlines()
    assert "The snapshot of step 2 in memory is thrown away: " in line
    assert f" thrown away: {named}" in line

    for number in (3, 4):
        state.step, then = number, copy.deepcopy(state.capture())
        state.snapshot(overlap=True)
        change(state)
        assert_is(memory, number, then)
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("_latest")
def test_weights_that_the_forward_pass_changes_are_seen(memory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``Embedding(max_norm=...)`` scales the rows that it looks up."""
    model = torch.nn.Embedding(200, WIDTH, max_norm=0.1)
    state = ElasticState(None, model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    state.snapshot(overlap=True)
    model(torch.tensor([1, 2]))
    state.end_copy()

    assert held(memory) is None
    assert "model.weight was changed" in capsys.readouterr().err


@pytest.mark.usefixtures("_latest")
def test_what_no_optimizer_changes_is_copied_at_once(memory: Path) -> None:
    """An average of the weights and a frozen layer: the script may change them at any time, by ``.data`` too."""
    average, frozen = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, WIDTH)
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), frozen)
    optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)
    state = ElasticState(None, model=model, optimizer=optimizer, average=average)
    then = copy.deepcopy(state.capture())
    state.snapshot(overlap=True)
    for module in (average, frozen):
        module.weight.data.zero_()
    state.end_copy()

    assert_is(memory, 0, then)


@pytest.mark.usefixtures("_latest")
@pytest.mark.parametrize("ends", ["done", "with an error"])
def test_the_loop_ends_the_copy_with_the_step(memory: Path, ends: str) -> None:
    """The last snapshot is whole after the loop, and the one before a step that fails is whole as well."""
    state = made()
    then: dict[int, Any] = {}

    def train(state: ElasticState) -> None:
        then[state.step] = copy.deepcopy(state.capture())
        compute(state)
        if state.step == 3 and ends == "with an error":
            message = "a script's own"
            raise ValueError(message)
        state.optimizer.step(lambda: compute(state))

    elastic = Elastic(state, snapshots=Snapshots(memory_steps=1, overlap=True))
    if ends == "done":
        elastic.run(train, until=5)
        assert_is(memory, 5, copy.deepcopy(state.capture()))
    else:
        with pytest.raises(ValueError, match="own"):
            elastic.run(train, until=5)
        assert_is(memory, 3, then[3])


def test_the_time_of_the_thread_is_known(memory: Path) -> None:
    """The loop counts it as the cost of a snapshot."""
    state = made()
    state.snapshot(overlap=True)
    state.end_copy()

    assert held(memory) is not None
    assert state.copying_seconds > 0


@pytest.mark.usefixtures("_latest")
def test_the_property_fails_without_the_optimizers_hook(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutant: the copy is not ended before ``optimizer.step``."""
    check(memory, "adam", [["step"]])
    monkeypatch.setattr(overlap, "register_optimizer_step_pre_hook", lambda _: None)
    with pytest.raises(AssertionError):
        check(memory, "adam", [["step"]])


@pytest.mark.usefixtures("_latest")
@pytest.mark.parametrize(("guard", "breach"), [("_version_of", "few"), ("_bits", "by .data")])
def test_each_guard_is_needed(memory: Path, monkeypatch: pytest.MonkeyPatch, guard: str, breach: str) -> None:
    """Mutants: without versions a change of one number is not seen, and without samples one by ``.data``."""
    state = made()
    then = copy.deepcopy(state.capture())
    monkeypatch.setattr(overlap, guard, lambda _: torch.zeros(1))
    state.snapshot(overlap=True)
    with torch.no_grad():
        if breach == "few":
            state.model[0].weight[0, 1] += 1
        else:
            state.model[0].weight.data.mul_(0.5)
    state.end_copy()

    with pytest.raises(AssertionError):
        assert_is(memory, 1, then)
