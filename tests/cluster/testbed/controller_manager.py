"""Kubernetes' controllers, the horizontal pod autoscaler among them."""

from __future__ import annotations

from tests.cluster.testbed import certificates
from tests.cluster.testbed.component import Component, answers
from tests.cluster.testbed.layout import Testbed


def component(testbed: Testbed) -> Component:
    """The autoscaler looks every 5 s (default 15) and believes young pods' CPU at once, to keep tests short."""
    return Component(
        "controller-manager",
        command=(
            testbed.program("kube-controller-manager"),
            f"--kubeconfig={testbed.kubeconfig}",
            f"--service-account-private-key-file={certificates.service_account_key(testbed)}",
            f"--root-ca-file={testbed.path('apiserver', 'apiserver.crt')}",
            f"--cert-dir={testbed.path('controller-manager')}",
            "--bind-address=127.0.0.1",
            "--leader-elect=false",
            "--horizontal-pod-autoscaler-sync-period=5s",
            "--horizontal-pod-autoscaler-initial-readiness-delay=0s",
            "--horizontal-pod-autoscaler-cpu-initialization-period=0s",
        ),
        needs=("apiserver",),
        ready=lambda: answers("https://127.0.0.1:10257/healthz"),
    )
