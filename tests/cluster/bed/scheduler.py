"""The Kubernetes scheduler."""

from __future__ import annotations

from tests.cluster.bed.component import Component, answers
from tests.cluster.bed.layout import Bed


def component(bed: Bed) -> Component:
    """With its default settings, but nobody to elect."""
    return Component(
        "scheduler",
        command=(
            bed.program("kube-scheduler"),
            f"--kubeconfig={bed.kubeconfig}",
            f"--cert-dir={bed.path('scheduler')}",
            "--bind-address=127.0.0.1",
            "--leader-elect=false",
        ),
        needs=("apiserver",),
        ready=lambda: answers("https://127.0.0.1:10259/healthz"),
    )
