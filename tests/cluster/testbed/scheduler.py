"""The Kubernetes scheduler of the testbed."""

from __future__ import annotations

from tests.cluster.testbed.component import Component, answers
from tests.cluster.testbed.layout import Testbed


def component(testbed: Testbed) -> Component:
    """The scheduler with its default settings, but without leader election."""
    return Component(
        "scheduler",
        command=(
            testbed.program("kube-scheduler"),
            f"--kubeconfig={testbed.kubeconfig}",
            f"--cert-dir={testbed.path('scheduler')}",
            "--bind-address=127.0.0.1",
            "--leader-elect=false",
        ),
        needs=("apiserver",),
        ready=lambda: answers("https://127.0.0.1:10259/healthz"),
    )
