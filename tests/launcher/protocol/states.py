"""States of the protocol's machine for tests: a node n0 that is connected, its generation and its peers."""

from __future__ import annotations

from dataclasses import replace

from elastic_infra.launcher.protocol.events import Peer
from elastic_infra.launcher.protocol.limits import Limits
from elastic_infra.launcher.protocol.records import Cause, Generation, Member, NodeRecord
from elastic_infra.launcher.protocol.state import LocalWorkers, Node, State, Store, start

INCARNATION = "e"
ALONE = Generation(1, members=(Member("n0", "n0", 1),), incarnation=INCARNATION, revision=1)
PAIR = replace(ALONE, members=(Member("n0", "n0", 1), Member("n1", "n1", 1)))
FAILURE = Cause("worker_failed", "n1", "n1", 1, 1)


def ready(uuid: str) -> Peer:
    """A node that could take part."""
    return Peer(NodeRecord(uuid, "", "ready"), "live", 0.0)


def peer(uuid: str, state: str, generation: Generation = PAIR, **more: object) -> Peer:
    """A live node that says this of itself."""
    said = NodeRecord(uuid, "", state, generation=generation.number, incarnation=INCARNATION)  # type: ignore[arg-type]  # a state
    return Peer(replace(said, **more), "live", 0.0)  # type: ignore[arg-type]  # its fields


def connected(limits: Limits, generation: Generation | None, *peers: Peer, phase: str = "") -> State:
    """A ready node n0, in ``generation`` if a group phase is given."""
    state = replace(start(Node("n0"), limits, 0.0), ready=True, latest_seen=generation)
    version = 1 if generation else 0
    store = Store(connected=True, incarnation=INCARNATION, clock_offset=1000.0, version=version, peers=peers)
    store = replace(store, generation=generation)
    group = LocalWorkers(generation.identity, phase) if generation and phase else None  # type: ignore[arg-type]  # a phase
    return replace(state, store=store, workers=group, forming_since=0.0, idle_since=0.0)
