"""JSON lines with bounds, for both ends of the store's connection: framing only."""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Iterable, Iterator
from typing import Final

MAX_LINE: Final = 3 << 19
"""Bytes of one message: the record of a generation of ten thousand nodes, the most of a job, with the longest names."""

MAX_SNAPSHOT: Final = 64 << 20
"""Bytes of one message from the store to a node, which may hold all keys of a job."""

MAX_DEPTH: Final = 32
"""Arrays and objects in one another; a record has four. Python reads deeper values than it can write inside others."""

BEAT_SECONDS: Final = 1.0
"""How often a node beats: five may fail before it counts as silent."""

SILENCE_SECONDS: Final = 4.0
"""A node whose last beat is older is silent. With the beat's interval and its travel a lost node is seen within 5 s."""

CALL_SECONDS: Final = 3.0
"""Deadline of every call: a call without an answer by then is lost, and the connection with it."""
BEAT: Final = b'{"op":"beat"}\n'
"""A node's most frequent message; the store answers with the same bytes, in the order of the beats."""

FAREWELL: Final = b'\n{"op":"farewell"}\n'
"""A supervisor's last message on its agent's connection. A newline comes first, since the agent may have died in the
middle of a line; an empty line has no meaning."""
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"))


class WireError(ValueError):
    """The bytes that arrived are no message of this protocol."""


def encode(message: dict[str, object]) -> bytes:
    """The message as one line of JSON."""
    return to_json(message) + b"\n"


def pack(data: bytes) -> str:
    """Many lines or a large object as a short text: a job's records differ in a few bytes."""
    return base64.b64encode(zlib.compress(data, 1)).decode()


def unpack(text: str) -> bytes:
    """The bytes that were packed.

    Raises:
        WireError: the text was not packed, or from more than ``MAX_SNAPSHOT`` bytes.
    """
    expander = zlib.decompressobj()
    try:
        data = expander.decompress(base64.b64decode(text, validate=True), MAX_SNAPSHOT)
    except (ValueError, zlib.error) as error:
        message = "a message holds what was not packed"
        raise WireError(message) from error
    if expander.eof:
        return data
    message = f"a message unpacks to more than {MAX_SNAPSHOT} bytes, or is cut"
    raise WireError(message)


def to_json(value: object) -> bytes:
    """A value as JSON without spaces."""
    return _ENCODER.encode(value).encode()


class Lines:
    """Splits a stream of bytes into messages.

    Args:
        longest: bytes of a message, MAX_LINE by default.
    """

    def __init__(self, longest: int = MAX_LINE) -> None:
        self.longest = longest
        self._buffer = bytearray()

    def __len__(self) -> int:
        """Bytes of the message that is not complete yet."""
        return len(self._buffer)

    @property
    def rest(self) -> bytes:
        """The bytes behind the last line that was taken."""
        return bytes(self._buffer)

    def feed(self, data: bytes) -> Iterator[dict[str, object]]:
        """The messages completed by ``data``.

        Raises:
            WireError: a line is too long, not JSON, not an object, or cannot be encoded again.
        """
        unread = len(self._buffer)
        self._buffer += data
        while (end := self._buffer.find(b"\n", unread)) >= 0:
            line = bytes(self._buffer[:end])
            unread = 0
            del self._buffer[: end + 1]
            if line:
                yield self._decode(line)
        self._check(self._buffer)

    def _decode(self, line: bytes) -> dict[str, object]:
        self._check(line)
        return decode(line)

    def _check(self, line: bytes | bytearray) -> None:
        if len(line) > self.longest:
            message = f"a message is longer than {self.longest} bytes"
            raise WireError(message)


def decode(line: bytes) -> dict[str, object]:
    """The message of one line; it can be encoded again, alone or inside another message.

    Raises:
        WireError: the line is not JSON in UTF-8, not an object, or cannot be encoded again.
    """
    try:
        value = json.loads(line.decode(), parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError) as error:
        message = "a message is not JSON"
        raise WireError(message) from error
    if not isinstance(value, dict):
        message = "a message is not an object"
        raise WireError(message)
    if line.count(b"[") + line.count(b"{") > MAX_DEPTH and not _is_shallow(value):
        message = f"a message is deeper than {MAX_DEPTH}"
        raise WireError(message)
    if b"\\u" in line and not _is_text(value):
        message = "a message holds half a character (a lone surrogate)"
        raise WireError(message)
    return value


def _finite(text: str) -> float:
    """A number; JSON has no NaN and no infinity, and Python would write one for 1e999."""
    number = float(text)
    if math.isfinite(number):
        return number
    message = "not a finite number"
    raise WireError(message)


def _is_shallow(value: object) -> bool:
    level: list[object] = [value]
    for _ in range(MAX_DEPTH):
        level = [child for parent in level for child in children(parent)]
        if not level:
            return True
    return False


def children(value: object) -> Iterable[object]:
    """The values inside a JSON value, one level deep."""
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _is_text(value: dict[str, object]) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True
