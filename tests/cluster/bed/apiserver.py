"""The Kubernetes API server, with RBAC, the default admission plugins and aggregation."""

from __future__ import annotations

import json

from tests.cluster.bed import certificates
from tests.cluster.bed.component import Component, answers
from tests.cluster.bed.layout import ETCD, NODE_ADDRESS, SERVICE_NETWORK, Bed, kubeconfig


def component(bed: Bed) -> Component:
    """It makes its own serving certificate, which the kubeconfig trusts."""
    tokens = bed.path("apiserver", "tokens.csv")
    return Component(
        "apiserver",
        command=(bed.program("kube-apiserver"), *flags(bed), f"--token-auth-file={tokens}"),
        needs=("etcd", "keys"),
        files={
            tokens: f'{bed.token},admin,admin,"system:masters"\n',
            bed.kubeconfig: json.dumps(kubeconfig(bed)),
        },
        ready=lambda: answers(f"{bed.server}/readyz"),
    )


def flags(bed: Bed) -> tuple[str, ...]:
    """The server's settings but for its tokens."""
    account_key = certificates.service_account_key(bed)
    proxy = certificates.proxy_certificate(bed)
    return (
        f"--etcd-servers={ETCD}",
        f"--secure-port={bed.port}",
        f"--advertise-address={NODE_ADDRESS}",
        f"--cert-dir={bed.path('apiserver')}",
        f"--service-cluster-ip-range={SERVICE_NETWORK}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={account_key}",
        f"--service-account-signing-key-file={account_key}",
        "--authorization-mode=RBAC",
        "--kubelet-preferred-address-types=InternalIP",
        f"--requestheader-client-ca-file={proxy}",
        f"--requestheader-allowed-names={certificates.PROXY_USER}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={proxy}",
        f"--proxy-client-key-file={certificates.proxy_key(bed)}",
    )
