"""One job's keys and nodes, without a server around them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from elastic_infra.launcher.store.keyspace import Keyspace


def test_silence_is_no_end() -> None:
    """A node that only stopped beating is silent, speaks again and is live; a closed one is forgotten at last."""
    space = Keyspace()
    space.put("node/a", {})
    space.heard("a", 0.0)

    assert space.grow_silent(3.9, 4.0) == []
    assert space.grow_silent(4.0, 4.0) == [{"event": "presence", "node": "a", "presence": "silent"}]
    assert space.heard("a", 5.0) == [{"event": "presence", "node": "a", "presence": "live"}]
    assert space.closed("a", 6.0) == [{"event": "presence", "node": "a", "presence": "closed"}]
    assert space.forget(605.9, 600.0) == []
    assert space.forget(606.0, 600.0) == [{"event": "deleted", "key": "node/a"}]


@given(st.lists(st.tuples(st.sampled_from(["x", "y"]), st.integers(0, 4), st.booleans()), max_size=30))
def test_versions_never_repeat(calls: list[tuple[str, int, bool]]) -> None:
    """A version names one value of a key for ever, deletions included."""
    space = Keyspace()
    seen: set[tuple[str, int]] = set()
    for key, version, deletes in calls:
        at = space.entries.get(key, (0, None))[0] if version == 0 else version
        succeeded, notices = space.compare_and_set(key, None if deletes else {}, at)
        for notice in notices:
            if notice["event"] == "set":
                name = (key, int(str(notice["version"])))
                assert name not in seen
                seen.add(name)
        assert succeeded or not notices
