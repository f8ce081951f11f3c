"""``python -m elastic_infra.launcher.driver``: does what the job's config asks of it, until a signal ends it."""

from __future__ import annotations

import argparse
import os
import signal
import time
from http.client import HTTPException
from pathlib import Path
from typing import Final

from .api_server import Call, api, path_of
from .capacity import look, sizes
from .decision import Limits, Memory
from .events import Note, event, notes
from .records import Records

LOOKS: Final = 6
"""Looks at the cluster in the time of a probe."""
PAUSE_SECONDS: Final = 5.0
"""Between two tries to tell an event, where nothing else gives the pace."""
MOST_NOTES: Final = 100
"""Notes that are kept while the API server does not take them; the oldest go first."""


def main() -> int:
    """Look, decide and tell until a signal ends the process."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(128 + signal.SIGTERM))  # PID 1 ignores it by default
    given = _parser().parse_args()
    call = api(os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"], Path(given.credentials))
    capacity = Capacity(call, given) if given.sizes else None
    teller = Teller(call, given) if given.run else None
    while True:
        if capacity is not None:
            capacity.look()
        pause = capacity.pause if capacity is not None else PAUSE_SECONDS
        if teller is not None:
            teller.tell(pause)
        else:
            time.sleep(pause)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m elastic_infra.launcher.driver", description="A job's driver.")
    for option in ("--kind", "--namespace", "--name", "--credentials"):
        parser.add_argument(option, required=True)
    for option in ("--selector", "--sizes", "--probe-seconds"):
        parser.add_argument(option, help="for growth into idle capacity")
    for option in ("--run", "--port"):
        parser.add_argument(option, help="of the store, for Kubernetes Events")
    return parser


class Lines:
    """Writes a line where it differs from the last one."""

    def __init__(self, subject: str) -> None:
        self._subject, self._said = subject, ""

    def say(self, text: str) -> None:
        """Write the line, behind its subject."""
        if text and text != self._said:
            print(f"{self._subject}: {text}", flush=True)
        self._said = text


class Capacity:
    """Grows the job into idle capacity."""

    def __init__(self, call: Call, given: argparse.Namespace) -> None:
        self._call, self._selector = call, given.selector
        self._job = (given.kind, given.namespace, given.name)
        self._limits = Limits(sizes(given.sizes), float(given.probe_seconds))
        self._memory: Memory | None = None
        self._lines = Lines("capacity")

    @property
    def pause(self) -> float:
        """Seconds between two looks."""
        return max(1.0, self._limits.probe / LOOKS)

    def look(self) -> None:
        """One look, and what follows from it."""
        try:
            self._memory, text = look(self._call, self._job, self._selector, self._limits, self._memory)
        except (OSError, ValueError, HTTPException) as error:
            text = f"cannot see or change the job: {error!r}"
        self._lines.say(text)


class Teller:
    """Tells of the job's end and of its failures in Kubernetes Events."""

    def __init__(self, call: Call, given: argparse.Namespace) -> None:
        self._call, self._kind, self._run = call, given.kind, given.run
        self._path = path_of(given.kind, given.namespace, given.name)
        self._events = f"/api/v1/namespaces/{given.namespace}/events"
        self._records = Records(int(given.port), given.run, os.environ.get("ELASTIC_INFRA_STORE_TOKEN", ""))
        self._untold: dict[str, tuple[Note, float]] = {}
        self._lines = Lines("events")

    def tell(self, seconds: float) -> None:
        """Tell what could not be told so far, then for so many seconds what the records say."""
        trouble = self._send()
        for record in self._records.within(seconds):
            for note in notes(record):
                self._untold.setdefault(note.key, (note, time.time()))
            trouble = self._send()
        self._lines.say(trouble or self._records.trouble)

    def _send(self) -> str:
        """Send what is untold; returns what is in the way."""
        for key in list(self._untold)[:-MOST_NOTES]:
            del self._untold[key]
        try:
            workload = self._call("GET", self._path) if self._untold else {}
            for key, (note, at) in list(self._untold.items()):
                self._post(event(note, self._kind, workload, self._run, at))
                del self._untold[key]
        except FileNotFoundError:
            self._untold.clear()  # the job is gone, and one of its name would be another
        except (OSError, ValueError, HTTPException) as error:
            return f"cannot tell of the job: {error!r}"
        return ""

    def _post(self, content: dict[str, object]) -> None:
        try:
            self._call("POST", self._events, content)
        except FileExistsError:
            return  # told before
        print(f"events: {content['reason']}: {content['message']}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
