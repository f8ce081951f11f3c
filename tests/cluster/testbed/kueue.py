"""Kueue beside a running testbed, for batch/v1 Jobs, PyTorchJobs and TrainJobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.cluster import kube
from tests.cluster.testbed import controllers
from tests.cluster.testbed.controllers import Controller
from tests.cluster.testbed.sandbox import CERTIFICATES

VERSION = "kueue.x-k8s.io/v1beta2"
FOLDER = "/etc/kueue/metrics/certs"
"""Kueue's own, fixed path of a certificate for its metrics, which it reads even where it serves none."""
SCRIPT = f"""
mount -t tmpfs none /mnt
mkdir -p /mnt{FOLDER.removeprefix("/etc")}
cp /etc/hosts /mnt
cp {CERTIFICATES}/serving-certs/tls.* /mnt{FOLDER.removeprefix("/etc")}
mount --rbind /mnt /etc
exec "$@"
"""
FURNISHED = ("unshare", "--mount", "--propagation", "private", "sh", "-ec", SCRIPT, "kueue")
"""An /etc of its own, so that this machine's stays as it is."""


def _serves(webhook: Mapping[str, Any]) -> bool:
    """Whether a webhook is of Kueue's own kinds, or of a job that the settings name."""
    served = {
        "kueue.x-k8s.io": None,
        "batch": "jobs",
        "kubeflow.org": "pytorchjobs",
        "trainer.kubeflow.org": "trainjobs",
    }
    return all(
        group in served and served[group] in {None, *rule["resources"]}
        for rule in webhook["rules"]
        for group in rule["apiGroups"]
    )


KUEUE = Controller(
    tool="kueue",
    program="kueue",
    module="sigs.k8s.io/kueue",
    crds="config/components/crd/bases",
    webhooks="config/components/webhook/manifests.yaml",
    port=9564,
    settings={
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "internalCertManagement": {"enable": False},
        "integrations": {"frameworks": ["batch/job", "kubeflow.org/pytorchjob", "trainer.kubeflow.org/trainjob"]},
    },
    bad={
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "bad",
            "namespace": "default",
            "labels": {"kueue.x-k8s.io/queue-name": "none"},
            "annotations": {"kueue.x-k8s.io/job-min-parallelism": "7"},
        },
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "other", "image": "image"}]}}},
    },
    refusal="should be between",
    serves=_serves,
    arguments=("--feature-gates=VisibilityOnDemand=false",),
    wrapper=FURNISHED,
)


@contextmanager
def running(root: Path, api: kube.Kube) -> Iterator[None]:
    """Kueue runs in the testbed meanwhile.

    Raises:
        MissingProgramError: it is not built.
    """
    with controllers.running(KUEUE, root, api):
        yield
