"""The keys that Kubernetes' own programs want from outside: for service accounts and for aggregated APIs."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.bed.component import Component, run
from tests.cluster.bed.layout import Bed

PROXY_USER = "front-proxy"
"""The name by which aggregated API servers know the API server that asks on a user's behalf."""


def service_account_key(bed: Bed) -> Path:
    """Signs service-account tokens."""
    return bed.path("keys", "service-account.key")


def proxy_key(bed: Bed) -> Path:
    """The front proxy's key."""
    return bed.path("keys", "front-proxy.key")


def proxy_certificate(bed: Bed) -> Path:
    """The front proxy's certificate; it signs itself, so it is its own authority too."""
    return bed.path("keys", "front-proxy.crt")


def component(bed: Bed) -> Component:
    """Makes the keys."""
    return Component("keys", prepare=lambda: _make(bed))


def _make(bed: Bed) -> None:
    bed.path("keys").mkdir()
    curve = ("-pkeyopt", "ec_paramgen_curve:prime256v1")
    traditional = ("openssl", "ecparam", "-genkey", "-noout", "-name", "prime256v1")
    run(*traditional, "-out", str(service_account_key(bed)))
    run(
        *("openssl", "req", "-x509", "-newkey", "ec", *curve, "-nodes", "-days", "30"),
        *("-subj", f"/CN={PROXY_USER}", "-addext", "extendedKeyUsage=clientAuth"),
        *("-keyout", str(proxy_key(bed)), "-out", str(proxy_certificate(bed))),
    )
