"""Kubernetes' controllers, the horizontal pod autoscaler among them."""

from __future__ import annotations

from tests.cluster.bed import certificates
from tests.cluster.bed.component import Component, answers
from tests.cluster.bed.layout import Bed


def component(bed: Bed) -> Component:
    """The autoscaler looks every 5 s (default 15) and believes young pods' CPU at once, to keep tests short."""
    return Component(
        "controller-manager",
        command=(
            bed.program("kube-controller-manager"),
            f"--kubeconfig={bed.kubeconfig}",
            f"--service-account-private-key-file={certificates.service_account_key(bed)}",
            f"--root-ca-file={bed.path('apiserver', 'apiserver.crt')}",
            f"--cert-dir={bed.path('controller-manager')}",
            "--bind-address=127.0.0.1",
            "--leader-elect=false",
            "--horizontal-pod-autoscaler-sync-period=5s",
            "--horizontal-pod-autoscaler-initial-readiness-delay=0s",
            "--horizontal-pod-autoscaler-cpu-initialization-period=0s",
        ),
        needs=("apiserver",),
        ready=lambda: answers("https://127.0.0.1:10257/healthz"),
    )
