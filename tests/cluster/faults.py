"""What can happen to a running job, for the tests that make it happen. It must not judge what comes of it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.cluster import MOUNT, Namespace, is_ready
from tests.cluster.testbed import kubelet, lifecycle
from tests.cluster.testbed.layout import Testbed
from tests.cluster.waiting import until

SIGNAL_WORKER = f"""
import os, pathlib, sys
log = pathlib.Path("{MOUNT}", os.uname().nodename + ".jsonl")
def writes(process):
    try:
        return log in [descriptor.readlink() for descriptor in (process / "fd").iterdir()]
    except OSError:
        return False
workers = [int(process.name) for process in pathlib.Path("/proc").glob("[0-9]*") if writes(process)]
os.kill(min(workers), int(sys.argv[1]))
"""
"""A worker is a process with the log of steps open: a forked worker cannot be recognised by its command line."""


def signal_worker(space: Namespace, pod: str, number: signal.Signals) -> None:
    """Sends a signal to a training process of a pod, to one of them where there are several."""
    space.cluster.run("-n", space.name, "exec", pod, "--", "python3", "-c", SIGNAL_WORKER, str(number.value))


def lose_pod(space: Namespace, name: str, grace: int | None) -> None:
    """Deletes a pod, at once (0) or in its own time (None); returns once there is another of its name, and ready."""
    old = space.api.get(space.pod(name))["metadata"]["uid"]
    space.api.delete(space.pod(name), grace=grace)

    def is_replaced() -> bool:
        pod = space.api.find(space.pod(name))
        return pod is not None and pod["metadata"]["uid"] != old and is_ready(pod)

    until(f"another {name}", is_replaced, describe=space.describe)


def evict(space: Namespace, pod: str) -> None:
    """The cluster takes a pod away in its own time, as when it drains a node or needs room."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": space.name}}
    space.api.call("POST", f"{space.api.path(space.pod(pod))}/eviction", body)


def lose_store(space: Namespace) -> None:
    """Deletes the store's pod at once; returns once there is another."""
    old = store_pods(space)
    space.api.delete(space.pod(old[0]), grace=0)
    until("another store", lambda: store_pods(space) not in ([], old), describe=space.describe)


def store_pods(space: Namespace) -> list[str]:
    """Names of the store's pods that are ready and not on their way out."""
    found = space.api.list("v1", "Pod", space.name, "app.kubernetes.io/component=rendezvous")
    alive = [pod for pod in found if "deletionTimestamp" not in pod["metadata"] and is_ready(pod)]
    return [pod["metadata"]["name"] for pod in alive]


@contextmanager
def silent_node(testbed: Path) -> Iterator[None]:
    """The cluster's node says nothing, and the cluster has noticed; afterwards it is ready again."""
    lifecycle.send(testbed, "kubelet", signal.SIGSTOP)
    try:
        until("the silence to be noticed", lambda: not kubelet.is_ready(Testbed.read(testbed)))
        yield
    finally:
        lifecycle.send(testbed, "kubelet", signal.SIGCONT)
    until("the kubelet to be back", lambda: kubelet.is_ready(Testbed.read(testbed)))


@contextmanager
def paused_controllers(testbed: Path | None) -> Iterator[None]:
    """Kubernetes' own controllers do nothing meanwhile: pods run and end, and no job hears of it.

    Where the cluster is not the testbed they go on.
    """
    if testbed is None:
        yield
        return
    lifecycle.send(testbed, "controller-manager", signal.SIGSTOP)
    try:
        yield
    finally:
        lifecycle.send(testbed, "controller-manager", signal.SIGCONT)
