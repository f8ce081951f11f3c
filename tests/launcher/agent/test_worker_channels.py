"""What the agent tells workers that can be moved, and what it makes of their answers."""

from __future__ import annotations

import os
import pathlib
import selectors
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from elastic_infra.launcher.agent.worker_channels import WorkerChannels
from elastic_infra.launcher.protocol import events
from elastic_infra.launcher.workers import channel

FIRST = channel.Enter(1, {"RANK": "0"})
SECOND = channel.Enter(2, {"RANK": "1"})
THIRD = channel.Enter(3, {"RANK": "1"}, behind=True)


@dataclass
class Agent:
    """The channels of one worker, which is this process."""

    path: str
    selector: selectors.DefaultSelector = field(default_factory=selectors.DefaultSelector)
    seen: list[events.Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.channels = WorkerChannels(self.selector, self.seen.append, workers=1)
        self.channels.listen(self.path)

    def worker(self, local_rank: int = 0) -> channel.Connection:
        """Connect as a worker to the agent's socket; the supervisor reports the worker's start a moment later."""
        worker = channel.connect({channel.VARIABLE: self.path})
        assert worker is not None
        self.look()
        self.channels.started(local_rank, os.getpid())
        assert channel.is_welcome(worker)
        worker.end.settimeout(10)
        return worker

    def look(self) -> None:
        """Have the agent handle what has arrived."""
        for key, _ in self.selector.select(0.0):
            key.data()

    def hear(self, worker: channel.Connection, message: channel.Message) -> list[events.Event]:
        """The events that a worker's message becomes."""
        self.seen.clear()
        assert worker.send(message)
        self.look()
        return list(self.seen)


@pytest.fixture
def agent(tmp_path: pathlib.Path) -> Iterator[Agent]:
    agent = Agent(str(tmp_path / "channel"))
    yield agent
    agent.channels.close()
    agent.selector.close()


@pytest.fixture
def worker(agent: Agent) -> Iterator[channel.Connection]:
    agent.channels.begin(1, {0: FIRST}, ())
    worker = agent.worker()
    yield worker
    worker.close()


def test_a_worker_enters_when_it_is_ready_and_can_be_moved_once_it_is_in(
    agent: Agent, worker: channel.Connection
) -> None:
    """A worker may connect before the supervisor has reported its start; an obstacle revokes `can_move`."""
    assert agent.hear(worker, channel.Ready()) == []
    assert worker.receive() == FIRST
    assert agent.hear(worker, channel.In(1)) == [events.WorkersIn(1, can_move=True)]
    assert agent.hear(worker, channel.In(1, "training is over")) == [events.WorkersIn(1, can_move=False)]


def test_a_worker_that_lives_on_enters_the_next_generation(agent: Agent, worker: channel.Connection) -> None:
    """The worker breaks, parks and enters; its messages about the last generation give no event for this one."""
    agent.channels.part(1)
    assert worker.receive() == channel.Break(1)
    assert agent.hear(worker, channel.Failed(1, "closed")) == [events.StepBroke(1, 0, "closed")]
    assert agent.hear(worker, channel.Stuck(1)) == [events.WorkerStuck(1, 0)]
    assert agent.hear(worker, channel.Parked(1, 7)) == [events.WorkerParked(1, 0)]
    agent.channels.begin(2, {0: SECOND}, (0,))
    assert worker.receive() == SECOND
    assert agent.hear(worker, channel.Parked(1, 7)) == []
    assert agent.hear(worker, channel.Stuck(1)) == []


def test_a_worker_that_is_ready_too_late_has_parked(agent: Agent, worker: channel.Connection) -> None:
    """The generation for which the worker was started is over, so the worker waits for the next one."""
    agent.channels.part(1)
    assert worker.receive() == channel.Break(1)

    assert agent.hear(worker, channel.Ready()) == [events.WorkerParked(1, 0)]


def test_a_worker_on_standby_is_told_its_place_once_it_has_one(agent: Agent) -> None:
    """It has parked when it is ready, and enters the generation that its node gets a place in."""
    agent.channels.prepare()
    worker = agent.worker()

    assert agent.hear(worker, channel.Ready()) == [events.WorkerParked(0, 0)]
    agent.channels.begin(2, {0: SECOND}, (0,))
    assert worker.receive() == SECOND
    assert agent.hear(worker, channel.In(2)) == [events.WorkersIn(2, can_move=True)]
    worker.close()


def test_a_parked_worker_waits_on_standby_until_its_node_has_a_place(agent: Agent, worker: channel.Connection) -> None:
    """It stays connected, hears nothing while its new sibling starts, and then enters with it."""
    agent.channels.part(1)
    assert worker.receive() == channel.Break(1)
    agent.channels.prepare(kept=(0,))
    agent.channels.begin(3, {0: THIRD}, (0,))

    assert worker.receive() == THIRD


def test_workers_that_do_not_live_on_are_forgotten(agent: Agent, worker: channel.Connection) -> None:
    """A new process in its place connects anew."""
    agent.channels.begin(2, {0: SECOND}, ())

    assert worker.receive() is None
    again = agent.worker()
    assert agent.hear(again, channel.Ready()) == []
    assert again.receive() == SECOND
    again.close()


@pytest.mark.parametrize(("saves", "second"), [("part", "part"), ("whole", "nothing"), ("nothing", "nothing")])
def test_all_are_dismissed(
    agent: Agent, worker: channel.Connection, saves: channel.Saves, second: channel.Saves
) -> None:
    """The message says what to save first: each worker its part, or one worker the whole state."""
    agent.channels.started(1, os.getpid())  # both are this process, which is the second worker from now on
    sibling = agent.worker(1)
    agent.channels.dismiss(saves)

    assert worker.receive() == channel.Dismiss(saves)
    assert sibling.receive() == channel.Dismiss(second)
    sibling.close()


def test_an_agent_that_replaces_another_listens_again(agent: Agent) -> None:
    """The replaced agent's socket file still exists."""
    after = Agent(agent.path)
    after.channels.begin(1, {0: FIRST}, ())
    worker = after.worker()

    assert after.hear(worker, channel.Ready()) == []
    assert worker.receive() == FIRST
    worker.close()
    after.channels.close()
    after.selector.close()


def test_a_process_that_a_worker_has_started_is_turned_away(agent: Agent, worker: channel.Connection) -> None:
    """At once, since it would wait for ever: a worker's command may start the program that connects."""
    child = os.fork()
    if not child:
        connection = channel.connect({channel.VARIABLE: agent.path})
        os._exit(0 if connection is not None and not channel.is_welcome(connection) else 1)
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        agent.look()

    assert os.waitstatus_to_exitcode(ended[1]) == 0
    assert agent.hear(worker, channel.Ready()) == []
