"""The Kubernetes API server, with RBAC, the default admission plugins and aggregation."""

from __future__ import annotations

import json

from tests.cluster.testbed import certificates
from tests.cluster.testbed.component import Component, answers
from tests.cluster.testbed.layout import ETCD, NODE_ADDRESS, SERVICE_NETWORK, Testbed, kubeconfig


def component(testbed: Testbed) -> Component:
    """It makes its own serving certificate, which the kubeconfig trusts."""
    tokens = testbed.path("apiserver", "tokens.csv")
    return Component(
        "apiserver",
        command=(testbed.program("kube-apiserver"), *flags(testbed), f"--token-auth-file={tokens}"),
        needs=("etcd", "keys"),
        files={
            tokens: f'{testbed.token},admin,admin,"system:masters"\n',
            testbed.kubeconfig: json.dumps(kubeconfig(testbed)),
        },
        ready=lambda: answers(f"{testbed.server}/readyz"),
    )


def flags(testbed: Testbed) -> tuple[str, ...]:
    """The server's settings but for its tokens.

    It would stream lists, but Debian's etcd (3.4) cannot say how far a watch has come: every watch from version 0, such
    as KWOK's, is refused then (https://kubernetes.io/docs/reference/using-api/api-concepts/#streaming-lists).
    """
    account_key = certificates.service_account_key(testbed)
    proxy = certificates.proxy_certificate(testbed)
    return (
        f"--etcd-servers={ETCD}",
        f"--secure-port={testbed.port}",
        f"--advertise-address={NODE_ADDRESS}",
        f"--cert-dir={testbed.path('apiserver')}",
        f"--service-cluster-ip-range={SERVICE_NETWORK}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={account_key}",
        f"--service-account-signing-key-file={account_key}",
        "--authorization-mode=RBAC",
        "--feature-gates=WatchList=false",
        "--kubelet-preferred-address-types=InternalIP",
        f"--requestheader-client-ca-file={proxy}",
        f"--requestheader-allowed-names={certificates.PROXY_USER}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={proxy}",
        f"--proxy-client-key-file={certificates.proxy_key(testbed)}",
    )
