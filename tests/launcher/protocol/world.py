"""The shapes of the world around the machine, and how it ages.

Time is abstract: ages are 0, "a moment" (beyond every short wait of the limits) or "an age" (beyond ``dead_after``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from elastic_infra.launcher.protocol import actions, machine
from elastic_infra.launcher.protocol.events import (
    Event,
    GenerationSeen,
    MasterSeen,
    Peer,
    PeerForgotten,
    PeerSeen,
    Presence,
)
from elastic_infra.launcher.protocol.limits import Limits
from elastic_infra.launcher.protocol.records import Generation, Master, NodeRecord
from elastic_infra.launcher.protocol.state import LocalWorkers, State

MOMENT = 10.0
AGE = 1000.0
SKEW = 3600.0
"""A clock that is set wrong is wrong by so much."""

Identity = tuple[int, str]
Step = tuple[State, tuple[actions.Action, ...]]
Stepper = Callable[[State, Event, float], Step]


@dataclass(frozen=True)
class Store:
    """The server's content; ``presences`` have ages, counted backwards from now."""

    incarnation: str
    generation: Generation | None = None
    version: int = 0
    peers: tuple[Peer, ...] = ()
    masters: tuple[Master, ...] = ()

    def peer(self, uuid: str) -> Peer | None:
        return next((peer for peer in self.peers if peer.record.uuid == uuid), None)

    def with_presence(self, uuid: str, presence: Presence, *, names: bool) -> Store:
        """The same with another presence of a node; with names the store counts arrivals and disconnections."""
        old = self.peer(uuid)
        if old is None or old.presence in {presence, "ended"}:
            return self
        since = old.since if (old.presence, presence) == ("silent", "disconnected") else 0.0
        departed = self.moves + 1 if names and presence == "disconnected" else old.departed
        return self.with_peer(replace(old, presence=presence, since=since, departed=departed))

    @property
    def moves(self) -> int:
        """Arrivals and disconnections that are still remembered."""
        return max((max(peer.arrived, peer.departed) for peer in self.peers), default=0)

    def with_record(self, record: NodeRecord, *, names: bool) -> Store:
        """The same with the record of a connected node."""
        old = self.peer(record.uuid)
        arrived = old.arrived if old else (self.moves + 1 if names else 0)
        return self.with_peer(Peer(record, "live", 0.0, arrived, old.departed if old else 0))

    def without_the_ended(self) -> Store:
        """The same once it has forgotten the nodes that said farewell."""
        return replace(self, peers=tuple(peer for peer in self.peers if peer.presence != "ended"))

    def with_peer(self, peer: Peer) -> Store:
        others = [other for other in self.peers if other.record.uuid != peer.record.uuid]
        return replace(self, peers=tuple(sorted((*others, peer), key=lambda peer: peer.record.uuid)))


UNMOVED: Final[dict[str, Any]] = {
    "movable": False,
    "told": False,
    "parked": frozenset(),
    "broke": False,
    "late": frozenset(),
    "dismissed": False,
}
"""The fields of workers that have just been started, or have just entered a generation."""


@dataclass(frozen=True)
class Host:
    """One node: its machine, its workers, its link to the store."""

    state: State | None = None
    """The machine's state; None before the node joins and after its end."""
    end: str = ""
    """"crashed", "exit <code>", or "to return": nothing there until its namesake is over."""
    connected: bool = False
    cut: bool = False
    """Whether the node is partitioned from the store."""
    mute: bool = False
    """Its connection is about to end: the store's answers still come, and what the node writes is lost."""
    frozen: bool = False
    slow: bool = False
    """Whether the store's notices reach the node at any later time."""
    orphaned: bool = False
    """The dead-man timer is due, and suspends the workers before anything else once the node is thawed."""
    seen: Store | None = None
    """The store's content as last delivered to the node."""
    compare_and_set: actions.CompareAndSet | None = None
    """A compare-and-set on its way to the store."""
    workers: Identity | None = None
    members: frozenset[int] = frozenset()
    """The nodes of the generation that its workers were last started for."""
    stopping: bool = False
    exited: frozenset[int] = frozenset()
    """Local ranks of workers that exited by themselves, their groups are not yet cleared."""
    failed: bool = False
    """Whether a worker exited by a failure."""
    raised: bool = False
    """Whether an exception has left its worker's script, while the process has yet to end."""
    suspended: bool = False
    """The dead-man timer stopped the workers and has asked whether their generation stands."""
    finished: Identity | None = None
    """The generation whose last step its worker made."""
    step: int = -1
    """The newest step its worker reported."""
    stop: tuple[int, bool] | None = None
    """Stop step and consent in the progress memory."""
    movable: bool = False
    """Its workers are in the group of their generation and have said that they can be moved."""
    kept: bool = False
    """Its workers have entered their generation with their processes: what breaks there ends none of them."""
    told: bool = False
    """Whether the workers were told that the generation is over."""
    parked: frozenset[int] = frozenset()
    broke: bool = False
    """A collective failed, and the agent knows."""
    late: frozenset[int] = frozenset()
    """Local ranks that are killed, for they did not park in time."""
    dismissed: bool = False
    """They were told to end by themselves at the stop step."""
    starts: int = 0
    """How often all of its workers were started."""
    held: bool = False
    """Its workers could be moved and had made a step, so that they held a state that is nowhere else."""
    saved: bool = False
    """Its workers were told to save the state before they ended."""
    settled: bool = False
    """Its workers have been in a group since they were started, so that they have the job's state; those on standby
    have it no more."""

    @property
    def awake(self) -> bool:
        return self.state is not None and not self.frozen

    def over(self, end: str) -> Host:
        """The same node with nothing left of it but how far its worker came."""
        kept = {"step": self.step, "finished": self.finished, "starts": self.starts}
        return Host(end=end, held=self.held, saved=self.saved, **kept)  # type: ignore[arg-type]  # its own fields

    @property
    def number(self) -> int:
        """The number of the workers' generation, as the agent reports it to the machine."""
        assert self.state is not None
        assert self.state.workers is not None
        return self.state.workers.identity[0]

    def without_workers(self) -> Host:
        """The same once none of its workers is left."""
        return replaced(
            self,
            workers=None,
            stopping=False,
            exited=frozenset(),
            failed=False,
            raised=False,
            suspended=False,
            orphaned=False,
            settled=False,
            kept=False,
            **UNMOVED,
        )


@dataclass(frozen=True)
class World:
    store: Store | None
    life: int
    """Number of incarnations of the store."""
    hosts: tuple[Host, ...]
    faults: int
    """Number of faults still to come."""
    failures: int = 0
    """Worker failures injected so far: only they may be charged."""
    done: bool = False
    """The script's work is complete: a worker may exit 0."""
    stops: frozenset[tuple[Identity, int]] = frozenset()
    """Every (generation, step) at which a worker was told to stop."""
    over: bool = False
    """The job has ended, less than an age ago."""


@dataclass(frozen=True)
class Scenario:
    """What may happen in one exploration."""

    limits: Limits
    faults: int
    kinds: frozenset[str]
    """Of crash, freeze, cut, close, slow, leave, fail, store, skew."""
    finish: bool = False
    nodes: int = 3
    settled: int = 0
    """Nodes that have formed a generation before the exploration begins."""
    local: int = 1
    """Workers of each node."""
    names: tuple[str, ...] = ()
    """The nodes' names; none where it is empty. An unsettled node with the name of an earlier node returns as that
    node, once the earlier one is over, unless ``beside``."""
    beside: bool = False
    """Namesakes are there at the same time."""
    faulty: str = ""
    """The name of a node whose launcher ends by a fault of its own whenever its workers run."""
    slow: bool = False
    """Whether every node is slow from the start: all interleavings."""
    steps: int = 0
    """How far workers train while they are not stopped; 0: they report no steps."""
    bad_sizes: frozenset[int] = frozenset()
    """Numbers of workers with which the script fails before its first step, on every rank alike."""
    lingers: bool = False
    """Whether a worker takes any time to end once an exception has left its script, as Python does after a fork."""
    moves: bool = False
    """Whether workers can be moved."""
    late: bool = False
    """Whether a worker may take any time to park."""
    stepper: Stepper = machine.step


class BrokenError(AssertionError):
    """A property does not hold; carries the steps that led there."""


Copied = TypeVar("Copied", Host, World, State, LocalWorkers)


def replaced(value: Copied, **fields: object) -> Copied:
    """``dataclasses.replace`` without its calls for each field: a check consists mostly of such copies."""
    known = vars(value)
    assert fields.keys() <= known.keys()
    copy = object.__new__(type(value))
    vars(copy).update(known, **fields)
    return copy


def with_host(world: World, i: int, host: Host) -> World:
    """The same world with another host ``i``."""
    return replaced(world, hosts=(*world.hosts[:i], host, *world.hosts[i + 1 :]))


def newest_master(store: Store) -> Master | None:
    """The meeting place last published."""
    return store.masters[-1] if store.masters else None


def changes(old: Store, new: Store) -> tuple[Event, ...]:
    """The events that bring a node from ``old`` to ``new``; the generation last."""
    events: list[Event] = [PeerSeen(peer) for peer in new.peers if peer not in old.peers]
    uuids = {peer.record.uuid for peer in new.peers}
    events += [PeerForgotten(peer.record.uuid) for peer in old.peers if peer.record.uuid not in uuids]
    master = newest_master(new)
    if master is not None and new.masters != old.masters:
        events.append(MasterSeen(master))
    if (new.generation, new.version) != (old.generation, old.version):
        events.append(GenerationSeen(new.generation, new.version))
    return tuple(events)


def is_out_of(host: Host, identity: Identity | None) -> bool:
    """Whether a node has been in this generation and is out of it, not having finished it."""
    group = host.state.workers if host.state else None
    return group is not None and group.identity == identity and group.phase == "stopped"


def _older(since: float, seconds: float) -> float:
    """Ages are a moment or an age; older ages count as an age."""
    return -AGE if since - seconds <= -AGE else -MOMENT


def aged_store(store: Store | None, seconds: float) -> Store | None:
    """The same store, so much later."""
    if store is None:
        return None
    peers = tuple(aged_peer(peer, seconds) for peer in store.peers)
    return replace(store, generation=aged_generation(store.generation, seconds), peers=peers)


def aged_generation(generation: Generation | None, seconds: float) -> Generation | None:
    """The same record by a clock of the store that still says 0."""
    if generation is None or generation.phase != "final":
        return generation
    return replace(generation, ended_at=int(_older(generation.ended_at, seconds)))


def aged_peer(peer: Peer, seconds: float) -> Peer:
    """Only the absence of a node grows old; a moment of silence decides nothing."""
    if peer.presence == "silent":
        return replace(peer, since=-AGE if seconds >= AGE else peer.since)
    return replace(peer, since=_older(peer.since, seconds)) if peer.presence == "disconnected" else peer


def aged_state(state: State, seconds: float) -> State:
    """The same state of a machine, that much later."""

    def optional(since: float | None) -> float | None:
        return None if since is None else _older(since, seconds)

    store = replace(
        state.store,
        since=_older(state.store.since, seconds),
        generation=aged_generation(state.store.generation, seconds),
        peers=tuple(aged_peer(peer, seconds) for peer in state.store.peers),
    )
    group = state.workers
    if group is not None:
        started, stepped_at = _older(group.started, seconds), optional(group.stepped_at)
        broke_at = _older(group.broke_at, seconds) if group.broke is not None else 0.0
        group = replaced(group, started=started, stepped_at=stepped_at, stop_by=0.0, broke_at=broke_at)
    return replaced(
        state,
        store=store,
        latest_seen=aged_generation(state.latest_seen, seconds),
        workers=group,
        leaving_since=optional(state.leaving_since),
        idle_since=optional(state.idle_since),
        phase_since=_older(state.phase_since, seconds),
        committed_since=_older(state.committed_since, seconds),
        planned_since=optional(state.planned_since),
        forming_since=optional(state.forming_since),
    )


def reduced(state: State) -> State:
    """Without the ages that no rule reads as things stand: the scenarios have no window and no join timeout."""
    generation = state.generation
    stopping = generation is not None and generation.phase in {"draining", "broken"}
    restored = generation is not None and generation.incarnation != state.store.incarnation
    group = state.workers
    return replaced(
        state,
        idle_since=None,
        planned_since=None if _is_past(state.planned_since, state) else 0.0,
        phase_since=state.phase_since if stopping else 0.0,
        committed_since=state.committed_since if generation is not None and generation.charged else 0.0,
        store=replace(state.store, since=state.store.since if restored else 0.0),
        workers=_reduced_workers(state, group) if group else None,
    )


def _reduced_workers(state: State, group: LocalWorkers) -> LocalWorkers:
    waits = _may_be_too_young(state, group)
    if group.stepped_at is None:
        return replaced(group, started=group.started if waits else 0.0)
    waits = waits and not _is_past(state.planned_since, state)
    return replaced(group, started=0.0, stepped_at=max(group.stepped_at, -MOMENT) if waits else 0.0)


def _is_past(since: float | None, state: State) -> bool:
    return since is None or -since >= state.limits.planned_gap


def _may_be_too_young(state: State, group: LocalWorkers) -> bool:
    """Whether the age of the workers decides when a newcomer is taken in: they run and there is room."""
    generation = state.generation
    is_of = generation is not None and generation.identity == group.identity
    full = is_of and generation is not None and len(generation.members) >= state.limits.max_nodes
    return group.phase == "running" and not full
