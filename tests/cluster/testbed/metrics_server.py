"""metrics-server beside a running testbed: the pods' CPU and memory use, without which no autoscaler scales."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster import kube
from tests.cluster.testbed import controllers, programs
from tests.cluster.testbed.layout import Testbed
from tests.cluster.waiting import until

PROGRAM = "metrics-server"
PORT = 4443
GROUP = "metrics.k8s.io"
VERSION = f"{GROUP}/v1beta1"


@contextmanager
def running(root: Path, api: kube.Kube) -> Iterator[None]:
    """It serves meanwhile; its first figures come a little later.

    Raises:
        MissingProgramError: it is not built.
    """
    program = programs.built(PROGRAM)
    process = controllers.started(root, root / "logs" / f"{PROGRAM}.log", program, *_flags(Testbed.read(root)))
    service, served = manifests()
    try:
        for manifest in (service, served):
            api.apply(manifest)
        until(f"{PROGRAM} to serve", lambda: _is_available(api.get(served)))
        yield
    finally:
        api.delete(served)  # else no namespace ends any more: its objects of this group would be looked for
        process.terminate()
        process.wait()


def _flags(testbed: Testbed) -> tuple[str, ...]:
    return (
        f"--kubeconfig={testbed.kubeconfig}",
        f"--authentication-kubeconfig={testbed.kubeconfig}",
        f"--authorization-kubeconfig={testbed.kubeconfig}",
        f"--cert-dir={testbed.path(PROGRAM)}",
        f"--secure-port={PORT}",
        "--kubelet-insecure-tls",
        "--kubelet-preferred-address-types=InternalIP",
        "--metric-resolution=10s",
        "--kubelet-request-timeout=8s",
    )


def manifests() -> tuple[kube.Object, ...]:
    """Leads the API server to this program, which runs beside it and not in a pod."""
    place, version = {"name": PROGRAM, "namespace": "kube-system"}, VERSION.rpartition("/")[2]
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": place,
        "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": PORT}]},
    }
    api = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": f"{version}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "version": version,
            "service": {**place, "port": PORT},
            "insecureSkipTLSVerify": True,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
        },
    }
    return service, api


def _is_available(service: kube.Object) -> bool:
    """Whether the API server reaches it."""
    conditions = service.get("status", {}).get("conditions") or []
    return any(each["type"] == "Available" and each["status"] == "True" for each in conditions)
