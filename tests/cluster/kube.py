"""A small client of the Kubernetes API for the testbed and the tests: JSON in, JSON out, one request a connection.

It knows no kind by heart: plural names and scopes come from the server's discovery. It must not know
anything of training jobs.
"""

from __future__ import annotations

import functools
import http.client
import json
import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from typing_extensions import override

Object = dict[str, Any]
TIMEOUT_SECONDS = 60
"""Longer than the API server takes for any answer that is no watch, its webhooks' 10 s included."""
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
NOT_FOUND = 404


class KubeError(Exception):
    """The API server refused: `status` is the HTTP code, `reason` Kubernetes' word for it."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason


@dataclass(frozen=True)
class Access:
    """How to reach an API server: a fresh connection, and the headers with the account."""

    connect: Callable[[], http.client.HTTPConnection]
    headers: Mapping[str, str]


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=TIMEOUT_SECONDS)
        self._path = path

    @override
    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(TIMEOUT_SECONDS)
        self.sock.connect(str(self._path))


def over_unix_socket(path: Path) -> Access:
    """Reaches the server through `kubectl proxy --unix-socket`, which holds any kubeconfig's credentials."""
    return Access(lambda: _UnixConnection(path), {})


def with_token(kubeconfig: Path) -> Access:
    """Reaches the testbed as its administrator; `kubeconfig` is the one the testbed wrote (JSON, with a token)."""
    config = json.loads(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    url = urlsplit(cluster["server"])
    context = ssl.create_default_context(cafile=cluster["certificate-authority"])
    return Access(
        lambda: http.client.HTTPSConnection(str(url.hostname), url.port, timeout=TIMEOUT_SECONDS, context=context),
        {"Authorization": f"Bearer {user['token']}"},
    )


class Kube:
    """The API server's verbs. Methods raise `KubeError` on a refusal and `OSError` when no server answers."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._resources = functools.cache(self._discover)

    def request(self, method: str, path: str, body: object = None, content_type: str = "application/json") -> str:
        """Sends `body` (JSON, or text as it is) and returns the answer's text."""
        return self._send(method, path, body, content_type)[0]

    def warnings(self, manifest: Object) -> tuple[str, ...]:
        """What the server warns of, or refuses with `KubeError`, if `manifest` were applied; unknown fields count."""
        query = urlencode({"fieldManager": "tests", "force": "true", "dryRun": "All", "fieldValidation": "Strict"})
        return self._send("PATCH", f"{self.path(manifest)}?{query}", manifest, APPLY)[1]

    def _send(self, method: str, path: str, body: object, content_type: str) -> tuple[str, tuple[str, ...]]:
        connection = self._access.connect()
        data = body if isinstance(body, str) or body is None else json.dumps(body)
        try:
            connection.request(
                method, path, data and data.encode(), {**self._access.headers, "Content-Type": content_type}
            )
            answer = connection.getresponse()
            text = answer.read().decode(errors="replace")
        finally:
            connection.close()
        if answer.status >= http.client.BAD_REQUEST:
            raise _refusal(answer.status, text)
        return text, tuple(answer.headers.get_all("Warning", []))

    def call(self, method: str, path: str, body: object = None, content_type: str = "application/json") -> Any:
        """`request` for the answers that are JSON documents."""
        return json.loads(self.request(method, path, body, content_type))

    def path(self, manifest: Object) -> str:
        """The path of the one object that `manifest` names; namespaced objects default to `default`."""
        metadata = manifest["metadata"]
        collection = self.collection(manifest["apiVersion"], manifest["kind"], metadata.get("namespace", "default"))
        return f"{collection}/{metadata['name']}"

    def collection(self, api_version: str, kind: str, namespace: str) -> str:
        """The path of all objects of a kind; `namespace` is left out where the kind has none."""
        plural, namespaced = self._resource(api_version, kind)
        return f"{_root(api_version)}/{f'namespaces/{namespace}/' if namespaced else ''}{plural}"

    def is_namespaced(self, api_version: str, kind: str) -> bool:
        """Whether objects of a kind live in namespaces."""
        return self._resource(api_version, kind)[1]

    def get(self, manifest: Object) -> Object:
        """The live object that `manifest` names."""
        return self.call("GET", self.path(manifest))  # type: ignore[no-any-return]  # the caller's document

    def find(self, manifest: Object) -> Object | None:
        """The live object, or None where there is none."""
        try:
            return self.get(manifest)
        except KubeError as error:
            if error.status == NOT_FOUND:
                return None
            raise

    def list(self, api_version: str, kind: str, namespace: str, selector: str = "") -> list[Object]:
        """All objects of a kind in a namespace whose labels match `selector`."""
        query = urlencode({"labelSelector": selector})
        found = self.call("GET", f"{self.collection(api_version, kind, namespace)}?{query}")
        return [{"apiVersion": api_version, "kind": kind, **item} for item in found["items"]]

    def apply(self, manifest: Object, manager: str = "tests", *, force: bool = True, dry_run: bool = False) -> Object:
        """Server-side apply; with `force` fields are taken over from other managers, else that is a conflict."""
        options = {"fieldManager": manager, "force": str(force).lower()}
        query = urlencode({**options, **({"dryRun": "All"} if dry_run else {})})
        return self.call("PATCH", f"{self.path(manifest)}?{query}", manifest, APPLY)  # type: ignore[no-any-return]  # as above

    def patch(self, manifest: Object, change: Object, subresource: str = "") -> Object:
        """Merges `change` into the live object, or into its `subresource` (`scale`, `status`)."""
        path = self.path(manifest) + (f"/{subresource}" if subresource else "")
        return self.call("PATCH", path, change, MERGE)  # type: ignore[no-any-return]  # as above

    def delete(self, manifest: Object, *, propagation: str = "Background", grace: int | None = None) -> None:
        """Asks for the object's end; one that is gone already is no error."""
        options = {"propagationPolicy": propagation}
        seconds = {} if grace is None else {"gracePeriodSeconds": grace}
        try:
            self.call("DELETE", self.path(manifest), {**options, **seconds})
        except KubeError as error:
            if error.status != NOT_FOUND:
                raise

    def _resource(self, api_version: str, kind: str) -> tuple[str, bool]:
        try:
            found = self._resources(api_version)
            if kind not in found:
                self._resources.cache_clear()
                found = self._resources(api_version)
        except KubeError as error:
            if error.status != NOT_FOUND:
                raise
            found = {}
        if kind not in found:
            raise KubeError(NOT_FOUND, "NoMatch", f"no matches for kind {kind!r} in version {api_version!r}")
        return found[kind]

    def _discover(self, api_version: str) -> dict[str, tuple[str, bool]]:
        found = self.call("GET", _root(api_version))["resources"]
        return {r["kind"]: (r["name"], r["namespaced"]) for r in found if "/" not in r["name"]}


def _root(api_version: str) -> str:
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def _refusal(status: int, text: str) -> KubeError:
    try:
        answer = json.loads(text)
        return KubeError(status, answer.get("reason", "Unknown"), answer.get("message", text))
    except (ValueError, AttributeError):
        return KubeError(status, "Unknown", text.strip())
