"""``python -m elastic_infra.launcher.driver``: does what the job's config asks of it, until a signal ends it."""

from __future__ import annotations

import argparse
import os
import signal
import time
from collections.abc import Iterator, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final, Protocol

from ..event_log import utc
from ..protocol.records import Generation
from .api_server import Call, api, listed, path_of
from .avoidance import INSTANCE, LABEL, cluster_node, free_name, holder, is_of, left_out
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
    """Look, decide, tell and avoid until a signal ends the process."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(128 + signal.SIGTERM))  # PID 1 ignores it by default
    given = _parser().parse_args()
    call = api(os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"], Path(given.credentials))
    capacity = Capacity(call, given) if given.sizes else None
    followers: list[Follower] = [Teller(call, given)] if given.events else []
    followers += [Avoider(call, given)] if given.avoid else []
    token = os.environ.get("ELASTIC_INFRA_STORE_TOKEN", "")
    records = Records(int(given.port), given.run, token) if followers else None
    store = Lines("store")
    while True:
        if capacity is not None:
            capacity.look()
        pause = capacity.pause if capacity is not None else PAUSE_SECONDS
        if records is None:
            time.sleep(pause)
            continue
        follow(records, followers, pause)
        store.say(records.trouble)


def follow(records: Records, followers: Sequence[Follower], seconds: float) -> None:
    """Have each follower do what is left, then for so many seconds what the records ask for."""
    for follower in followers:
        follower.work()
    for record in records.within(seconds):
        for follower in followers:
            follower.take(record)
            follower.work()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m elastic_infra.launcher.driver", description="A job's driver.")
    for option in ("--kind", "--namespace", "--name", "--credentials"):
        parser.add_argument(option, required=True)
    for option in ("--selector", "--sizes", "--probe-seconds"):
        parser.add_argument(option, help="for growth into idle capacity")
    for option in ("--run", "--port"):
        parser.add_argument(option, help="of the store, for --events and --avoid")
    parser.add_argument("--events", action="store_true", help="make Kubernetes Events")
    parser.add_argument("--avoid", action="store_true", help="avoid cluster nodes that the launchers leave out")
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


class Follower(Protocol):
    """Does something about the records of the store."""

    def take(self, record: Generation) -> None:
        """Note what a record asks for."""

    def work(self) -> None:
        """Do what is to be done and was not yet, and say what is in the way."""


class Teller:
    """Tells of the job's end and of its failures in Kubernetes Events."""

    def __init__(self, call: Call, given: argparse.Namespace) -> None:
        self._call, self._kind, self._run = call, given.kind, given.run
        self._path = path_of(given.kind, given.namespace, given.name)
        self._events = f"/api/v1/namespaces/{given.namespace}/events"
        self._untold: dict[str, tuple[Note, float]] = {}
        self._lines = Lines("events")

    def take(self, record: Generation) -> None:
        """Note what a record tells."""
        for note in notes(record):
            self._untold.setdefault(note.key, (note, time.time()))
        for key in list(self._untold)[:-MOST_NOTES]:
            del self._untold[key]

    def work(self) -> None:
        """Tell what is untold."""
        try:
            workload = self._call("GET", self._path) if self._untold else {}
            for key, (note, at) in list(self._untold.items()):
                self._post(event(note, self._kind, workload, self._run, at))
                del self._untold[key]
        except FileNotFoundError:
            self._untold.clear()  # the job is gone, and one of its name would be another
        except (OSError, ValueError, HTTPException) as error:
            self._lines.say(f"cannot tell of the job: {error!r}")

    def _post(self, content: dict[str, object]) -> None:
        try:
            self._call("POST", self._events, content)
        except FileExistsError:
            return  # told before
        self._lines.say(f"{content['reason']}: {content['message']}")


class Avoider:
    """Keeps the job's pods away from cluster nodes whose pod was left out, until the job ends."""

    def __init__(self, call: Call, given: argparse.Namespace) -> None:
        self._call, self._kind, self._name = call, given.kind, given.name
        self._path = path_of(given.kind, given.namespace, given.name)
        self._pods = f"/api/v1/namespaces/{given.namespace}/pods"
        self._last: Generation | None = None
        self._bad: dict[str, str] = {}
        """Nodes that were left out, and when, as the API server writes it."""
        self._lines = Lines("avoid")

    def take(self, record: Generation) -> None:
        """Note a node that a record leaves out."""
        if node := left_out(self._last, record):
            self._bad[node] = f"{utc(time.time())[:19]}Z"
        self._last = record

    def work(self) -> None:
        """Have pods hold what is bad; after the end of the job they go."""
        try:
            for node, at in list(self._bad.items()):
                self._lines.say(self._avoid(node, at))
                del self._bad[node]
            if self._last is not None and self._last.phase == "final":
                self._release()
        except (OSError, ValueError, HTTPException) as error:
            self._lines.say(f"cannot avoid a cluster node: {error!r}")

    def _avoid(self, node: str, at: str) -> str:
        own = os.uname().nodename
        pods = [pod for pod in self._listed(INSTANCE) if is_of(pod, node) or is_of(pod, own)]
        place = cluster_node(pods, node, at)
        name = free_name(self._name, self._listed(LABEL), place) if place else ""
        if not name:
            return f"{node}: nothing more is avoided ({place or 'its cluster node is not known'})"
        driver = next((pod for pod in pods if is_of(pod, own)), None)
        if driver is None:
            return f"{node}: nothing is avoided, because the driver does not find its own pod {own}"
        workload = self._call("GET", self._path)
        self._call("POST", self._pods, holder(name, place, self._kind, workload, driver))
        return f"{node} was left out: {name} keeps the job's pods away from {place}"

    def _release(self) -> None:
        for pod in list(self._listed(LABEL)):
            self._call("DELETE", f"{self._pods}/{pod['metadata']['name']}")
        self._last = None

    def _listed(self, label: str) -> Iterator[Any]:
        return listed(self._call, self._pods, labelSelector=f"{label}={self._name}")


if __name__ == "__main__":
    raise SystemExit(main())
