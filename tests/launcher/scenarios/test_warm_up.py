"""When a node says that it is ready: a newcomer loads first, a node that is needed does not."""

from __future__ import annotations

import json
import pathlib
from dataclasses import replace

import pytest

from elastic_infra.launcher.agent import warm_up
from elastic_infra.launcher.protocol.events import Peer
from elastic_infra.launcher.protocol.limits import Limits
from elastic_infra.launcher.protocol.records import Generation, Member, NodeRecord, Phase
from elastic_infra.launcher.protocol.state import Node, State, Store, start
from tests.launcher.loopback import TRAIN, Job


def node(
    *, connected: bool = True, phase: Phase | None = "running", live: int = 1, members: tuple[str, ...] = ("a",)
) -> State:
    """What node "n" sees: a generation of these members, of which the first few live; at least one is needed."""
    generation = (
        None if phase is None else Generation(1, phase=phase, members=tuple(Member(uuid, uuid, 1) for uuid in members))
    )
    peers = tuple(
        Peer(NodeRecord(uuid, uuid, "member", 1), "live" if index < live else "ended", 0.0)
        for index, uuid in enumerate(members)
    )
    store = Store(connected=connected, incarnation="e", generation=generation, peers=peers)
    return replace(start(Node("n"), Limits(min_nodes=1, max_nodes=3), 0.0), store=store)


@pytest.mark.parametrize(
    ("state", "verdict"),
    [
        (node(), "ask"),
        (node(phase="broken"), "ask"),
        (node(connected=False), "wait"),
        (node(phase=None), "ready"),
        (node(phase="final"), "ready"),
        (node(live=0), "ready"),
        (node(members=("a", "n")), "ready"),
    ],
)
def test_only_who_is_not_needed_loads_first(state: State, verdict: str) -> None:
    """The first nodes, a member, and one that the others cannot train without say at once that they are ready."""
    assert verdict == warm_up.decide(state, can_warm=True, asked_at=None, now=100.0)


@pytest.mark.parametrize(("now", "verdict"), [(219.0, "wait"), (220.0, "ready")])
def test_loading_is_waited_for_so_long(now: float, verdict: str) -> None:
    """An import that hangs keeps no node out."""
    assert verdict == warm_up.decide(node(), can_warm=True, asked_at=100.0, now=now)


def test_who_cannot_warm_is_ready() -> None:
    """Warm start is off, or failed, or has succeeded."""
    assert warm_up.decide(node(), can_warm=False, asked_at=100.0, now=101.0) == "ready"


@pytest.mark.launcher
@pytest.mark.timeout(300)
def test_newcomer_is_warm_before_it_ends_a_generation(tmp_path: pathlib.Path) -> None:
    """The others train while it loads, and its first worker is forked."""
    job = Job(tmp_path, script=(str(TRAIN), str(tmp_path), "100000", "0.05", "gloo"))
    try:
        job.start_store()
        job.start_node("last_call_timeout=1")
        job.wait_for_world(1)
        job.environ = {"ELASTIC_INFRA_EVENTS": str(tmp_path / "events")}
        job.start_node()
        job.wait_for_world(2)
    finally:
        job.end()

    events = [json.loads(line) for line in (tmp_path / "events").read_text().splitlines()]
    order = [event["event"] for event in events if event["event"] in {"fork_server", "rendezvous_started"}]
    assert order[:2] == ["fork_server", "rendezvous_started"]
    assert [event["warm"] for event in events if event["event"] == "worker_started"] == [True]
