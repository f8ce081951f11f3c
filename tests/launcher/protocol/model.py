"""A model of the world around the machine: store, network, workers, faults. Explicit states, every interleaving.

It runs the production ``machine.step`` itself. Time is abstract: ages are 0, "a moment" (beyond every short wait of
the rules) or "an age" (beyond ``dead_after``); they pass only while no node has anything left to do, or for the
silence of a node that is cut off. What the store tells reaches a prompt node at once and a slow node at any later
time, whatever has happened in between; compare-and-sets of both are under way for any time and arrive in any order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar, cast

from elastic_infra.launcher.protocol import machine, messages
from elastic_infra.launcher.protocol.messages import Peer
from elastic_infra.launcher.protocol.records import Generation, Master
from elastic_infra.launcher.protocol.rules import Rules
from elastic_infra.launcher.protocol.state import Node, State, start

MOMENT = 10.0
AGE = 1000.0

T = TypeVar("T")
Identity = tuple[int, str]
Stepper = Callable[[State, messages.Event, float], tuple[State, tuple[messages.Action, ...]]]


@dataclass(frozen=True)
class Store:
    """What the server holds; ``presences`` count from now backwards."""

    epoch: str
    generation: Generation | None = None
    version: int = 0
    peers: tuple[Peer, ...] = ()
    masters: tuple[Master, ...] = ()

    def peer(self, uuid: str) -> Peer | None:
        return next((peer for peer in self.peers if peer.record.uuid == uuid), None)

    def with_peer(self, peer: Peer) -> Store:
        others = [other for other in self.peers if other.record.uuid != peer.record.uuid]
        return replace(self, peers=tuple(sorted((*others, peer), key=lambda peer: peer.record.uuid)))


@dataclass(frozen=True)
class Host:
    """One node: its machine, its workers, its link to the store."""

    state: State | None = None
    """None before it joins and after its end."""
    end: str = ""
    """"crashed" or "exit <code>"."""
    connected: bool = False
    cut: bool = False
    """Partitioned from the store."""
    frozen: bool = False
    slow: bool = False
    """What the store tells reaches it at any later time."""
    orphaned: bool = False
    """The dead-man timer is due, and fires before anything else once the node is thawed."""
    seen: Store | None = None
    """What was last delivered to it."""
    swap: messages.Swap | None = None
    """Under way to the store."""
    workers: Identity | None = None
    members: frozenset[int] = frozenset()
    """The nodes of the generation that its workers were last started for."""
    stopping: bool = False
    ended: bool = False
    """Its workers exited by themselves, their groups are not yet cleared."""
    finished: Identity | None = None
    """The generation whose last step its worker made."""
    step: int = -1
    """The newest step its worker reported."""
    stop: tuple[int, bool] | None = None
    """Stop step and consent in the progress memory."""

    @property
    def awake(self) -> bool:
        return self.state is not None and not self.frozen

    def over(self, end: str) -> Host:
        """The same node with nothing left of it but how far its worker came."""
        return Host(end=end, step=self.step, finished=self.finished)


@dataclass(frozen=True)
class World:
    store: Store | None
    life: int
    """How often a store was born."""
    hosts: tuple[Host, ...]
    faults: int
    """Faults still to come."""
    failures: int = 0
    """Worker failures injected so far: only they may be charged."""
    done: bool = False
    """The script's work is complete: a worker may exit 0."""
    stops: frozenset[tuple[Identity, int]] = frozenset()
    """Every (generation, step) at which a worker was told to stop."""


@dataclass(frozen=True)
class Scenario:
    """What may happen in one exploration."""

    rules: Rules
    faults: int
    kinds: frozenset[str]
    """Of crash, freeze, cut, slow, leave, fail, store."""
    finish: bool = False
    nodes: int = 3
    settled: int = 0
    """Nodes that have formed a generation before the exploration begins."""
    slow: bool = False
    """Whether every node is slow from the start: all interleavings."""
    steps: int = 0
    """How far workers train while nobody stops them; 0: they report no steps."""
    stepper: Stepper = machine.step


class Broken(AssertionError):
    """A property does not hold; carries the way there."""


@dataclass
class Model:
    """Successors of a world, with the steps of machines remembered: most worlds share most of their nodes."""

    scenario: Scenario
    _steps: dict[tuple[int, messages.Event], tuple[State, tuple[messages.Action, ...]]] = field(default_factory=dict)
    _canon: dict[object, object] = field(default_factory=dict)
    _ages: dict[tuple[int, float], State] = field(default_factory=dict)

    def initial(self) -> World:
        """Where the exploration begins."""
        world = self._empty()
        for i in range(self.scenario.settled):
            world = self._settled(self._connect(joined := self._join(world, i), i, joined.hosts[i]))
        while self.scenario.settled:
            steps = [step for i, host in enumerate(world.hosts) for step in self._protocol_steps(world, i, host)]
            if not steps and any(host.workers for host in world.hosts):
                break
            world = self._settled(steps[0][1] if steps else self._age(world, MOMENT))
        return world

    def _empty(self) -> World:
        hosts = tuple(Host(slow=self.scenario.slow) for _ in range(self.scenario.nodes))
        return World(self.canonical(Store("e1")), 1, hosts, self.scenario.faults)

    # -------------------------------------------------- transitions

    def successors(self, world: World) -> Iterator[tuple[str, World, bool]]:
        """Every next world, with the step's name and whether it is one that needs no further fault."""
        prompt = [step for i, host in enumerate(world.hosts) for step in self._protocol_steps(world, i, host)]
        slow = [step for i, host in enumerate(world.hosts) for step in self._worker_steps(world, i, host)]
        passing = [] if prompt else [("moment", self._age(world, MOMENT))]
        passing += [] if prompt or slow else [("age", self._age(world, AGE))]
        for label, successor in (*prompt, *slow, *self._recoveries(world), *passing):
            yield label, self._settled(successor), True
        for label, successor in self._faults(world):
            yield label, self._settled(successor), False

    def _settled(self, world: World) -> World:
        """All that the store has to tell has reached the prompt nodes."""
        moved = True
        while moved:
            moved = False
            for i in range(len(world.hosts)):
                step = self._prompt_step(world, i, world.hosts[i])
                if step is not None:
                    world, moved = step, True
        return world

    def _prompt_step(self, world: World, i: int, host: Host) -> World | None:
        if host.slow or not host.awake or not host.connected or host.cut:
            return None
        if world.store is None:
            return self._lose(world, i, host)
        for _, beaten in self._beat(world, i):
            return beaten
        return self._deliver(world, i, host) if host.seen != world.store else None

    def _recoveries(self, world: World) -> Iterator[tuple[str, World]]:
        """What ends a fault, sooner or later."""
        if world.store is None:
            yield "store reborn", replace(self._put(world, Store(f"e{world.life + 1}")), life=world.life + 1)
        for i, host in enumerate(world.hosts):
            if host.state is None and not host.end:
                yield f"join {i}", self._join(world, i)
            if host.frozen:
                yield f"thaw {i}", self._thaw(world, i, host)
            if host.cut and not host.connected:
                yield f"heal {i}", _set(world, i, replace(host, cut=False))

    def _protocol_steps(self, world: World, i: int, host: Host) -> Iterator[tuple[str, World]]:
        """Messages on their way: a moment does not pass before they arrive."""
        if not host.awake:
            return
        if host.connected and not host.cut and world.store is not None:
            yield from self._beat(world, i)
        if host.swap is not None:
            yield f"swap {i}", self._apply_swap(world, i, host)
        if host.connected and world.store is not None and not host.cut:
            if host.seen != world.store:
                yield f"deliver {i}", self._deliver(world, i, host)
        elif not host.connected and world.store is not None and not host.cut:
            yield f"connect {i}", self._connect(world, i, host)
        elif host.connected:
            yield f"lost {i}", self._lose(world, i, host)

    def _worker_steps(self, world: World, i: int, host: Host) -> Iterator[tuple[str, World]]:
        """What workers do, in their own time."""
        if not host.awake:
            return
        if host.workers is None:
            return
        number = host.workers[0]
        if host.stopping:
            gone = replace(host, workers=None, stopping=False, ended=False)
            yield f"gone {i}", self._feed(_set(world, i, gone), i, messages.WorkersGone(number))
        elif not host.ended:
            if self._peer_is_missing(world, host):
                ended = _set(world, i, replace(host, ended=True))
                yield f"collective fails {i}", self._feed(ended, i, messages.WorkerExited(number, 0, 1))
            yield from self._training(world, i, host)
            if world.done and self._may_finish(world, host):
                ended = _set(world, i, replace(host, ended=True, finished=host.workers))
                yield f"finish {i}", self._feed(ended, i, messages.WorkerExited(number, 0, 0))

    def _faults(self, world: World) -> Iterator[tuple[str, World]]:
        """One more thing that goes wrong."""
        if self.scenario.finish and not world.done and any(host.workers for host in world.hosts):
            yield "done", replace(world, done=True)
        for i, host in enumerate(world.hosts):
            if host.connected and (host.frozen or host.cut):
                yield from self._silence(world, i)
        if world.faults == 0:
            return
        world = replace(world, faults=world.faults - 1)
        if "store" in self.scenario.kinds and world.store is not None:
            yield "store lost", replace(world, store=None)
        for i, host in enumerate(world.hosts):
            if host.awake:
                yield from self._host_faults(world, i, host)

    def _host_faults(self, world: World, i: int, host: Host) -> Iterator[tuple[str, World]]:
        kinds = self.scenario.kinds
        if "crash" in kinds:
            yield (
                f"crash {i}",
                self._close(_set(world, i, host.over("crashed")), i),
            )
        if "slow" in kinds and not host.slow:
            yield f"slow {i}", _set(world, i, replace(host, slow=True))
        if "freeze" in kinds:
            yield f"freeze {i}", _set(world, i, replace(host, frozen=True))
        if "cut" in kinds and not host.cut:
            yield f"cut {i}", _set(world, i, replace(host, cut=True))
        if "leave" in kinds and host.state and not host.state.leaving:
            yield f"leave {i}", self._feed(world, i, messages.SignalSeen(15))
        if "fail" in kinds and host.workers and not host.stopping and not host.ended:
            failed = replace(_set(world, i, replace(host, ended=True)), failures=world.failures + 1)
            yield f"fail {i}", self._feed(failed, i, messages.WorkerExited(host.workers[0], 0, 1))

    # -------------------------------------------------- the parts

    def _join(self, world: World, i: int) -> World:
        state = self.canonical(start(Node(f"n{i}", address=f"host{i}", joined=i), self.scenario.rules, 0.0, 0.0))
        return self._feed(_set(world, i, replace(world.hosts[i], state=state)), i, messages.Ready())

    def _connect(self, world: World, i: int, host: Host) -> World:
        store = world.store
        assert store is not None
        assert host.state is not None
        old = store.peer(f"n{i}")
        if old is not None and old.presence != "live":
            store = store.with_peer(Peer(old.record, "live", 0.0))
            world = self._put(world, store)
            store = world.store or store
        event = messages.StoreConnected(store.epoch, store.generation, store.version, store.peers, _master(store))
        return self._feed(_set(world, i, replace(host, connected=True, seen=store)), i, event)

    def _lose(self, world: World, i: int, host: Host) -> World:
        known = host.seen.peer(f"n{i}") if host.seen else None
        fresh = not host.cut and known is not None and known.presence == "live" and world.store is None
        lost = replace(host, connected=False, swap=None)
        return self._feed(_set(world, i, lost), i, messages.StoreLost(fresh))

    def _deliver(self, world: World, i: int, host: Host) -> World:
        store, seen = world.store, host.seen
        assert store is not None
        if seen is None or seen.epoch != store.epoch:
            return self._lose(world, i, host)
        return self._feed_all(_set(world, i, replace(host, seen=store)), i, _changes(seen, store))

    def _apply_swap(self, world: World, i: int, host: Host) -> World:
        store, swap = world.store, host.swap
        assert swap is not None
        if store is None or host.cut or not host.connected or (host.seen and host.seen.epoch != store.epoch):
            return _set(world, i, replace(host, swap=None))
        swapped = store.version == swap.version
        if swapped:
            store = replace(store, generation=swap.generation, version=store.version + 1)
            world = self._put(world, store)
            store = world.store or store
        seen = host.seen
        assert seen is not None
        world = _set(world, i, replace(host, swap=None, seen=store))
        return self._feed_all(world, i, (*_changes(seen, store), messages.SwapDone(swapped)))

    def _thaw(self, world: World, i: int, host: Host) -> World:
        thawed = replace(host, frozen=False, orphaned=False)
        if not host.orphaned or host.workers is None:
            return _set(world, i, thawed)
        return self._orphan(_set(world, i, thawed), i, thawed)

    def _orphan(self, world: World, i: int, host: Host) -> World:
        assert host.workers is not None
        killed = replace(host, workers=None, stopping=False, ended=False)
        return self._feed(_set(world, i, killed), i, messages.WorkersGone(host.workers[0], orphaned=True))

    def _beat(self, world: World, i: int) -> Iterator[tuple[str, World]]:
        peer = world.store.peer(f"n{i}") if world.store else None
        if world.store is not None and peer is not None and peer.presence == "silent":
            yield f"beat {i}", self._put(world, world.store.with_peer(Peer(peer.record, "live", 0.0)))

    def _put(self, world: World, store: Store) -> World:
        return replace(world, store=self.canonical(store))

    def _close(self, world: World, i: int) -> World:
        """The kernel closed the node's connection: the store sees it at once."""
        peer = world.store.peer(f"n{i}") if world.store else None
        if world.store is None or peer is None:
            return world
        return self._put(world, world.store.with_peer(Peer(peer.record, "closed", 0.0)))

    def _silence(self, world: World, i: int) -> Iterator[tuple[str, World]]:
        peer = world.store.peer(f"n{i}") if world.store else None
        if world.store is not None and peer is not None and peer.presence == "live":
            yield f"silent {i}", self._put(world, world.store.with_peer(Peer(peer.record, "silent", 0.0)))

    def _age(self, world: World, seconds: float) -> World:
        store = world.store
        for i, host in enumerate(world.hosts):
            if host.connected and (host.frozen or host.cut) and store is not None:
                peer = store.peer(f"n{i}")
                if peer is not None and peer.presence == "live":
                    store = store.with_peer(Peer(peer.record, "silent", 0.0))
        store = _aged_store(store, seconds)
        world = replace(world, store=self.canonical(store) if store else None)
        for i, host in enumerate(world.hosts):
            if host.state is None:
                continue
            aged = replace(
                host, state=self._aged(host.state, seconds), seen=self.canonical(_aged_store(host.seen, seconds))
            )
            world = _set(world, i, aged)
            unanswered = host.frozen or host.cut or store is None or not host.connected
            if seconds >= AGE and unanswered and host.workers is not None:
                if host.frozen:
                    world = _set(world, i, replace(aged, orphaned=True))
                else:
                    world = self._orphan(world, i, aged)
            if world.hosts[i].awake:
                world = self._feed(world, i, messages.Tick())
        return world

    def _aged(self, state: State, seconds: float) -> State:
        key = (id(state), seconds)
        if key not in self._ages:
            self._ages[key] = self.canonical(_reduced(_aged(state, seconds)))
        return self._ages[key]

    def _training(self, world: World, i: int, host: Host) -> Iterator[tuple[str, World]]:
        """One more step together with all others; at the stop step the worker waits for consent, then exits 0."""
        if not self.scenario.steps or host.workers is None:
            return
        if host.stop is not None and host.step >= host.stop[0]:
            if host.stop[1]:
                stopped = _set(world, i, replace(host, ended=True))
                stopped = replace(stopped, stops=world.stops | {(host.workers, host.step)})
                exited = messages.WorkerExited(host.workers[0], 0, 0, stopped=True)
                yield f"stops {i}", self._feed(stopped, i, exited)
            return
        goal = max(self.scenario.steps, host.stop[0] if host.stop else 0)
        if host.step < goal and all(other.step >= host.step for other in self._members(world, host)):
            further = replace(host, step=host.step + 1)
            yield f"step {i}", self._read(_set(world, i, further), i)

    def _read(self, world: World, i: int) -> World:
        """The agent looks into the progress memory."""
        host = world.hosts[i]
        if host.workers is None or not self.scenario.steps:
            return world
        step = host.step if host.step >= 0 else None
        return self._feed_all(world, i, (messages.StepsSeen(host.workers[0], step, step),))

    def _members(self, world: World, host: Host) -> list[Host]:
        return [world.hosts[j] for j in sorted(host.members)]

    def _peer_is_missing(self, world: World, host: Host) -> bool:
        """A worker of the same generation is gone that this one's next step needs: its collective fails."""
        members = self._members(world, host)
        needed = [other for other in members if other.step <= host.step and other.finished != host.workers]
        return any(other.end or (other.workers != host.workers and _had(other, host.workers)) for other in needed)

    def _may_finish(self, world: World, host: Host) -> bool:
        """The last step needs every worker of the generation: all run it, or did."""
        members = self._members(world, host)
        return all(host.workers in {other.workers, other.finished} for other in members)

    # -------------------------------------------------- running the machine

    def _feed(self, world: World, i: int, event: messages.Event) -> World:
        return self._feed_all(world, i, (event,))

    def _feed_all(self, world: World, i: int, events: tuple[messages.Event, ...]) -> World:
        queue = deque(events)
        while queue:
            host = world.hosts[i]
            if host.state is None:
                break
            event = queue.popleft()
            state, actions = self._step(host.state, event)
            world = _set(world, i, replace(host, state=state))
            for action in actions:
                world = self._obey(world, i, action, queue)
        return world

    def _step(self, state: State, event: messages.Event) -> tuple[State, tuple[messages.Action, ...]]:
        key = (id(state), event)
        if key not in self._steps:
            after, actions = self.scenario.stepper(state, event, 0.0)
            self._steps[key] = (self.canonical(_reduced(after)), actions)
        return self._steps[key]

    def canonical(self, value: T) -> T:
        """The one object that stands for all equal to it, so that identity is equality."""
        return cast("T", self._canon.setdefault(value, value))

    def key(self, world: World) -> tuple[object, ...]:
        """Equal for equal worlds."""
        hosts = tuple(self._host_key(host) for host in world.hosts)
        return (id(world.store), world.life, hosts, world.faults, world.failures, world.done, world.stops)

    def _host_key(self, host: Host) -> tuple[object, ...]:
        flags = (host.connected, host.cut, host.frozen, host.slow, host.orphaned, host.stopping, host.ended)
        return (
            id(host.state),
            host.end,
            flags,
            id(host.seen),
            host.swap,
            host.workers,
            host.finished,
            host.step,
            host.stop,
        )

    def _obey(self, world: World, i: int, action: messages.Action, queue: deque[messages.Event]) -> World:
        host, store = world.hosts[i], world.store
        reaches = host.connected and not host.cut and store is not None and host.seen is not None
        reaches = reaches and store is not None and host.seen is not None and host.seen.epoch == store.epoch
        if isinstance(action, messages.Swap):
            return _set(world, i, replace(host, swap=action))
        if isinstance(action, messages.ChoosePort):
            queue.append(messages.PortChosen(action.generation, 1))
        elif isinstance(action, messages.StartWorkers):
            return self._start(world, i, action)
        elif isinstance(action, messages.StopWorkers):
            return _set(world, i, replace(host, stopping=action.first != "none" or host.stopping))
        elif isinstance(action, messages.SetStopStep):
            step = host.step if host.step >= 0 else None
            queue.append(messages.StepsSeen(action.generation, step, step))
            if action.step is not None:
                return _set(world, i, replace(host, stop=(action.step, action.agreed)))
        elif isinstance(action, messages.Exit):
            if host.workers is not None:
                raise Broken(f"node {i} exits while its workers run")
            return self._close(_set(world, i, host.over(f"exit {action.code}")), i)
        elif isinstance(action, messages.Publish) and reaches and store is not None:
            return self._put(world, store.with_peer(Peer(action.record, "live", 0.0)))
        elif isinstance(action, messages.PublishMaster) and reaches and store is not None:
            return self._put(world, replace(store, masters=(action.master,)))
        return world

    def _start(self, world: World, i: int, action: messages.StartWorkers) -> World:
        host = world.hosts[i]
        if host.workers is not None:
            raise Broken(f"node {i} starts generation {action.generation} before it stopped {host.workers}")
        assert host.state is not None
        assert host.state.group is not None
        assert host.state.generation is not None
        return _set(world, i, replace(
            host,
            workers=host.state.group.identity,
            members=frozenset(int(member.uuid.removeprefix("n")) for member in host.state.generation.members),
            stopping=False,
            ended=False,
            step=-1,
            stop=None,
        ))  # fmt: skip


# ------------------------------------------------------ small things


def _set(world: World, i: int, host: Host) -> World:
    return replace(world, hosts=(*world.hosts[:i], host, *world.hosts[i + 1 :]))


def _master(store: Store) -> Master | None:
    return store.masters[-1] if store.masters else None


def _changes(old: Store, new: Store) -> tuple[messages.Event, ...]:
    events: list[messages.Event] = [messages.PeerSeen(peer) for peer in new.peers if peer not in old.peers]
    master = _master(new)
    if master is not None and new.masters != old.masters:
        events.append(messages.MasterSeen(master))
    if (new.generation, new.version) != (old.generation, old.version):
        events.append(messages.GenerationSeen(new.generation, new.version))
    return tuple(events)


def _had(host: Host, identity: Identity | None) -> bool:
    """Whether a node has been in this generation and is out of it, not having finished it."""
    group = host.state.group if host.state else None
    return group is not None and group.identity == identity and group.phase == "stopped"


def _older(since: float, seconds: float) -> float:
    """Ages are a moment or an age: what is older is as old."""
    return -AGE if since - seconds <= -AGE else -MOMENT


def _aged_store(store: Store | None, seconds: float) -> Store | None:
    if store is None:
        return None
    return replace(store, peers=tuple(_aged_peer(peer, seconds) for peer in store.peers))


def _aged_peer(peer: Peer, seconds: float) -> Peer:
    return (
        Peer(peer.record, peer.presence, -AGE if seconds >= AGE else peer.since) if peer.presence == "silent" else peer
    )


def _aged(state: State, seconds: float) -> State:
    def optional(since: float | None) -> float | None:
        return None if since is None else _older(since, seconds)

    store = replace(
        state.store,
        since=_older(state.store.since, seconds),
        peers=tuple(_aged_peer(peer, seconds) for peer in state.store.peers),
    )
    group = state.group
    if group is not None:
        group = replace(group, started=_older(group.started, seconds), stop_by=0.0)
    return replace(
        state,
        store=store,
        group=group,
        leaving_since=optional(state.leaving_since),
        idle_since=optional(state.idle_since),
        phase_since=_older(state.phase_since, seconds),
        committed_since=_older(state.committed_since, seconds),
        planned_since=optional(state.planned_since),
        forming_since=optional(state.forming_since),
    )


def _reduced(state: State) -> State:
    """Without the ages that no rule reads as things stand; the rules explored have neither gap, window nor join timeout."""
    generation = state.generation
    stopping = generation is not None and generation.phase in {"draining", "broken"}
    restored = generation is not None and generation.epoch != state.store.epoch
    return replace(
        state,
        idle_since=None,
        planned_since=None,
        phase_since=state.phase_since if stopping else 0.0,
        committed_since=state.committed_since if generation is not None and generation.charged else 0.0,
        store=replace(state.store, since=state.store.since if restored else 0.0),
        group=replace(state.group, started=0.0) if state.group else None,
    )
