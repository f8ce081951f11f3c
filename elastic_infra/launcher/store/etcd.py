"""The link to an etcd server, for the backend ``etcd-v2``: the same protocol over its v2 HTTP API.

Keys live under ``/elastic_infra/<job>``. A beat is a key with a time to live, refreshed without waking the watchers;
etcd cannot see a process die, so a lost node is silent first. A compare-and-set is a PUT with ``prevIndex``
(https://etcd.io/docs/v2.3/api/).
"""

from __future__ import annotations

import http.client
import json
import secrets
import select
import threading
import time
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Final, cast

from ..protocol import actions, events, records
from . import keys, wire
from .client import LostError, Target
from .link import RETRY_SECONDS, Acknowledged, Holding, Link, Order, Unreachable, poke

BEAT_TTL_SECONDS: Final = 4
"""A node is silent this long after its last beat, as with a store of ours."""
WATCH_SECONDS: Final = 20.0
_BEAT: Final = "beat/"
_EPOCH: Final = "incarnation"
_FAILED: Final = {100, 101, 105, 401}
"""Key not found, compare failed, key exists, and a watch that begins before what etcd remembers."""

Entries = dict[str, tuple[int, str]]


class EtcdLink(Link):
    """Beats, carries orders out, and reads the job's keys whenever the watcher saw one change."""

    def __init__(self, target: Target, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._target = target
        self._clock = clock
        self._mirror = keys.Mirror()
        self._seen: Entries = {}

    def _run(self) -> None:
        attempt = 0
        while not self._closing:
            connected = False
            try:
                client = _Client(self._target)
                self._introduce(client)
                connected, attempt = True, 0
                self._serve(client)
            except (OSError, http.client.HTTPException, LostError, ValueError) as error:
                lost = (events.StoreLost(fresh=False),) if connected else ()
                refused = isinstance(error, ConnectionRefusedError)
                self._tell(*lost, Unreachable(str(error) or type(error).__name__, refused))
                select.select([self._wake_read], [], [], RETRY_SECONDS[min(attempt, len(RETRY_SECONDS) - 1)])
                self._take_orders()
                attempt += 1

    def _introduce(self, client: _Client) -> None:
        client.put(_EPOCH, secrets.token_hex(8), prevExist="false")
        sent_at = self._clock()
        self._beat(client, first=True)
        index, self._seen = client.read()
        self._take_orders()
        picture = self._mirror.connected(self._seen[_EPOCH][1], _snapshot(self._seen), self._clock())
        self._tell(Holding(None, client.address()), Acknowledged(sent_at), picture)
        self._watch_from = index + 1

    def _serve(self, client: _Client) -> None:
        watcher = _Watcher(self._target, self._watch_from, self._wake_write)
        watcher.start()
        next_beat = self._clock() + wire.BEAT_SECONDS
        try:
            while not self._closing:
                select.select([self._wake_read], [], [], max(0.0, next_beat - self._clock()))
                for order in self._take_orders():
                    self._carry_out(client, order)
                if self._clock() >= next_beat:
                    next_beat = self._clock() + wire.BEAT_SECONDS
                    sent_at = self._clock()
                    self._beat(client, first=False)
                    self._tell(Acknowledged(sent_at))
                self._read(client)
            for order in self._take_orders():
                self._carry_out(client, order)
            client.delete(_BEAT + self._target.node)
        finally:
            watcher.stop()

    def _beat(self, client: _Client, *, first: bool) -> None:
        """Refresh the beat; a value is written only where there is none, for that wakes every watcher."""
        key, ttl = _BEAT + self._target.node, str(BEAT_TTL_SECONDS)
        if first or not client.put(key, None, ttl=ttl, refresh="true", prevExist="true"):
            client.put(key, "", ttl=ttl)

    def _carry_out(self, client: _Client, order: Order) -> None:
        if isinstance(order, actions.Publish):
            client.put(keys.node_key(order.record.uuid), _json(order.record))
        elif isinstance(order, actions.PublishMaster):
            client.put(keys.master_key(order.master.generation).replace("gen/", "generation/"), _json(order.master))
            client.delete(f"generation/{order.master.generation - 2}/master")
        else:
            succeeded = self._compare_and_set(client, order)
            self._read(client)
            self._tell(events.CompareAndSetDone(succeeded))

    def _compare_and_set(self, client: _Client, order: actions.CompareAndSet) -> bool:
        if order.generation is None:
            return client.delete(keys.GENERATION, prevIndex=str(order.version))
        if order.version == 0:
            return client.put(keys.GENERATION, _json(order.generation), prevExist="false")
        return client.put(keys.GENERATION, _json(order.generation), prevIndex=str(order.version))

    def _read(self, client: _Client) -> None:
        """Tell what changed since the last look; the generation last, as its peers were before it."""
        _, entries = client.read()
        if entries.get(_EPOCH) != self._seen.get(_EPOCH):
            message = "etcd lost its data"
            raise LostError(message, by_peer=False)
        before, after = _snapshot(self._seen), _snapshot(entries)
        for notice in _changes(before, after):
            self._tell(*self._mirror.noticed(notice, self._clock()))
        self._seen = entries


class _Client:
    """One kept connection; every call has its deadline."""

    def __init__(self, target: Target, timeout: float = wire.CALL_SECONDS) -> None:
        self._connection = http.client.HTTPConnection(target.host, target.port, timeout=timeout)
        self._root = "/v2/keys/elastic_infra/" + urllib.parse.quote(target.job, safe="")

    def address(self) -> str:
        """This node's own address."""
        return str(self._connection.sock.getsockname()[0]) if self._connection.sock else ""

    def put(self, key: str, value: str | None, **conditions: str) -> bool:
        """Set a key; False where a condition does not hold."""
        form = {**({} if value is None else {"value": value}), **conditions}
        return self._call("PUT", key, urllib.parse.urlencode(form))[1] is not None

    def delete(self, key: str, **conditions: str) -> bool:
        """Delete a key; False where it is not there or a condition does not hold."""
        return self._call("DELETE", key + "?" + urllib.parse.urlencode(conditions))[1] is not None

    def read(self) -> tuple[int, Entries]:
        """The index of etcd, and every key of the job with version and text."""
        index, answer = self._call("GET", "?recursive=true")
        entries: Entries = {}
        if answer is not None:
            _collect(cast("Mapping[str, object]", answer["node"]), len(self._root) - len("/v2/keys") + 1, entries)
        return index, entries

    def wait(self, index: int) -> int:
        """Wait for a change at or after ``index``; the index to go on from."""
        _, answer = self._call("GET", f"?recursive=true&wait=true&waitIndex={index}")
        if answer is None:
            return self.read()[0] + 1  # too old: etcd keeps a thousand changes
        node = cast("Mapping[str, object]", answer["node"])
        return int(str(node["modifiedIndex"])) + 1

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def _call(self, method: str, key: str, body: str | None = None) -> tuple[int, Mapping[str, object] | None]:
        headers = {"Content-Type": "application/x-www-form-urlencoded"} if body else {}
        separator = "" if key.startswith("?") else "/"
        self._connection.request(method, self._root + separator + key, body, headers)
        response = self._connection.getresponse()
        text = response.read()
        index = int(response.getheader("X-Etcd-Index") or 0)
        if response.status == http.client.NOT_FOUND and not text.startswith(b"{"):
            message = "it has no v2 API: start etcd with --enable-v2"
            raise LostError(message, by_peer=False)
        answer = json.loads(text)
        if "errorCode" not in answer:
            return index, answer
        if answer["errorCode"] in _FAILED:
            return index, None
        message = f"etcd answers {answer.get('message')}"
        raise LostError(message, by_peer=False)


class _Watcher(threading.Thread):
    """Waits for the next change and wakes the link."""

    def __init__(self, target: Target, index: int, wake: int) -> None:
        super().__init__(name="etcd-watch", daemon=True)
        self._target = target
        self._index = index
        self._wake = wake
        self._stopped = threading.Event()

    def run(self) -> None:
        """Until stopped; trouble is the link's to find, its next beat does."""
        while not self._stopped.is_set():
            client = _Client(self._target, WATCH_SECONDS)
            try:
                while not self._stopped.is_set():
                    self._index = client.wait(self._index)
                    if not self._stopped.is_set():
                        poke(self._wake)
            except (OSError, http.client.HTTPException, LostError, ValueError):
                self._stopped.wait(RETRY_SECONDS[-1])
            finally:
                client.close()

    def stop(self) -> None:
        """Let it end with its current wait."""
        self._stopped.set()


def _json(record: records.Generation | records.NodeRecord | records.Master) -> str:
    return json.dumps(records.to_json(record), separators=(",", ":"))


def _collect(node: Mapping[str, object], prefix: int, entries: Entries) -> None:
    for child in cast("list[Mapping[str, object]]", node.get("nodes", [])):
        if child.get("dir"):
            _collect(child, prefix, entries)
        else:
            entries[str(child["key"])[prefix:]] = (int(str(child["modifiedIndex"])), str(child.get("value", "")))


def _snapshot(entries: Entries) -> dict[str, dict[str, list[object]]]:
    """The picture a store of ours would give."""
    found: dict[str, list[object]] = {}
    for key, (version, text) in entries.items():
        if not key.startswith(_BEAT) and key != _EPOCH:
            found[key.replace("generation/", "gen/")] = [version, _value(text)]
    nodes = [key.removeprefix("node/") for key in found if key.startswith("node/")]
    presences: dict[str, list[object]] = {
        node: ["live" if _BEAT + node in entries else "silent", 0.0] for node in nodes
    }
    return {"entries": found, "presences": presences}


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _changes(
    before: Mapping[str, Mapping[str, list[object]]], after: Mapping[str, Mapping[str, list[object]]]
) -> list[dict[str, object]]:
    notices: list[dict[str, object]] = []
    for node, (presence, _) in after["presences"].items():
        if before["presences"].get(node, [""])[0] != presence:
            notices.append({"event": "presence", "node": node, "presence": presence})
    for key in sorted(after["entries"], key=lambda key: key == keys.GENERATION):
        version, value = after["entries"][key]
        if before["entries"].get(key, [0])[0] != version:
            notices.append({"event": "set", "key": key, "version": version, "value": value})
    gone = [key for key in before["entries"] if key not in after["entries"]]
    notices.extend({"event": "deleted", "key": key} for key in gone)
    return notices
