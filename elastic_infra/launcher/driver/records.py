"""The records on which the nodes agree, as the store tells them that is in the same pod."""

from __future__ import annotations

import select
import time
from collections.abc import Iterable, Iterator
from typing import Final

from ..protocol import events
from ..protocol.records import Generation
from ..store import client, wire

RETRY_SECONDS: Final = 1.0


class Records:
    """A reader of one run's records, which takes no part in the run."""

    def __init__(self, port: int, run: str, token: str) -> None:
        self._target = client.Target("127.0.0.1", port, run, "", token)
        self._session: client.Session | None = None
        self.trouble = ""
        """Why the store cannot be read; empty where it can."""

    def within(self, seconds: float) -> Iterator[Generation]:
        """Every record that comes within so many seconds; after a new connection the present one comes first."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            try:
                found = self._read(left)
            except (OSError, UnicodeError, wire.WireError, client.RefusalError, client.LostError) as error:
                self.close()
                self.trouble = f"cannot read the store: {client.why(error)}"
                time.sleep(min(left, RETRY_SECONDS))
                continue
            self.trouble = ""
            yield from found

    def close(self) -> None:
        """Close the connection; the next read makes another."""
        if self._session is not None:
            self._session.socket.close()
        self._session = None

    def _read(self, seconds: float) -> list[Generation]:
        if self._session is None:
            self._session, first = client.connect(self._target, time.monotonic)
            return _records(first)
        if not select.select([self._session.socket], [], [], seconds)[0]:
            return []
        return _records(self._session.receive())


def _records(notifications: Iterable[events.Event | client.Acknowledged]) -> list[Generation]:
    seen = (each for each in notifications if isinstance(each, events.StoreConnected | events.GenerationSeen))
    return [each.generation for each in seen if each.generation is not None]
