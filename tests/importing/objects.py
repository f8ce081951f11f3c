"""Small workload objects for cases."""

from __future__ import annotations

from typing import Any

from elastic_infra.importing import Imported, import_manifest

Data = dict[str, Any]

TORCHRUN = ["torchrun", "t.py"]
GPUS: Data = {"resources": {"limits": {"nvidia.com/gpu": 8}}}


def pytorch_job(
    container: Data | None = None, *, pod: Data | None = None, replica: Data | None = None, **spec: Any
) -> Data:
    """A PyTorchJob of two workers that run torchrun."""
    own = {"name": "pytorch", "image": "repo/img:1", "command": TORCHRUN, **(container or {})}
    template = {"spec": {"containers": [own], **(pod or {})}}
    worker = {"replicas": 2, "restartPolicy": "OnFailure", "template": template, **(replica or {})}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "j"},
        "spec": {"pytorchReplicaSpecs": {"Worker": worker}, **spec},
    }


def batch_job(container: Data | None = None, **spec: Any) -> Data:
    """A Job that runs torchrun."""
    own = {"name": "pytorch", "image": "repo/img:1", "command": TORCHRUN, **(container or {})}
    job = {"template": {"spec": {"containers": [own]}}, **spec}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": job}


def train_job(**trainer: Any) -> Data:
    """A TrainJob of two nodes that run torchrun."""
    own = {"image": "repo/img:1", "command": TORCHRUN, "numNodes": 2, **trainer}
    spec = {"runtimeRef": {"name": "torch-distributed"}, "trainer": own}
    return {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "j"}, "spec": spec}


def imported(manifest: Data) -> Imported:
    """The job of an object."""
    return import_manifest(manifest, "unnamed")


def noted(found: Imported, beginning: str) -> bool:
    """Whether a note begins so."""
    return any(note.startswith(beginning) for note in found.notes)
