"""One job's keys and nodes, without a server around them."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from elastic_infra.launcher.store import server
from elastic_infra.launcher.store.keyspace import Encoded, Keyspace, Notice


def test_silence_is_no_end() -> None:
    """A node that only stopped beating is silent, speaks again and is live; one that ended is forgotten at last."""
    space = Keyspace()
    space.put("node/a", Encoded.of({}))
    space.heard("a", 0.0)

    assert space.grow_silent(3.9, 4.0) == []
    assert states(space.grow_silent(4.0, 4.0)) == ["silent"]
    assert states(space.heard("a", 5.0)) == ["live"]
    assert states(space.disconnected("a", 6.0)) == ["disconnected"]
    assert space.forget(86_405.9, server.KEEP_SECONDS) == []
    assert states(space.ended("a", 86_406.0)) == ["ended"]
    assert space.heard("a", 86_407.0) == []
    assert space.forget(87_005.9, server.KEEP_SECONDS) == []
    assert space.forget(87_006.0, server.KEEP_SECONDS) == [{"event": "deleted", "key": "node/a"}]


def states(notices: list[Notice]) -> list[object]:
    """What the notices say of a node."""
    return [notice["presence"] for notice in notices]


def test_arrivals_and_disconnections_are_counted() -> None:
    """Whether a namesake came after a node had gone is told by the store's count, and a return changes no arrival."""
    space = Keyspace()
    for node in ("a", "b"):
        space.heard(node, 0.0)
    space.disconnected("a", 1.0)
    space.heard("c", 1.0)
    counts = {node: (presence.arrived, presence.departed) for node, presence in space.presences.items()}
    space.heard("a", 2.0)

    assert counts == {"a": (1, 3), "b": (2, 0), "c": (4, 0)}
    assert space.presences["a"].arrived == 1


def test_silence_goes_on_when_the_connection_ends_too() -> None:
    """How long a node has been away counts from its silence."""
    space = Keyspace()
    space.heard("a", 0.0)
    space.grow_silent(4.0, 4.0)
    space.disconnected("a", 100.0)

    told = json.loads(b"{%b}" % space.snapshot(130.0))
    assert (told["presences"], told["clock"]) == ({"a": ["disconnected", 4.0, 1, 2]}, 130.0)


@given(st.lists(st.tuples(st.sampled_from(["x", "y"]), st.recursive(st.integers() | st.text(), st.lists)), max_size=9))
def test_a_value_grows_the_memory_as_announced(puts: list[tuple[str, object]]) -> None:
    """The size that the server checks is the size by which the memory then grows, and a snapshot has the value."""
    space = Keyspace()
    for key, value in puts:
        encoded = Encoded.of(value)
        expected = space.memory + space.growth(key, encoded)
        space.put(key, encoded)
        snapshot = json.loads(b"{%b}" % space.snapshot(0.0))
        assert (space.memory, snapshot["entries"][key]) == (expected, list(space.entries[key]))
    for key in list(space.entries):
        space.delete(key)
    assert space.memory == 0


@given(st.lists(st.tuples(st.sampled_from(["x", "y"]), st.integers(0, 4), st.booleans()), max_size=30))
def test_versions_never_repeat(calls: list[tuple[str, int, bool]]) -> None:
    """A version names one value of a key for ever, deletions included."""
    space = Keyspace()
    seen: set[tuple[str, int]] = set()
    for key, version, deletes in calls:
        at = space.entries.get(key, (0, None))[0] if version == 0 else version
        succeeded, notices = space.compare_and_set(key, Encoded.of(None if deletes else {}), at)
        for notice in notices:
            if notice["event"] == "set":
                name = (key, int(str(notice["version"])))
                assert name not in seen
                seen.add(name)
        assert succeeded or not notices
