"""Kubeflow Trainer and JobSet beside a running testbed, for tests that want a TrainJob."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster import kube
from tests.cluster.testbed import controllers, programs
from tests.cluster.testbed.controllers import Controller, Running
from tools import build

TOOL = "trainer"
"""The folder of `tools/` that pins both."""
STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
CONTAINER = {"name": "other", "image": "image"}
ONLY_ITS_PODS = {"matchExpressions": [{"key": "jobset.sigs.k8s.io/jobset-name", "operator": "Exists"}]}
"""What JobSet's own overlay of its webhooks for pods selects:
https://github.com/kubernetes-sigs/jobset/tree/v0.12.0/config/components/webhook/patches"""

JOB_SET = Controller(
    tool=TOOL,
    program="jobset",
    module="sigs.k8s.io/jobset",
    crds="config/components/crd/bases",
    webhooks="config/components/webhook/manifests.yaml",
    port=9544,
    settings={"apiVersion": "config.jobset.x-k8s.io/v1alpha1", "internalCertManagement": {"enable": False}},
    bad={
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "a" * 60, "namespace": "default"},
        "spec": {
            "replicatedJobs": [
                {"name": "node", "template": {"spec": {"template": {"spec": {"containers": [CONTAINER]}}}}}
            ]
        },
    },
    refusal="will exceed 63 characters",
    pods=ONLY_ITS_PODS,
)
TRAINER = Controller(
    tool=TOOL,
    program="trainer-controller-manager",
    module=build.TRAINER_MODULE,
    crds="manifests/base/crds",
    webhooks="manifests/base/webhook/manifests.yaml",
    port=9554,
    settings={"apiVersion": "config.trainer.kubeflow.org/v1alpha1", "certManagement": {"enable": False}},
    bad={
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": {"name": "bad", "namespace": "default"},
        "spec": {
            "template": {
                "spec": {
                    "replicatedJobs": [
                        {
                            "name": "node",
                            "template": {
                                "metadata": {"labels": {STEP: "trainer"}},
                                "spec": {"template": {"spec": {"containers": [CONTAINER]}}},
                            },
                        }
                    ]
                }
            }
        },
    },
    refusal="must contain the required container",
)


ELASTIC = {"featureGates": {"ElasticJobSet": True}}
"""Settings with which JobSet lets the size of a TrainJob move."""


@contextmanager
def running(root: Path, api: kube.Kube) -> Iterator[Running]:
    """Both run in the testbed meanwhile: JobSet, for other settings.

    Raises:
        MissingProgramError: they are not built.
    """
    programs.built(TRAINER.program)
    with controllers.running(JOB_SET, root, api) as job_set, controllers.running(TRAINER, root, api):
        yield job_set
