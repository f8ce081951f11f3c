"""CoreDNS: resolves the names of Services and pods inside the bed."""

from __future__ import annotations

from tests.cluster.bed.component import Component, answers
from tests.cluster.bed.layout import NODE_ADDRESS, Bed


def component(bed: Bed) -> Component:
    """Runs beside the cluster rather than in it, with the administrator's kubeconfig."""
    corefile = bed.path("Corefile")
    return Component(
        "coredns",
        command=(bed.program("coredns"), "-conf", str(corefile)),
        needs=("apiserver",),
        files={corefile: config(bed)},
        ready=lambda: answers("http://127.0.0.1:8181/ready"),
    )


def config(bed: Bed) -> str:
    """Names and, as in every cluster's own CoreDNS, addresses: torch asks for the name of each peer's address.

    Answers are good for a second: pods come and go quickly here.
    """
    return f"""\
.:53 {{
    bind {NODE_ADDRESS}
    ready 127.0.0.1:8181
    kubernetes cluster.local in-addr.arpa ip6.arpa {{
        kubeconfig {bed.kubeconfig} bed
        ttl 1
    }}
    errors
}}
"""
