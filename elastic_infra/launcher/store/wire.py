"""JSON lines with bounds, for both ends of the store's connection. Framing only, no meaning."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

MAX_LINE: Final = 1 << 20
"""Bytes of one message: the record of a generation of a thousand nodes is a tenth of it."""

MAX_BACKLOG: Final = 64 << 20
"""Bytes that a peer may leave unread before its connection is dropped."""

BEAT_SECONDS: Final = 1.0
"""How often a node beats: five may fail before it counts as silent."""

SILENCE_SECONDS: Final = 4.0
"""A node whose last beat is older is silent. With the beat and the way there a lost node is seen within 5 s."""

CALL_SECONDS: Final = 3.0
"""A call that is not answered by then is lost, and the connection with it: every call has this deadline."""


class WireError(ValueError):
    """What arrived is no message of this protocol."""


def encode(message: dict[str, object]) -> bytes:
    """One line."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


class Lines:
    """Bytes in, messages out."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[dict[str, object]]:
        """The messages completed by ``data``.

        Raises:
            WireError: a line is too long, not JSON or not an object.
        """
        self._buffer += data
        start = 0
        while (end := self._buffer.find(b"\n", start)) >= 0:
            line = bytes(self._buffer[start:end])
            start = end + 1
            yield _decode(line)
        del self._buffer[:start]
        if len(self._buffer) > MAX_LINE:
            message = f"a message is longer than {MAX_LINE} bytes"
            raise WireError(message)


def _decode(line: bytes) -> dict[str, object]:
    if len(line) > MAX_LINE:
        message = f"a message is longer than {MAX_LINE} bytes"
        raise WireError(message)
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        message = "a message is not JSON"
        raise WireError(message) from error
    if not isinstance(value, dict):
        message = "a message is not an object"
        raise WireError(message)
    return value
