"""etcd, the API server's memory: one member, reachable only inside the bed."""

from __future__ import annotations

from tests.cluster.bed.component import Component, answers
from tests.cluster.bed.layout import ETCD, Bed


def component(bed: Bed) -> Component:
    """Debian's etcd. Its data is thrown away with the bed."""
    return Component(
        "etcd",
        command=(
            bed.program("etcd"),
            f"--data-dir={bed.path('etcd')}",
            f"--listen-client-urls={ETCD}",
            f"--advertise-client-urls={ETCD}",
            "--listen-peer-urls=http://127.0.0.1:2380",
            "--logger=zap",
        ),
        needs=("network",),
        ready=lambda: answers(f"{ETCD}/health"),
    )
