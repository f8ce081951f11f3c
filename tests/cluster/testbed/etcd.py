"""etcd, the API server's memory: one member, reachable only inside the testbed."""

from __future__ import annotations

from tests.cluster.testbed.component import Component, answers
from tests.cluster.testbed.layout import ETCD, Testbed


def component(testbed: Testbed) -> Component:
    """Debian's etcd. Its data is thrown away with the testbed."""
    return Component(
        "etcd",
        command=(
            testbed.program("etcd"),
            f"--data-dir={testbed.path('etcd')}",
            f"--listen-client-urls={ETCD}",
            f"--advertise-client-urls={ETCD}",
            "--listen-peer-urls=http://127.0.0.1:2380",
            "--logger=zap",
        ),
        needs=("network",),
        ready=lambda: answers(f"{ETCD}/health"),
    )
