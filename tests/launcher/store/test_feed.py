"""A job's notices, from the keyspace to a node's picture, without a connection between them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_infra.launcher import codec
from elastic_infra.launcher.protocol import events, records
from elastic_infra.launcher.store import keys, wire
from elastic_infra.launcher.store.connection import Held
from elastic_infra.launcher.store.feed import Feed
from elastic_infra.launcher.store.keyspace import Encoded, Keyspace, Notice

NODES = ("a", "b", "c")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | st.floats(0, 2) | st.sampled_from(["", "ready"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["state", "number", "x"]), inner),
    max_leaves=6,
)
MEMBERS = st.lists(st.sampled_from([records.Member(node, node, 1) for node in NODES]), max_size=4).map(tuple)
GENERATIONS = st.builds(
    records.Generation,
    number=st.integers(1, 2),
    phase=st.sampled_from(["running", "broken"]),
    members=MEMBERS,
    stop_step=st.none() | st.just(3),
)
RECORDS = st.builds(
    records.NodeRecord,
    uuid=st.sampled_from(NODES),
    name=st.just(""),
    state=st.sampled_from(["ready", "member", "stopped"]),
    generation=st.integers(0, 1),
    accepted=st.none() | st.just(3),
    hung_at=st.sampled_from([(), (1, 0)]),
)
JUNK = st.tuples(st.sampled_from(["gen", "node/a", "x"]), JSON.filter(lambda value: value is not None))
OF_GENERATIONS = GENERATIONS.map(lambda value: ("gen", codec.to_json(value)))
OF_NODES = RECORDS.map(lambda value: (keys.node_key(value.uuid), codec.to_json(value)))
PUTS = st.one_of(OF_NODES, OF_NODES, OF_NODES, OF_GENERATIONS, OF_GENERATIONS, JUNK).map(lambda put: ("put", put))
OTHERS = st.one_of(
    st.tuples(st.sampled_from(["heard", "disconnected", "ended"]), st.sampled_from(NODES)),
    st.tuples(st.just("delete"), st.sampled_from(["gen", "node/a", "x"])),
    st.just(("take", None)),
)
CALLS = st.lists(st.one_of(PUTS, PUTS, PUTS, OTHERS), min_size=4, max_size=30)


def called(space: Keyspace, name: str, what: Any) -> list[Notice]:
    """The notices of one call; none where those so far are only taken."""
    if name == "put":
        key, value = what
        return space.put(key, Encoded.of(value))
    if name == "take":
        return []
    notices: list[Notice] = space.delete(what) if name == "delete" else getattr(space, name)(what, 0.0)
    return notices


def told(feed: Feed) -> Iterator[dict[str, object]]:
    """The messages that a reader gets now."""
    yield from wire.Lines(wire.MAX_SNAPSHOT).feed(feed.take())


class Picture:
    """What a node's machine knows by the events."""

    def __init__(self) -> None:
        self.mirror = keys.Mirror()
        self.mirror.connected("e", {}, 0.0)
        self.generation: records.Generation | None = None
        self.peers: dict[str, events.Peer] = {}

    def read(self, messages: Iterator[dict[str, object]]) -> None:
        for event in (event for message in messages for event in self.mirror.noticed(message, 0.0)):
            if isinstance(event, events.GenerationSeen):
                self.generation = event.generation
            elif isinstance(event, events.PeerSeen):
                self.peers[event.peer.record.uuid] = event.peer
            elif isinstance(event, events.PeerForgotten):
                del self.peers[event.node]


@given(CALLS)
def test_a_reader_of_all_notices_knows_what_a_snapshot_says(calls: list[tuple[str, Any]]) -> None:
    """Changes, taken together at any moments, lead to the picture with which a new connection begins."""
    space, feed, picture = Keyspace(), Feed(Held()), Picture()
    for name, what in [*(("heard", node) for node in NODES), *calls]:
        for notice in called(space, name, what):
            feed.add(notice)
        if name == "take":
            picture.read(told(feed))
    picture.read(told(feed))

    snapshot = json.loads(b"{%b}" % space.snapshot(0.0))
    fresh = keys.Mirror().connected("e", snapshot, 0.0)
    assert fresh.generation in {None, picture.generation}
    assert all(picture.peers[peer.record.uuid] == peer for peer in fresh.peers)
    values = {key: value for key, (_, value) in snapshot["entries"].items() if isinstance(value, dict)}
    assert json.dumps(picture.mirror._values, sort_keys=True) == json.dumps(values, sort_keys=True)


@pytest.mark.parametrize(
    ("former", "value"),
    [
        ({"x": 1}, {"x": True}),
        ({"x": 1}, {"x": 1.0}),
        ({"x": [1]}, {"x": [True]}),
        ({"x": [1, 1]}, {"x": [1]}),
        ({"x": [1]}, {"x": [1, 1]}),
        ({"x": [1, 2, 1]}, {"x": [1, 2, 1, 2, 1]}),
        ({"x": [1]}, {"x": []}),
        ({"x": [1]}, {"x": {}}),
        ({"x": 1, "y": 2}, {"y": 2}),
        ({"x": {"y": 1}}, {"x": {"y": True}}),
        ({"x": 1}, []),
        ([], {"x": 1}),
    ],
)
def test_a_change_leads_to_the_very_value(former: object, value: object) -> None:
    """As JSON, in which 1 and true are two values, and with arrays whose parts are alike."""
    space, feed, mirror = Keyspace(), Feed(Held()), keys.Mirror()
    for each in (former, value):
        for notice in space.put("x", Encoded.of(each)):
            feed.add(notice)
    for message in told(feed):
        assert list(mirror.noticed(message, 0.0)) == []

    assert json.dumps(mirror._values.get("x")) == json.dumps(value if isinstance(value, dict) else None)


def test_a_record_that_becomes_readable_again_is_whole() -> None:
    """What another version wrote is passed over, and the next change is not laid over the record before it."""
    picture, space, feed = Picture(), Keyspace(), Feed(Held())
    said = [
        {"uuid": "a", "name": "", "state": "ready"},
        {"uuid": "a", "name": "", "state": "unheard of", "generation": 3},
        {"uuid": "a", "name": "", "state": 5, "generation": 4},
        {"uuid": "a", "name": "", "state": "member", "generation": 4},
    ]
    for value in said:
        for notice in space.put("node/a", Encoded.of(value)):
            feed.add(notice)
    picture.read(told(feed))

    assert picture.peers["a"].record == records.NodeRecord("a", "", "member", generation=4)


def test_what_many_nodes_say_at_once_is_one_notice() -> None:
    """A wave of equal changes costs a gap for each node, and hardly a byte packed; their next change comes behind."""
    space, feed = Keyspace(), Feed(Held())
    nodes = [f"{number:032x}" for number in range(1000)]
    for state in ("ready", "member"):
        for node in nodes:
            space.heard(node, 0.0)
            said = {"uuid": node, "name": node, "state": state, **({"generation": 1} if state == "member" else {})}
            for notice in space.put(keys.node_key(node), Encoded.of(said)):
                feed.add(notice)
        data = feed.take()

    (notice,) = wire.Lines().feed(data)
    assert notice == {
        "event": "changed",
        "value": {"state": "member", "generation": 1},
        "gaps": [1] * len(nodes),
    }
    assert len(data) < 2.1 * len(nodes)
    assert len(wire.pack(data)) < 200


def test_equal_changes_of_one_node_are_two_notices() -> None:
    """The first value of an array is taken off, and then the next one: told as one change, it would stay."""
    picture, space, feed = Picture(), Keyspace(), Feed(Held())
    notices = [notice for node in ("a", "b") for notice in space.heard(node, 0.0)]
    for hung_at in ([1, 2], [2], []):
        for node in ("a", "b"):
            said = {"uuid": node, "name": "", "state": "member", "hung_at": hung_at}
            notices += space.put(keys.node_key(node), Encoded.of(said))
    for notice in notices:
        feed.add(notice)
    picture.read(told(feed))

    assert [picture.peers[node].record.hung_at for node in ("a", "b")] == [(), ()]


def test_two_waves_that_come_mixed_are_two_notices() -> None:
    """Nodes that stop at one time each say that they end their workers, and later that none is left."""
    space, feed, picture = Keyspace(), Feed(Held()), Picture()
    nodes = [f"{number:032x}" for number in range(1000)]
    notices = [notice for node in nodes for notice in space.heard(node, 0.0)]
    said = [(node, "member") for node in nodes]
    for place in range(len(nodes) + 10):
        said += [(node, "draining") for node in nodes[place : place + 1]]
        said += [(node, "stopped") for node in nodes[max(0, place - 10) : max(0, place - 9)]]
    for node, state in said:
        notices += space.put(keys.node_key(node), Encoded.of({"uuid": node, "name": "", "state": state}))
    for notice in notices:
        feed.add(notice)
    *_, draining, stopped = messages = list(told(feed))
    picture.read(iter(messages))

    assert (draining["value"], stopped["value"]) == ({"state": "draining"}, {"state": "stopped"})
    assert draining["gaps"] == stopped["gaps"] == [1] * len(nodes)
    assert {peer.record.state for peer in picture.peers.values()} == {"stopped"}


def test_one_member_of_a_thousand_costs_one() -> None:
    """A generation after a loss, or with a newcomer, does not repeat its members."""
    members = [{"uuid": f"{number:032x}", "name": str(number), "local_world_size": 8} for number in range(1000)]
    space, feed = Keyspace(), Feed(Held())
    space.put("gen", Encoded.of({"number": 1, "members": members}))
    for number, left in enumerate([[*members[:500], *members[501:]], members], 2):
        for notice in space.put("gen", Encoded.of({"number": number, "members": left})):
            feed.add(notice)

    lost, back = told(feed)
    assert lost["spliced"] == {"members": [500, 1, []]}
    assert back["spliced"] == {"members": [500, 0, [members[500]]]}


def test_what_a_feed_gathers_is_counted() -> None:
    """Bytes that wait are in the server's sum until they are taken."""
    held = Held()
    feed = Feed(held)
    feed.add({"event": "set", "key": "x", "version": 1, "value": 1})
    before = held.size
    data = feed.take()

    assert (before, held.size) == (len(data), 0)
