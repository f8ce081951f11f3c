"""A process group that is rebuilt in the same processes: real torch, with the agent's part played here."""

from __future__ import annotations

import json
import pathlib
import selectors
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess

import pytest
import torch
import torch.distributed as dist

from elastic_infra.launcher.workers import channel
from elastic_infra.training import ElasticSampler
from elastic_infra.training.places import Disk
from elastic_infra.training.snapshots import Folder
from tests.ports import free_port
from tests.training import forked

# Slow: the driver has no deadline by which a worker that does not park is replaced, as the launcher has, and has waited
# for one in vain. tests/launcher/scenarios/test_in_place.py has the launcher around the same workers.
pytestmark = [pytest.mark.launcher, pytest.mark.slow, pytest.mark.timeout(240)]

SCRIPT = pathlib.Path(__file__).resolve().parent / "scripts" / "in_place.py"
FORKS = forked.context()
Line = dict[str, object]
BUCKETS = 3
PARKED_SECONDS = 5.0
"""The launcher replaces a worker that takes longer, at the least."""


@dataclass
class Driver:
    """The agents of a job: they say which workers are in which generation."""

    folder: pathlib.Path
    steps: int
    server: channel.Server
    way: str
    script: pathlib.Path = SCRIPT
    ballast: int = 0
    """MiB of state beside the model's."""
    is_compiled: bool = False
    has_metric: bool = False
    held: str = "wrapper"
    processes: dict[str, BaseProcess] = field(default_factory=dict)
    connections: dict[str, channel.Connection] = field(default_factory=dict)
    said: dict[str, list[channel.Message]] = field(default_factory=dict)
    generation: int = 0
    members: list[str] = field(default_factory=list)
    faults: dict[str, tuple[str, ...]] = field(default_factory=dict)
    replaced: list[str] = field(default_factory=list)
    """Workers that did not park in time: gloo left them in a collective."""

    def spawn(self, name: str, *fault: str) -> None:
        """Start a worker, with its fault if one is given."""
        environ = {channel.VARIABLE: self.server.path, "GLOO_SOCKET_IFNAME": "lo", "WAY": self.way}
        environ |= {"BALLAST": str(self.ballast), "COMPILED": "yes" if self.is_compiled else ""}
        environ |= {"METRIC": "yes" if self.has_metric else "", "HELD": self.held}
        argv = (str(self.script), str(self.folder), name, str(self.steps), *fault)
        self.processes[name] = forked.start(FORKS, argv, environ, self.folder / f"{name}.log")
        self.said[name] = []
        self.faults[name] = fault

    def spawn_ready(self, *names: str) -> None:
        """Start workers and wait until they can enter."""
        for name in names:
            self.spawn(name)
        self.await_said(channel.Ready, *names)

    def enter(self, *members: str) -> None:
        """Begin the next generation with these members."""
        self.generation += 1
        self.members = list(members)
        port = free_port()
        for rank, name in enumerate(members):
            place = {"RANK": str(rank), "WORLD_SIZE": str(len(members)), "MASTER_PORT": str(port)}
            self.send(name, channel.Enter(self.generation, {**place, "MASTER_ADDR": "127.0.0.1"}))

    def send(self, name: str, message: channel.Message) -> None:
        """Send one worker a message."""
        assert self.connections[name].send(message)

    def break_up(self, *survivors: str) -> None:
        """End the generation, and wait until the survivors have parked."""
        for name in survivors:
            self.send(name, channel.Break(self.generation))
        self.await_said(channel.Parked, *survivors)

    def park(self, *survivors: str) -> list[str]:
        """End the generation, and start those anew that do not park in time, as the launcher does; returns these."""
        for name in survivors:
            self.send(name, channel.Break(self.generation))
        deadline = time.monotonic() + PARKED_SECONDS
        while (late := [name for name in survivors if not self._has(name, channel.Parked)]) and (
            time.monotonic() < deadline
        ):
            self.look(0.05)
        for name in late:
            self.processes[name].kill()
            while name in self.connections:
                self.look(0.05)
            self.spawn(name, *self.faults[name])
        self.await_said(channel.Ready, *late)
        self.replaced += late
        return late

    def await_said(self, kind: type[channel.Message], *names: str, seconds: float = 90.0) -> None:
        """Wait until each of these has said this, about this generation where there is one, and forget it."""
        deadline = time.monotonic() + seconds
        while not all(self._has(name, kind) for name in names):
            assert time.monotonic() < deadline, f"{kind.__name__} of {names} not in {self.said}; {self.logs()}"
            self.look(0.1)

    def _has(self, name: str, kind: type[channel.Message]) -> bool:
        return any(
            isinstance(message, kind) and getattr(message, "generation", self.generation) == self.generation
            for message in self.said[name]
        )

    def look(self, seconds: float) -> None:
        """Take what workers say."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.server, selectors.EVENT_READ)
            for name, connection in self.connections.items():
                selector.register(connection, selectors.EVENT_READ, name)
            for key, _ in selector.select(seconds):
                self._take(key.data)
        for name, process in self.processes.items():
            found = self.server.claim(process.pid or 0) if name not in self.connections else None
            if found is not None:
                self.connections[name] = found

    def _take(self, name: str | None) -> None:
        if name is None:
            self.server.accept()
        elif (message := self.connections[name].receive()) is not None:
            self.said[name].append(message)
        else:
            self.connections.pop(name).close()

    def await_end(self, name: str) -> int:
        """The worker's exit code."""
        while self.processes[name].exitcode is None:
            self.look(0.05)
        return self.processes[name].exitcode or 0

    def journal(self) -> list[Line]:
        """Every whole line so far."""
        path = self.folder / "journal"
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def await_step(self, step: int, *names: str) -> None:
        """Wait until each of these has done this step in this generation."""
        deadline = time.monotonic() + 60
        while not {line["name"] for line in self.journal() if self._is_step(line, step)} >= set(names):
            assert time.monotonic() < deadline, f"step {step} of {names}; {self.logs()}"
            self.look(0.02)

    def _is_step(self, line: Line, step: int) -> bool:
        return line["event"] == "done" and int(str(line["step"])) >= step and line["generation"] == self.generation

    def finish(self) -> list[Line]:
        """Train to the end."""
        (self.folder / "hurry").touch()
        assert [self.await_end(name) for name in self.members] == [0] * len(self.members), self.logs()
        return self.journal()

    def logs(self) -> str:
        """What the workers printed."""
        return "\n".join(f"{path.name}: {path.read_text()[-1500:]}" for path in self.folder.glob("*.log"))


RECONFIGURED = pytest.param(
    "reconfigured", marks=pytest.mark.skipif(not hasattr(dist, "_reconfigure"), reason="this torch cannot reconfigure")
)


@pytest.fixture(params=["anew", RECONFIGURED])
def driver(tmp_path: pathlib.Path, request: pytest.FixtureRequest) -> Iterator[Driver]:
    """A job whose workers are forked, and ended with the test; for each way to make a group again."""
    driver = Driver(tmp_path, 60, channel.Server.listen(str(tmp_path / "channel")), request.param)
    yield driver
    for process in driver.processes.values():
        process.kill()
        process.join()
    for connection in driver.connections.values():
        connection.close()
    driver.server.close()


def undisturbed(steps: int) -> float:
    """The sum of the weights of one worker that is never disturbed."""
    torch.manual_seed(0)
    inputs = torch.randn(50, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    model = torch.nn.Sequential(*[torch.nn.Linear(4, 4, dtype=torch.float64) for _ in range(3)])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    sampler = ElasticSampler(50, global_batch=12)
    for _ in range(steps):
        batch = list(sampler.step(0, 1)[0].indices)
        torch.nn.functional.mse_loss(model(inputs[batch]), inputs[batch].sum(1, keepdim=True).expand(-1, 4)).backward()
        optimizer.step()
        optimizer.zero_grad()
        sampler.advance()
    return float(sum(parameter.detach().sum() for parameter in model.parameters()))


def assert_trained(lines: list[Line], steps: int) -> None:
    """When a step was last begun, its ranks had its samples, each once; the weights are an undisturbed run's."""
    assert assert_equal(lines, steps) == pytest.approx(undisturbed(steps), abs=1e-9)


def assert_equal(lines: list[Line], steps: int) -> float:
    """The samples as in ``assert_trained``, and after each step all ranks have the same weights; the last of these."""
    sampler = ElasticSampler(50, global_batch=12)
    sums: list[float] = []
    for step in range(1, steps + 1):
        begun = [line for line in lines if line["event"] == "step" and line["step"] == step]
        last = begun[-1]["generation"]
        seen = [index for line in begun if line["generation"] == last for index in line["seen"]]  # type: ignore[attr-defined]  # a list
        assert sorted(seen) == sorted(sampler.step(0, 1)[0].indices), f"step {step}"
        sums = [float(str(line["sum"])) for line in lines if line["event"] == "done" and line["step"] == step]
        assert max(sums) - min(sums) < 1e-9, f"step {step}"
        sampler.advance()
    return sums[0]


def pids(lines: list[Line]) -> dict[object, set[object]]:
    """Which processes each name had."""
    return {name: {line["pid"] for line in lines if line["name"] == name} for name in {line["name"] for line in lines}}


def test_grows_and_shrinks_in_the_same_processes(driver: Driver) -> None:
    """One worker, two, three, two: each keeps its process but those that gloo leaves in their collective.

    The weights are an undisturbed worker's.
    """
    driver.spawn_ready("a", "b", "d")
    driver.enter("a")
    driver.await_step(3, "a")
    driver.park("a")
    driver.enter("a", "b")
    driver.await_step(6, "a", "b")
    driver.park("a", "b")
    driver.enter("a", "b", "d")
    driver.await_step(10, "a", "b", "d")
    driver.park("a", "b", "d")
    driver.send("a", channel.Dismiss())
    driver.enter("b", "d")

    assert driver.await_end("a") == 0
    lines = driver.finish()
    assert_trained(lines, driver.steps)
    assert_kept(driver, lines)
    assert [line["finished"] for line in lines if line["event"] == "end"] == [False, True, True]


@pytest.mark.parametrize("first", ["a", "d"])
def test_processes_that_begin_together_train_the_first_rank_s_weights(driver: Driver, first: str) -> None:
    """Each has built its model alone, with initial weights of its own, and a plain script seeds nothing."""
    driver.ballast = BALLAST
    driver.spawn_ready("a", "b", "d")
    driver.enter(first, *({"a", "b", "d"} - {first}))

    lines = driver.finish()
    last = assert_equal(lines, driver.steps)
    assert (last == pytest.approx(undisturbed(driver.steps), abs=1e-9)) == (first == "a")
    assert {line["ballast"] for line in lines if line["event"] == "end"} == {float(BALLAST if first == "a" else 0)}


@pytest.mark.parametrize("step", [1, 9])
def test_survivors_that_cannot_undo_a_step_are_equal_without_a_snapshot(driver: Driver, step: int) -> None:
    """A worker is lost after the optimizer's step. No rank has the state before it; a newcomer starts with theirs."""
    driver.has_metric = True
    driver.spawn("c", f"{step}:metric")
    driver.spawn_ready("a", "b", "d")
    driver.await_said(channel.Ready, "c")
    driver.enter("a", "b", "c")
    assert driver.await_end("c") == -signal.SIGKILL
    driver.park("a", "b")
    driver.enter("a", "b", "d")

    lines = driver.finish()
    assert_equal(lines, driver.steps)
    assert min(int(str(line["step"])) for line in lines if (line["event"], line["name"]) == ("step", "d")) == step
    said = f"Training goes on from step {step - 1} with what the broken step after it may have changed already"
    assert driver.logs().count(said) == (step > 1)


@pytest.mark.parametrize("held", ["network", "part", "compiled"])
def test_gradients_are_exchanged_whoever_holds_the_wrapper(driver: Driver, held: str) -> None:
    """The state has the model without its wrapper, or a model around that: each group of two has the whole batch."""
    driver.held = held
    driver.spawn_ready("a", "b", "d")
    driver.enter("a", "b")
    driver.await_step(3, "a", "b")
    driver.processes["b"].kill()
    driver.park("a")
    driver.enter("a", "d")

    assert_trained(driver.finish(), driver.steps)


def test_a_survivor_keeps_what_it_has_compiled(driver: Driver) -> None:
    """It compiles nothing in a group of another size: its micro-batches keep their shapes.

    Where gloo leaves a worker in its collective, that worker is replaced, and compiles.
    """
    driver.is_compiled = True
    driver.spawn_ready("a", "b", "c")
    driver.enter("a", "b", "c")
    driver.await_step(10, "a", "b", "c")  # an epoch has five steps, the last of which has a shape of its own
    driver.park("a", "b", "c")
    driver.send("c", channel.Dismiss())
    driver.enter("a", "b")

    lines = driver.finish()
    assert_trained(lines, driver.steps)
    for name in {"a", "b"} - {*driver.replaced}:
        graphs = [line["graphs"] for line in lines if (line["event"], line["name"]) == ("done", name)]
        assert graphs[9] == graphs[-1] != 0, graphs


def test_many_generations_leave_nothing_behind(driver: Driver) -> None:
    """One of two workers goes and comes thirty times: neither threads nor descriptors of the other one grow.

    A group that is reconfigured stays the same object.
    """
    driver.script = SCRIPT.parent / "generations.py"
    driver.spawn_ready("a", "b")
    for generation in range(1, 62):
        driver.enter(*(("a",), ("a", "b"))[generation % 2])
        driver.await_said(channel.Parked, *driver.members)
    for name in ("a", "b"):
        driver.send(name, channel.Dismiss())

    assert [driver.await_end(name) for name in ("a", "b")] == [0, 0], driver.logs()
    mine = [line for line in driver.journal() if line["name"] == "a"]
    assert [line["total"] for line in mine] == [2.0 - number % 2 for number in range(61)]
    assert {line["same"] for line in mine} == {driver.way == "reconfigured"}
    held = [(line["task"], line["fd"]) for line in mine]
    # Another thread frees the group that is over, sooner or later than the next step.
    for numbers in zip(*held, strict=True):
        assert min(numbers[-10:]) <= max(numbers[2:12]), held


def test_a_worker_saves_the_whole_state_when_its_peers_are_gone(driver: Driver) -> None:
    """Rank 1 of a group that broke, whose rank 0 was killed, leaves a snapshot of the last step on disk."""
    driver.spawn_ready("a", "b")
    driver.enter("a", "b")
    driver.await_step(5, "a", "b")
    driver.processes["a"].kill()
    driver.break_up("b")
    driver.send("b", channel.Dismiss("whole"))

    assert driver.await_end("b") == 0, driver.logs()
    done = max(int(str(line["step"])) for line in driver.journal() if (line["event"], line["name"]) == ("done", "b"))
    assert Folder(Disk(driver.folder / "checkpoints"), pytest.fail).steps() == (done,)


@pytest.mark.parametrize(
    "point", ["forward", "backward", *(f"bucket:{number}" for number in range(BUCKETS)), "optimizer"]
)
@pytest.mark.parametrize("victim", ["a", "c"])
def test_a_killed_worker_costs_its_peers_one_step(driver: Driver, point: str, victim: str) -> None:
    """Wherever in a step it is killed, as rank 0 or the last: each of its peers repeats one step at most.

    That step, or the one after it where the gradients were exchanged before it was killed.
    """
    for name in ("a", "b", "c"):
        driver.spawn(name, *([f"9:{point}"] if name == victim else []))
    driver.await_said(channel.Ready, "a", "b", "c")
    survivors = [name for name in ("a", "b", "c") if name != victim]
    driver.enter("a", "b", "c")
    assert driver.await_end(victim) == -signal.SIGKILL
    driver.break_up(*survivors)
    driver.enter(*survivors)

    lines = driver.finish()
    assert_trained(lines, driver.steps)
    broken = [line["step"] for line in lines if line["event"] == "broken"]
    assert set(broken) <= ({10} if point == "optimizer" else {9})
    assert len(broken) <= len(survivors)
    assert len(pids(lines)["b"]) == 1


BALLAST = 96
TENSORS = BALLAST // 4


def assert_kept(driver: Driver, lines: list[Line]) -> None:
    """Whoever was not replaced has its first process."""
    assert all(len(found) <= 1 + driver.replaced.count(str(name)) for name, found in pids(lines).items())


def assert_ballast(lines: list[Line]) -> None:
    """Whoever came to the end has all of the state."""
    assert {line["ballast"] for line in lines if line["event"] == "end"} == {float(BALLAST)}


@pytest.mark.parametrize("number", [1, TENSORS // 2, TENSORS])
def test_a_newcomer_killed_in_the_middle_of_the_transfer_costs_its_peers_no_step(driver: Driver, number: int) -> None:
    """It has the first, half or nearly all of 96 MiB of state; the next newcomer gets them all."""
    driver.ballast = BALLAST
    driver.spawn("d", f"2:receiving:{number}")
    driver.spawn_ready("a", "b", "e")
    driver.await_said(channel.Ready, "d")
    driver.enter("a", "b")
    driver.await_step(3, "a", "b")
    driver.park("a", "b")
    driver.enter("a", "b", "d")
    assert driver.await_end("d") == -signal.SIGKILL
    driver.park("a", "b")
    driver.enter("a", "b", "e")

    lines = driver.finish()
    assert_trained(lines, driver.steps)
    assert_ballast(lines)
    assert_kept(driver, lines)


@pytest.mark.parametrize("number", [1, TENSORS // 2, TENSORS])
def test_the_source_killed_while_it_sends_has_a_successor(driver: Driver, number: int) -> None:
    """What the newcomer has of the first source's state does not count: another survivor sends all of it."""
    driver.ballast = BALLAST
    driver.spawn("a", f"2:sending:{number}")
    driver.spawn_ready("b", "d")
    driver.await_said(channel.Ready, "a")
    driver.enter("a", "b")
    driver.await_step(3, "a", "b")
    driver.park("a", "b")
    driver.enter("a", "b", "d")
    assert driver.await_end("a") == -signal.SIGKILL
    driver.park("b", "d")
    driver.enter("b", "d")

    lines = driver.finish()
    assert_trained(lines, driver.steps)
    assert_ballast(lines)
    assert_kept(driver, lines)


@pytest.mark.parametrize("number", [1, TENSORS // 2])
def test_a_second_loss_during_a_move_is_one_more_move(driver: Driver, number: int) -> None:
    """A worker is killed in a step, and its peers move on with a newcomer, to which the one that sends is lost too."""
    driver.ballast = BALLAST
    driver.spawn("a", f"2:sending:{number}")
    driver.spawn("c", "6:backward")
    driver.spawn_ready("b", "d")
    driver.await_said(channel.Ready, "a", "c")
    driver.enter("a", "b", "c")
    assert driver.await_end("c") == -signal.SIGKILL
    driver.park("a", "b")
    driver.enter("a", "b", "d")
    assert driver.await_end("a") == -signal.SIGKILL
    driver.park("b", "d")
    driver.enter("b", "d")

    lines = driver.finish()
    assert_trained(lines, driver.steps)
    assert_ballast(lines)
    assert {line["step"] for line in lines if line["event"] == "broken" and line["name"] == "b"} == {6}


@pytest.mark.parametrize("point", ["meeting", "making", "settling", "settled"])
@pytest.mark.parametrize("victim", ["a", "c"])
def test_a_worker_killed_while_it_enters_a_generation_costs_its_peers_no_step(
    driver: Driver, point: str, victim: str
) -> None:
    """In front of the store, while its peers connect to it, before and after the first exchange; as rank 0 or the last.

    Its peers leave that generation at once and go on where they were, except one that gloo leaves waiting while the
    group forms: the launcher replaces that one.
    """
    for name in ("a", "b", "c"):
        driver.spawn(name, *([f"2:{point}"] if name == victim else []))
    driver.await_said(channel.Ready, "a", "b", "c")
    survivors = [name for name in ("a", "b", "c") if name != victim]
    driver.enter("a", "b", "c")
    driver.await_step(5, "a", "b", "c")
    driver.park("a", "b", "c")
    driver.enter("a", "b", "c")
    assert driver.await_end(victim) == -signal.SIGKILL
    late = driver.park(*survivors)
    driver.enter(*sorted(survivors, key=late.__contains__))

    lines = driver.finish()
    assert_trained(lines, driver.steps)
    assert point == "making" or late == []
    assert_kept(driver, lines)
