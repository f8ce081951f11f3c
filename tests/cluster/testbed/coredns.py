"""CoreDNS: resolves the names of Services and pods inside the testbed."""

from __future__ import annotations

from tests.cluster.testbed.component import Component, answers
from tests.cluster.testbed.layout import NODE_ADDRESS, Testbed


def component(testbed: Testbed) -> Component:
    """Runs beside the cluster rather than in it, with the administrator's kubeconfig."""
    corefile = testbed.path("Corefile")
    return Component(
        "coredns",
        command=(testbed.program("coredns"), "-conf", str(corefile)),
        needs=("apiserver",),
        files={corefile: config(testbed)},
        ready=lambda: answers("http://127.0.0.1:8181/ready"),
    )


def config(testbed: Testbed) -> str:
    """Names and, as in every cluster's own CoreDNS, addresses: torch asks for the name of each peer's address.

    Answers are good for a second: pods come and go quickly here.
    """
    return f"""\
.:53 {{
    bind {NODE_ADDRESS}
    ready 127.0.0.1:8181
    kubernetes cluster.local in-addr.arpa ip6.arpa {{
        kubeconfig {testbed.kubeconfig} testbed
        ttl 1
    }}
    errors
}}
"""
