"""The API server, asked with the token and the certificate that the driver's container mounts."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterator
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

TIMEOUT: Final = 15.0
KINDS: Final = {
    "PyTorchJob": ("kubeflow.org/v1", "pytorchjobs"),
    "Job": ("batch/v1", "jobs"),
    "TrainJob": ("trainer.kubeflow.org/v1alpha1", "trainjobs"),
    "JobSet": ("jobset.x-k8s.io/v1alpha2", "jobsets"),
}
"""API version and path of the kinds of workload, and of what Trainer makes of a TrainJob."""
WORKLOADS: Final = "/apis/kueue.x-k8s.io/v1beta2/namespaces/{namespace}/workloads"
"""Where the API server has what Kueue admits."""

Call = Callable[..., Any]
"""Method, path and, for a change, its body, in; JSON out."""
PAGE: Final = 250
"""Pods in an answer: one takes some 70 KiB here, and the driver has 128 MiB."""


def path_of(kind: str, namespace: str, name: str) -> str:
    """Where the API server has a workload."""
    version, plural = KINDS[kind]
    return f"/apis/{version}/namespaces/{namespace}/{plural}/{name}"


def listed(call: Call, path: str, **query: str) -> Iterator[Any]:
    """Every object of a list, without those parts that no task looks at; one answer at a time is in memory."""
    further: dict[str, str] = {}
    while True:
        answer = call("GET", f"{path}?{urlencode({**query, 'limit': PAGE, **further})}")
        yield from map(_lean, answer["items"])
        if not (token := answer.get("metadata", {}).get("continue")):
            return
        further = {"continue": token}


def _lean(found: Any) -> Any:  # noqa: ANN401 - JSON
    found["metadata"].pop("managedFields", None)
    for part in ("volumes", "podSets"):
        found["spec"].pop(part, None)
    for container in found["spec"].get("containers", ()):
        for part in ("env", "volumeMounts", "command", "args"):
            container.pop(part, None)
    return found


def api(host: str, port: str, credentials: Path) -> Call:
    """The API server, as the account sees it whose `token`, which the kubelet renews, and `ca.crt` are in a folder.

    The body of a `PATCH` is a merge patch, or a JSON patch where it is a list. A call raises `OSError` with what the
    API server said where it refuses: `FileExistsError` for a conflict, and `FileNotFoundError` for what is not there.
    """

    def call(method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - JSON
        token, context = (credentials / "token").read_text(), ssl.create_default_context(cafile=credentials / "ca.crt")
        patch = "json-patch" if isinstance(body, list) else "merge-patch"
        kind = f"application/{patch}+json" if method == "PATCH" else "application/json"
        connection = HTTPSConnection(host, int(port), timeout=TIMEOUT, context=context)
        content = json.dumps(body) if body else None
        connection.request(method, path, content, {"Authorization": f"Bearer {token}", "Content-Type": kind})
        with connection.getresponse() as answer:
            found = json.load(answer)
        if answer.status not in {200, 201}:
            raise _REFUSALS.get(answer.status, OSError)(found.get("message"))
        return found

    return call


_REFUSALS: Final[dict[int, type[OSError]]] = {404: FileNotFoundError, 409: FileExistsError}
