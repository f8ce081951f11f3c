"""The store's keys and notices as events, without a store."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from elastic_infra.launcher import codec
from elastic_infra.launcher.protocol import events, records
from elastic_infra.launcher.store import keys

RECORD = records.NodeRecord("a", "", "ready")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def test_a_peer_is_its_record_and_its_presence() -> None:
    """Either may come first; a presence without a record is no peer yet."""
    mirror = keys.Mirror()
    mirror.connected("e", {}, 0.0)

    assert list(mirror.noticed({"event": "presence", "node": "a", "presence": "silent"}, 1.0)) == []
    (seen,) = mirror.noticed({"event": "set", "key": "node/a", "version": 1, "value": codec.to_json(RECORD)}, 2.0)
    assert seen == events.PeerSeen(events.Peer(RECORD, "silent", 1.0))
    assert list(mirror.noticed({"event": "deleted", "key": "node/a"}, 3.0)) == [events.PeerForgotten("a")]


@given(key=st.sampled_from(["gen", "node/a", "gen/1/master", "x"]), value=JSON)
def test_what_is_not_ours_is_left_out(key: str, value: object) -> None:
    """A value that cannot be read is no event and no error."""
    mirror = keys.Mirror()
    picture = mirror.connected("e", {"entries": {key: [1, value]}}, 0.0)

    assert (picture.generation, picture.peers, picture.master) == (None, (), None)
    assert list(mirror.noticed({"event": "set", "key": key, "version": 1, "value": value}, 1.0)) == []
