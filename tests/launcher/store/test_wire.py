"""Lines of JSON with bounds: what is read, and what is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_infra.launcher.store import wire

TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(st.dictionaries(TEXT, JSON, max_size=3), max_size=4), st.integers(1, 40))
def test_messages_arrive_as_they_were_sent(messages: list[dict[str, object]], size: int) -> None:
    """The pieces in which the bytes come do not matter."""
    data = b"".join(map(wire.encode, messages))
    lines = wire.Lines()
    received = [message for at in range(0, len(data), size) for message in lines.feed(data[at : at + size])]

    assert received == messages


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"{", "not JSON"),
        (b"[]", "not an object"),
        (b'{"a": ' + b"[" * 900 + b"]" * 900 + b"}", "deeper"),
        (b'{"a": ' + b"[" * 100_000, "not JSON"),
        (b'{"a": "\\ud800"}', "half a character"),
        (b'{"a": "\xed\xa0\x80"}', "not JSON"),
        (json.dumps({"a": "b"}).encode("utf-16"), "not JSON"),
        (b'{"a": NaN}', "not JSON"),
        (b'{"a": 1e999}', "not JSON"),
        (b'{"a": ' + b"9" * 100_000 + b"}", "not JSON"),
    ],
    ids=[
        "cut",
        "list",
        "depth that Python reads",
        "depth",
        "half a character, escaped",
        "half a character, raw",
        "another encoding",
        "no number",
        "a number that becomes infinite",
        "a number of 100,000 digits",
    ],
)
def test_what_cannot_be_sent_on_is_refused(line: bytes, why: str) -> None:
    """A message that was taken can be encoded again, for every peer."""
    with pytest.raises(wire.WireError, match=why):
        list(wire.Lines().feed(line + b"\n"))


@given(st.binary(max_size=80).map(lambda data: b'{"a":' + data + b"}\n"))
def test_what_is_taken_can_be_encoded(data: bytes) -> None:
    """Every byte string is refused, or becomes messages that can be sent."""
    try:
        messages = list(wire.Lines().feed(data))
    except wire.WireError:
        return
    for message in messages:
        assert list(wire.Lines().feed(wire.encode(message))) == [message]


def test_a_line_has_a_bound() -> None:
    """With its end in sight or not; the bound before hello is smaller."""
    with pytest.raises(wire.WireError, match="longer"):
        list(wire.Lines().feed(b"x" * (wire.MAX_LINE + 1)))
    with pytest.raises(wire.WireError, match="longer"):
        list(wire.Lines(longest=10).feed(b'{"a": "bcdefgh"}\n'))


@given(st.binary(max_size=3000))
def test_what_was_packed_is_unpacked(data: bytes) -> None:
    """Whatever the bytes are, unpacking gives the same ones."""
    assert wire.unpack(wire.pack(data)) == data


@pytest.mark.parametrize("text", ["", "x", "eA==", "\u00e9", wire.pack(b"x" * 100)[:-8]])
def test_what_was_not_packed_is_refused(text: str) -> None:
    """Another text is an error, and so is a packed one that was cut."""
    with pytest.raises(wire.WireError):
        wire.unpack(text)


def test_what_unpacks_beyond_the_bound_is_refused() -> None:
    """A short text may stand for any number of bytes."""
    with pytest.raises(wire.WireError, match="more than"):
        wire.unpack(wire.pack(b"x" * (wire.MAX_SNAPSHOT + 1)))
