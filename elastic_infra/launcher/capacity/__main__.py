"""``python -m elastic_infra.launcher.capacity``: looks at the job and its namespace, and sets the number of nodes.

The API server is asked with the token and the certificate that the pod mounts.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import ssl
import time
from collections.abc import Callable
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from .decision import Limits, Memory, begin, decide
from .observation import hold, observe

LOOKS: Final = 6
"""Looks at the cluster in the time of a probe."""
TIMEOUT: Final = 15.0
MOST_PODS: Final = 500
"""Waiting pods that one look reads, so that a crowded namespace does not cost the driver its memory."""
PATHS: Final = {"PyTorchJob": "/apis/kubeflow.org/v1/{}/pytorchjobs/{}", "Job": "/apis/batch/v1/{}/jobs/{}"}

Call = Callable[..., Any]
"""Method, path and, for a patch, its body, in; JSON out."""


def main() -> int:
    """Look and decide until a signal ends the process."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(128 + signal.SIGTERM))  # PID 1 ignores it by default
    parser = argparse.ArgumentParser()
    for option in ("--kind", "--namespace", "--name", "--selector", "--sizes", "--probe-seconds", "--credentials"):
        parser.add_argument(option, required=True)
    given = parser.parse_args()
    call = api(os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"], Path(given.credentials))
    limits = Limits(sizes(given.sizes), float(given.probe_seconds))
    memory, said = None, ""
    while True:
        try:
            memory, text = look(call, given, limits, memory)
        except (OSError, ValueError, HTTPException) as error:
            text = f"cannot see or change the job: {error!r}"
        if text != said:
            print(f"capacity: {text}", flush=True)
        said = text
        time.sleep(max(1.0, limits.probe / LOOKS))


def look(call: Call, given: argparse.Namespace, limits: Limits, memory: Memory | None) -> tuple[Memory | None, str]:
    """One look at the cluster and what follows from it: the memory, none while the size is another's, and a line."""
    space = f"namespaces/{given.namespace}"
    path = PATHS[given.kind].format(space, given.name)
    job = call("GET", path)
    if why := hold(job):
        return None, f"leaves the size alone: {why}"
    own = urlencode({"labelSelector": given.selector})
    waiting = urlencode({"fieldSelector": "spec.nodeName=,status.phase=Pending", "limit": MOST_PODS})
    pods, budgets = f"/api/v1/{space}/pods?", f"/apis/policy/v1/{space}/poddisruptionbudgets"
    seen = observe(job, *(call("GET", each)["items"] for each in (pods + own, pods + waiting, budgets)))
    now = time.monotonic()
    nodes, why, after = decide(seen, limits, memory or begin(limits, now), now)
    if nodes == seen.size:
        return after, f"size {nodes}: {why}"
    is_operated = given.kind == "PyTorchJob"
    spec = {"replicas": nodes} if is_operated else {"parallelism": nodes, "completions": nodes}
    version = {"resourceVersion": job["metadata"]["resourceVersion"]}  # refused where the job has changed meanwhile
    call("PATCH", path + "/scale" * is_operated, {"metadata": version, "spec": spec})
    return after, f"size {seen.size} to {nodes}: {why}"


def api(host: str, port: str, credentials: Path) -> Call:
    """The API server, as the account sees it whose `token`, which the kubelet renews, and `ca.crt` are in a folder.

    A call raises `OSError` with what the API server said where it refuses.
    """

    def call(method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - JSON
        token, context = (credentials / "token").read_text(), ssl.create_default_context(cafile=credentials / "ca.crt")
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/merge-patch+json"}
        connection = HTTPSConnection(host, int(port), timeout=TIMEOUT, context=context)
        connection.request(method, path, json.dumps(body) if body else None, headers)
        with connection.getresponse() as answer:
            content = json.load(answer)
        if answer.status != 200:  # noqa: PLR2004 - OK
            raise OSError(content.get("message"))
        return content

    return call


def sizes(text: str) -> tuple[int, ...]:
    """``2:8:2`` is ``(2, 4, 6, 8)``; ``2,8`` is ``(2, 8)``."""
    if ":" in text:
        low, high, step = map(int, text.split(":"))
        return tuple(range(low, high + 1, step))
    return tuple(map(int, text.split(",")))


if __name__ == "__main__":
    raise SystemExit(main())
