"""The keys that Kubernetes' own programs want from outside: for service accounts and for aggregated APIs."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.testbed.component import Component, run
from tests.cluster.testbed.layout import Testbed

PROXY_USER = "front-proxy"
"""The name by which aggregated API servers know the API server that asks on a user's behalf."""


def service_account_key(testbed: Testbed) -> Path:
    """The key that signs service-account tokens."""
    return testbed.path("keys", "service-account.key")


def proxy_key(testbed: Testbed) -> Path:
    """The front proxy's key."""
    return testbed.path("keys", "front-proxy.key")


def proxy_certificate(testbed: Testbed) -> Path:
    """The front proxy's certificate; it signs itself, so it is its own authority too."""
    return testbed.path("keys", "front-proxy.crt")


def component(testbed: Testbed) -> Component:
    """The step that makes the keys."""
    return Component("keys", prepare=lambda: _make(testbed))


def _make(testbed: Testbed) -> None:
    testbed.path("keys").mkdir()
    curve = ("-pkeyopt", "ec_paramgen_curve:prime256v1")
    traditional = ("openssl", "ecparam", "-genkey", "-noout", "-name", "prime256v1")
    run(*traditional, "-out", str(service_account_key(testbed)))
    run(
        *("openssl", "req", "-x509", "-newkey", "ec", *curve, "-nodes", "-days", "30"),
        *("-subj", f"/CN={PROXY_USER}", "-addext", "extendedKeyUsage=clientAuth"),
        *("-keyout", str(proxy_key(testbed)), "-out", str(proxy_certificate(testbed))),
    )
