"""The testbed's own namespaces of processes, mounts and network, so that no process or mount outlives it.

Inside, /run, /var/lib, /var/log and /etc/hosts are the testbed's, and every program may keep its usual paths.
The kernel ends all processes with the first one, and drops mounts and network with the last.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.cluster.testbed.component import run
from tests.cluster.testbed.layout import Testbed

CERTIFICATES = Path("/tmp/k8s-webhook-server")  # the operator's own, fixed path
"""The one mount point outside the testbed's folder; `down` removes it."""
HIDDEN = {"run": "/run", "var-lib": "/var/lib", "var-log": "/var/log", "webhook": str(CERTIFICATES)}
"""Folder of the testbed to the machine's folder that it covers."""
UNSHARE = (
    *("unshare", "--mount", "--propagation", "private"),
    *("--net", "--pid", "--fork", "--kill-child", "--mount-proc"),
)
"""Runs a command as process 1 of new namespaces; it ends when `unshare` itself is ended."""
HOSTS = """\
127.0.0.1 localhost training-operator.kubeflow.svc
"""
"""The webhook's name, which its certificate carries, leads to the operator on this machine."""


def mounts(testbed: Testbed) -> Iterator[tuple[str, ...]]:
    """The commands that cover the machine's folders with the testbed's; pods share mounts with the kubelet.

    etcd's data is in memory: it waits for the disk at every write, and a shared disk is slow.
    """
    yield ("mount", "--make-rshared", "/")
    for folder, target in HIDDEN.items():
        yield ("mount", "--bind", str(testbed.path(folder)), target)
    yield ("mount", "--bind", str(testbed.path("hosts")), "/etc/hosts")
    yield ("mount", "-t", "tmpfs", "etcd", str(testbed.path("etcd")))


def enter(testbed: Testbed) -> None:
    """Furnishes the namespaces; runs as their first process."""
    for folder in (*HIDDEN, "etcd"):
        testbed.path(folder).mkdir(exist_ok=True)
    testbed.path("hosts").write_text(HOSTS)
    CERTIFICATES.mkdir(exist_ok=True)
    for command in mounts(testbed):
        run(*command)
