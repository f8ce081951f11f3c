"""Runs the production machine of each node in a world, and carries its actions out.

Equal objects are made one, so that identity is equality: most worlds share most of their parts, and a step that was
taken once is remembered.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import TypeVar, cast

from elastic_infra.launcher.protocol.actions import (
    Action,
    ChoosePort,
    CompareAndSet,
    Exit,
    KillWorkers,
    ParkWorkers,
    PrepareWorkers,
    Publish,
    PublishMaster,
    ResumeWorkers,
    SetStopStep,
    StartWorkers,
    StopWorkers,
)
from elastic_infra.launcher.protocol.events import Event, PortChosen, Presence, StepsSeen
from elastic_infra.launcher.protocol.state import NOWHERE, State
from tests.launcher.protocol.world import (
    MOMENT,
    UNMOVED,
    BrokenError,
    Host,
    Scenario,
    Store,
    World,
    aged_state,
    reduced,
    replaced,
    with_host,
)

T = TypeVar("T")


def steps_of(host: Host, generation: int) -> StepsSeen:
    """What the progress memory says; every start took a moment, so that the longest is always the same."""
    if host.step < 0 or host.state is None or host.state.workers is None:
        return StepsSeen(generation, None, None, failing=host.raised)
    return StepsSeen(generation, host.step, host.step, stepped_at=host.state.workers.started + MOMENT)


@dataclass
class Driver:
    """The machines of one scenario."""

    scenario: Scenario
    _steps: dict[tuple[int, Event], tuple[State, tuple[Action, ...]]] = field(default_factory=dict)
    _canon: dict[object, object] = field(default_factory=dict)
    _ages: dict[tuple[int, float], State] = field(default_factory=dict)

    def _put(self, world: World, store: Store) -> World:
        return replaced(world, store=self.canonical(store))

    def _see(self, world: World, i: int, presence: Presence) -> World:
        """The store sees a node otherwise."""
        if world.store is None:
            return world
        return self._put(world, world.store.with_presence(f"n{i}", presence, names=bool(self.scenario.names)))

    def _aged(self, state: State, seconds: float) -> State:
        key = (id(state), seconds)
        if key not in self._ages:
            self._ages[key] = self.canonical(reduced(aged_state(state, seconds)))
        return self._ages[key]

    def _feed(self, world: World, i: int, event: Event) -> World:
        return self._feed_all(world, i, (event,))

    def _feed_all(self, world: World, i: int, events: tuple[Event, ...]) -> World:
        queue = deque(events)
        while queue:
            host = world.hosts[i]
            if host.state is None:
                break
            event = queue.popleft()
            state, actions = self._step(host.state, event)
            world = with_host(world, i, replaced(host, state=state))
            for action in actions:
                world = self._action_handlers(world, i, action, queue)
        return world

    def _step(self, state: State, event: Event) -> tuple[State, tuple[Action, ...]]:
        key = (id(state), event)
        if key not in self._steps:
            after, actions = self.scenario.stepper(state, event, 0.0)
            self._steps[key] = (self.canonical(reduced(after)), actions)
        return self._steps[key]

    def canonical(self, value: T) -> T:
        """The one object that stands for all equal to it, so that identity is equality."""
        return cast("T", self._canon.setdefault(value, value))

    def key(self, world: World) -> tuple[object, ...]:
        """Equal for equal worlds."""
        hosts = tuple(self._host_key(host) for host in world.hosts)
        return (id(world.store), world.life, hosts, world.faults, world.failures, world.done, world.stops, world.over)

    def _host_key(self, host: Host) -> tuple[object, ...]:
        flags = (
            *(host.connected, host.cut, host.frozen, host.slow, host.orphaned, host.stopping),
            *(host.exited, host.failed, host.raised, host.suspended),
        )
        return (
            id(host.state),
            host.end,
            flags,
            id(host.seen),
            host.compare_and_set,
            host.workers,
            host.finished,
            host.step,
            host.stop,
            (host.movable, host.told, host.parked, host.broke, host.late, host.dismissed, host.starts),
            (host.held, host.saved, host.settled, host.kept),
        )

    def _action_handlers(self, world: World, i: int, action: Action, queue: deque[Event]) -> World:
        """Carry an action out; what answers it at once goes to the queue."""
        if isinstance(action, Publish | PublishMaster):
            return self._write(world, i, action)
        if isinstance(action, StartWorkers | PrepareWorkers):
            return self._start(world, i, action)
        if isinstance(action, Exit):
            return self._exit(world, i, action)
        host = world.hosts[i]
        if isinstance(action, CompareAndSet):
            host = replaced(host, compare_and_set=action)
        if isinstance(action, StopWorkers | ResumeWorkers | ParkWorkers | KillWorkers):
            host = _ordered(host, action)
        if isinstance(action, ChoosePort):
            queue.append(PortChosen(action.generation, 1))
        if isinstance(action, SetStopStep) and action.step is not None:
            queue.append(steps_of(host, action.generation))
            host = replaced(host, stop=(action.step, action.agreed))
        return with_host(world, i, host)

    def _write(self, world: World, i: int, action: Publish | PublishMaster) -> World:
        """A write arrives, unless the connection it was given to is gone, cut or about to end."""
        host, store = world.hosts[i], world.store
        if (
            store is None
            or not host.connected
            or host.cut
            or host.mute
            or host.seen is None
            or host.seen.incarnation != store.incarnation
        ):
            return world
        if isinstance(action, Publish):
            return self._put(world, store.with_record(action.record, names=bool(self.scenario.names)))
        return self._put(world, replace(store, masters=(action.master,)))

    def _exit(self, world: World, i: int, action: Exit) -> World:
        host = world.hosts[i]
        if host.workers is not None:
            message = f"node {i} exits while its workers run"
            raise BrokenError(message)
        says_farewell = host.connected and not (host.cut or host.mute) and world.store is not None
        over = with_host(world, i, host.over(f"exit {action.code}"))
        return self._see(over, i, "ended" if says_farewell else "disconnected")

    def _start(self, world: World, i: int, action: StartWorkers | PrepareWorkers) -> World:
        host = world.hosts[i]
        if isinstance(action, PrepareWorkers):
            return with_host(world, i, self._prepared(world, i, action))
        if not self._keeps_all(host, action):
            message = f"node {i} starts generation {action.generation} before it stopped {host.workers}"
            raise BrokenError(message)
        assert host.state is not None
        assert host.state.workers is not None
        assert host.state.generation is not None
        return with_host(world, i, replaced(
            host,
            workers=host.state.workers.identity,
            members=frozenset(int(member.uuid.removeprefix("n")) for member in host.state.generation.members),
            stopping=False,
            exited=frozenset(),
            failed=False,
            raised=False,
            suspended=False,
            step=-1,
            stop=None,
            starts=host.starts + (not action.kept),
            settled=host.settled and bool(action.kept),
            kept=bool(action.kept),
            **UNMOVED,
        ))  # fmt: skip

    def _prepared(self, world: World, i: int, action: PrepareWorkers) -> Host:
        """Workers on standby load, and count as parked once they are ready; those that are kept have parked already.

        What these hold is the job's state no more.
        """
        host = world.hosts[i]
        if not self._keeps_all(host, action):
            message = f"node {i} starts workers on standby beside {host.workers}"
            raise BrokenError(message)
        generation = host.state.generation if host.state else None
        members = generation.members if generation else ()
        others = [world.hosts[int(member.uuid.removeprefix("n"))] for member in members]
        if host.settled and all(other.workers is not None and not other.settled for other in others):
            message = f"node {i} gives up the state, which no member has"
            raise BrokenError(message)
        fresh = replaced(host.without_workers(), workers=NOWHERE, members=frozenset(), step=-1, stop=None)
        kept = frozenset(action.kept)
        return replaced(fresh, told=True, parked=kept, starts=host.starts + (not kept))

    def _keeps_all(self, host: Host, action: StartWorkers | PrepareWorkers) -> bool:
        """Whether all living workers have parked and go on."""
        left = frozenset(range(self.scenario.local)) - host.exited if host.workers is not None else frozenset()
        return left == frozenset(action.kept) and left <= host.parked


def _ordered(host: Host, action: StopWorkers | ResumeWorkers | ParkWorkers | KillWorkers) -> Host:
    """What supervisor and agent do at once."""
    if isinstance(action, ResumeWorkers):
        return replaced(host, suspended=False)
    if isinstance(action, ParkWorkers):
        return replaced(host, told=True, stop=None)
    if isinstance(action, KillWorkers):
        return replaced(host, late=host.late | frozenset(action.local_ranks))
    saved = host.saved or action.saves != "nothing"
    return replaced(host, stopping=action.first != "none" or host.stopping, dismissed=True, saved=saved)
