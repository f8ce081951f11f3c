"""The state of the agent's machine: this node, its workers, and its picture of the store. Data types and lookups."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

from .events import Peer
from .limits import Limits
from .records import Cause, Generation, Master, Member, NodeRecord, NodeState

Identity = tuple[int, str]

NOWHERE: Final[Identity] = (0, "")
"""The identity of no generation."""


@dataclass(frozen=True)
class Node:
    """The facts about this node that never change."""

    uuid: str
    name: str = ""
    """The pod's name; empty where there is none. A launcher that comes under the name of a disconnected node proves
    that the node is dead."""
    local_world_size: int = 1
    replica_index: int | None = None
    address: str = ""
    joined: int = 0
    """Unix milliseconds."""


class _Index:
    """Peers by uuid and by name: a search for each of the many lookups would make a step's cost quadratic."""

    def __init__(self, peers: tuple[Peer, ...], by_uuid: Mapping[str, Peer]) -> None:
        self.peers = peers
        self.by_uuid = by_uuid
        """In the same order."""

    @cached_property
    def by_name(self) -> Mapping[str, tuple[Peer, ...]]:
        """Peers in the same order, those of one name together."""
        found: dict[str, list[Peer]] = {}
        for peer in self.peers:
            found.setdefault(peer.record.name, []).append(peer)
        return {name: tuple(namesakes) for name, namesakes in found.items()}

    @cached_property
    def ready(self) -> tuple[NodeRecord, ...]:
        """The records of nodes that could become members now, which each step asks for."""
        live = (peer.record for peer in self.peers if peer.presence == "live")
        return tuple(said for said in live if said.state == "ready" and not said.leaving)


_last_index = _Index((), {})
"""Of the last lookup: most changes of a state leave its peers as they were. Its peers are compared before it is used,
so that lookups stay pure."""


@dataclass(frozen=True)
class Store:
    """This node's picture of the store; it may lag, which compare-and-set makes harmless."""

    connected: bool = False
    incarnation: str = ""
    since: float = 0.0
    """When this incarnation was first seen."""
    clock_offset: float = 0.0
    """The store's Unix time minus this node's monotonic clock."""
    generation: Generation | None = None
    version: int = 0
    peers: tuple[Peer, ...] = ()
    """All nodes, this one included, by uuid."""
    master: Master | None = None
    is_setting: bool = False
    """A ``CompareAndSet`` is not answered yet."""

    def peer(self, uuid: str) -> Peer | None:
        """The node of this uuid, None where the store does not know it."""
        return self._index().by_uuid.get(uuid)

    def named(self, name: str) -> tuple[Peer, ...]:
        """All nodes of this name; none where it is empty."""
        return self._index().by_name.get(name, ()) if name else ()

    def disconnected(self, generation: Generation) -> tuple[Member, ...]:
        """The members of a generation whose connections have ended, in rank order."""
        peers = ((member, self.peer(member.uuid)) for member in generation.members)
        return tuple(member for member, peer in peers if peer is not None and peer.presence == "disconnected")

    def is_live(self, uuid: str) -> bool:
        """Whether the node of this uuid beats."""
        peer = self.peer(uuid)
        return peer is not None and peer.presence == "live"

    def ready(self) -> tuple[NodeRecord, ...]:
        """The records of all nodes that beat, are ready for a generation and are not told to end, by uuid."""
        return self._index().ready

    def with_peers(self, seen: Iterable[Peer]) -> Store:
        """The same with these nodes as they are now: all at once, since a thousand say something at one time."""
        global _last_index  # noqa: PLW0603  as below
        known = self._index().by_uuid
        found = {**known, **{peer.record.uuid: peer for peer in seen}}
        if len(found) > len(known):
            found = {uuid: found[uuid] for uuid in sorted(found)}
        _last_index = _Index(tuple(found.values()), found)
        return dataclasses.replace(self, peers=_last_index.peers)

    def _index(self) -> _Index:
        global _last_index  # noqa: PLW0603  a memory of one result, compared with what it was made of before it is used
        index = _last_index
        if index.peers is not self.peers:
            index = _last_index = _Index(self.peers, {peer.record.uuid: peer for peer in self.peers})
        return index


@dataclass(frozen=True)
class LocalWorkers:
    """This node's workers of one generation, or its workers on standby."""

    identity: Identity
    """The generation's; ``NOWHERE`` for workers on standby."""
    phase: Literal["preparing", "running", "stopping", "parking", "parked", "stopped", "finished"]
    """``preparing``: no worker runs yet, or only parked ones. ``parking``: told to leave the generation and live on, or
    started on standby and not ready yet; ``parked``: they have left it, or are ready. ``stopped``: no worker runs any
    more, and all must start again. ``finished``: every worker exited 0 by itself."""
    started: float = 0.0
    port_asked: bool = False
    port: int = 0
    met: bool = False
    """This node, as leader, has published the meeting place on the present connection to the store."""
    exits: tuple[tuple[int, int, bool], ...] = ()
    """(local rank, exit code, told to stop) of each ended worker, in the order of the ends."""
    failure: Cause | None = None
    """The first failure among the workers, whether in the generation record yet or not."""
    start_failure: str = ""
    """Exit code and exception of the first worker that failed before any step."""
    stop_by: float = 0.0
    """The time of SIGKILL, once stopping."""
    stop_first: str = "none"
    """The strongest first signal ordered so far."""
    told: bool = False
    """The workers were asked to stop, by signal or stop step: a bad exit afterwards is no failure."""
    suspension: Literal["", "suspended", "verifying", "verified"] = ""
    """``suspended`` by the dead-man timer; ``verifying``: a compare-and-set is under way that only succeeds if the
    store's record of the generation is the one known here; ``verified``: the compare-and-set has succeeded."""
    lowest: int | None = None
    slowest: int | None = None
    """The local rank at ``lowest``."""
    highest: int | None = None
    earlier: int | None = None
    """The newest step that the kept workers made in earlier generations; None where all were started."""
    per_second: float = 0.0
    step_seconds: float = 0.0
    """What a step takes at most, all but one in a hundred; 0 where it is not known."""
    checkpoint: int | None = None
    first_checkpoint: int | None = None
    """The newest checkpoint when this generation began to report."""
    stepped_at: float | None = None
    """When the first worker made its first step, reported or not; None before that step."""
    failing: bool = False
    """An exception has left the script of a worker, which is about to end."""
    startup_seconds: int | None = None
    """Time from the order to start to the first step, rounded up."""
    stop_step: int | None = None
    """The stop step in the progress memory."""
    stop_step_agreed: bool = False
    accepted: int | None = None
    can_move: bool = False
    """The workers have said that they can be moved."""
    kept: tuple[int, ...] = ()
    """While preparing: local ranks of parked workers of the generation before, which go on in this one."""
    behind: bool = False
    """The kept workers were on standby, and are not in a group yet: others have the job's newest state."""
    parked: tuple[int, ...] = ()
    """Local ranks that have parked."""
    told_to_park: bool = False
    """The workers were told that the generation is over."""
    stuck: tuple[int, ...] = ()
    """Local ranks that cannot park, as they say themselves."""
    killed: tuple[int, ...] = ()
    """Local ranks that did not park in time, or cannot."""
    broke: Cause | None = None
    """A step broke although no worker here ended: a failure, unless a lost peer explains the break."""
    broke_at: float = 0.0

    @property
    def newest_step(self) -> int | None:
        """The newest step known here: a failure in the first step after a move comes after all those before it."""
        return self.earlier if self.highest is None else self.highest

    @property
    def on_standby(self) -> bool:
        """Whether the workers were started before this node is a member."""
        return self.identity == NOWHERE

    @property
    def active(self) -> bool:
        """Whether a process may be running."""
        lives_on = self.phase == "preparing" and bool(self.kept)
        return lives_on or self.phase in {"running", "stopping", "parking", "parked"}


@dataclass(frozen=True)
class State:
    """The whole state of one agent."""

    node: Node
    limits: Limits
    ready: bool = False
    store: Store = Store()
    latest_seen: Generation | None = None
    """The newest generation record ever seen, over all incarnations of the store."""
    has_latest: bool = True
    """Whether no later generation record can exist that this node has not seen."""
    workers: LocalWorkers | None = None
    signal: int | None = None
    leaving_since: float | None = None
    idle_since: float | None = None
    """Since when there is no generation that this node could wait for; None while there is one."""
    seen: tuple[Identity, str] | None = None
    """Identity and phase of the record last looked at."""
    phase_since: float = 0.0
    committed_since: float = 0.0
    """When the generation in the store was first seen."""
    planned_since: float | None = None
    """When the last planned change was committed, where this node saw it."""
    standby_failed: bool = False
    """Workers on standby have ended before they entered a generation; this node starts none again before its workers
    have been in one."""
    wanting_since: float | None = None
    """Since when a change of the generation record has been due and this node has not asked for it; None where none is
    due."""
    forming_since: float | None = None
    """Since when there have been enough nodes for a first round."""
    published: NodeRecord | None = None
    waiting_for: str = ""
    """Why this ready node is in no generation, as last written to the log."""
    told_namesake: bool = False
    """Whether the warning about another launcher of this name was written."""
    exited: bool = False

    @property
    def leaving(self) -> bool:
        """Whether this node was asked to end."""
        return self.leaving_since is not None

    @property
    def generation(self) -> Generation | None:
        """The record in the store."""
        return self.store.generation

    @property
    def active(self) -> bool:
        """Whether a worker of this node may be running."""
        return self.workers is not None and self.workers.active

    @property
    def takes_part(self) -> bool:
        """Whether a worker of this node may be running in a generation."""
        return self.workers is not None and self.workers.active and not self.workers.on_standby

    def own_member(self) -> Member | None:
        """This node's place in the generation in the store."""
        members = self.generation.members if self.generation else ()
        return next((member for member in members if member.uuid == self.node.uuid), None)

    def workers_of(self, generation: Generation | None) -> LocalWorkers | None:
        """The local workers, if they are of this generation."""
        if generation is None or self.workers is None or self.workers.identity != generation.identity:
            return None
        return self.workers


def start(node: Node, limits: Limits, now: float) -> State:
    """The state of an agent that has just begun."""
    return State(node, limits, idle_since=now)


def with_workers(state: State, workers: LocalWorkers) -> State:
    """The same with other local workers."""
    return dataclasses.replace(state, workers=workers)


def with_store(state: State, store: Store) -> State:
    """The same with another picture of the store."""
    return dataclasses.replace(state, store=store)


def record(state: State) -> NodeRecord:
    """This node's own record, as it is written to the store."""
    node, workers = state.node, state.workers
    number, incarnation = workers.identity if workers else (0, "")
    return NodeRecord(
        uuid=node.uuid,
        name=node.name,
        state=_word(state),
        local_world_size=node.local_world_size,
        replica_index=node.replica_index,
        address=node.address,
        generation=number,
        incarnation=incarnation,
        accepted=workers.accepted if workers else None,
        orphaned=workers is not None and workers.failure is not None and workers.failure.kind == "orphaned",
        leaving=state.leaving,
        joined=node.joined,
        startup_seconds=workers.startup_seconds if workers else None,
        hung_at=_hung_at(state, workers) if workers else (),
        failure=workers.start_failure if workers else "",
        can_move=workers is not None and workers.can_move,
        behind=workers is not None and workers.behind,
        incomplete=workers is not None and workers.phase == "parked" and bool(workers.exits),
    )


def _hung_at(state: State, workers: LocalWorkers) -> tuple[int, ...]:
    """(lowest step, its local rank) in a hang; otherwise empty, since the record would change with every step."""
    generation = state.generation
    told = generation.cause if generation is not None and state.workers_of(generation) is not None else None
    hangs = any(cause is not None and cause.kind == "hang" for cause in (workers.failure, told))
    if not hangs or workers.lowest is None or workers.slowest is None:
        return ()
    return (workers.lowest, workers.slowest)


_ACTIVE: Final[Mapping[str, NodeState]] = {"stopping": "draining", "parking": "draining", "parked": "parked"}


def _word(state: State) -> NodeState:
    workers = state.workers
    if workers is not None and workers.active:
        return _word_of_active(workers)
    if workers is not None and workers.phase == "finished":
        return "finished"
    if state.leaving:
        return "left"
    if workers is not None and workers.phase == "preparing":
        return "member"
    if workers is not None and state.own_member() is not None and state.workers_of(state.generation):
        return "stopped"
    return "ready" if state.ready else "warming"


def _word_of_active(workers: LocalWorkers) -> NodeState:
    if workers.on_standby:
        return "ready" if workers.phase == "parked" and not workers.suspension else "warming"
    return _ACTIVE.get(workers.phase, "member")
