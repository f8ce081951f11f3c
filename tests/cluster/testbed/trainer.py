"""Kubeflow Trainer and JobSet beside a running testbed, for tests that want a TrainJob: no other test pays for them.

Both serve their webhooks with the training operator's certificate, whose name leads to this machine.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.cluster import kube
from tests.cluster.testbed import lifecycle, operator, programs
from tests.cluster.testbed.layout import SYSTEM_PATH, Testbed
from tests.cluster.waiting import until
from tools import build, modules

TOOL = "trainer"
"""The folder of `tools/` that pins both."""
STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
CONTAINER = {"name": "other", "image": "image"}


@dataclass(frozen=True)
class Controller:
    """One of the two programs, and what of its module a cluster needs."""

    program: str
    module: str
    crds: str
    """Folder of the definitions, in the module."""
    webhooks: str
    """File of the webhooks, in the module."""
    port: int
    """Of its webhooks; free in the testbed, as is the one after it, for its probes."""
    settings: Mapping[str, Any]
    bad: kube.Object
    """An object that only a webhook that is served refuses."""
    refusal: str
    """A part of what it says then."""


JOB_SET = Controller(
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
)
TRAINER = Controller(
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
ONLY_ITS_PODS = {"matchExpressions": [{"key": "jobset.sigs.k8s.io/jobset-name", "operator": "Exists"}]}
"""What JobSet's own overlay of its webhooks for pods selects:
https://github.com/kubernetes-sigs/jobset/tree/v0.12.0/config/components/webhook/patches"""


@contextmanager
def running(root: Path, api: kube.Kube) -> Iterator[None]:
    """Both run in the testbed meanwhile.

    Raises:
        MissingProgramError: they are not built.
    """
    built = [(each, programs.built(each.program)) for each in (JOB_SET, TRAINER)]
    with ExitStack() as stack:
        for controller, program in built:
            stack.enter_context(_running(controller, program, root, api))
        yield


@contextmanager
def _running(controller: Controller, program: str, root: Path, api: kube.Kube) -> Iterator[None]:
    module = build.module_folder(modules.HERE / TOOL, controller.module, build.go_program())
    for definition in sorted((module / controller.crds).glob("*_*.yaml")):
        _define(definition, api)
    documents = yaml.safe_load_all((module / controller.webhooks).read_text())
    hooks = [_led_here(each, controller, api) for each in documents if each]
    log = root / "logs" / f"{controller.program}.log"
    process = _start(controller, program, root, log)
    try:
        for hook in hooks:
            api.apply(hook)
        until(f"{controller.program} to serve", lambda: _refuses(controller, api, process, log))
        yield
    finally:
        for hook in hooks:
            api.delete(hook)
        process.terminate()
        process.wait()


def _define(definition: Path, api: kube.Kube) -> None:
    """Applies the definition in a file that is called `<group>_<plural>.yaml`; returns once it is served."""
    group, _, plural = definition.stem.partition("_")
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
    }
    api.request("PATCH", f"{api.path(crd)}?fieldManager=testbed&force=true", definition.read_text(), kube.APPLY)

    def is_served() -> bool:
        told = api.get(crd).get("status", {}).get("conditions") or []
        return any(each["type"] == "Established" and each["status"] == "True" for each in told)

    until(f"{plural} to be served", is_served)


def _led_here(hook: kube.Object, controller: Controller, api: kube.Kube) -> kube.Object:
    """The webhooks of a module's file, under a name of their own, on the port of this machine."""
    authority = api.get(operator.SECRET)["data"]["ca.crt"]
    for each in hook["webhooks"]:
        path = each["clientConfig"].pop("service")["path"]
        url = f"https://training-operator.{operator.NAMESPACE}.svc:{controller.port}{path}"
        each["clientConfig"] |= {"url": url, "caBundle": authority}
        if any(rule["resources"] == ["pods"] for rule in each["rules"]):
            each["objectSelector"] = ONLY_ITS_PODS
    hook["metadata"]["name"] = f"{controller.program}-{hook['metadata']['name']}"
    return hook


def _start(controller: Controller, program: str, root: Path, log: Path) -> subprocess.Popen[bytes]:
    """The program in the testbed's network and mounts; it ends with this process as well."""
    settings = {
        **controller.settings,
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f":{controller.port + 1}"},
        "leaderElection": {"leaderElect": False},
        "metrics": {"bindAddress": "0"},
        "webhook": {"port": controller.port},
    }
    file = root / f"{controller.program}.json"
    file.write_text(json.dumps(settings))
    with log.open("ab") as output:
        return subprocess.Popen(
            (
                *("nsenter", f"--target={lifecycle.first_process(root)}", "--mount", "--net"),
                *("setpriv", "--pdeathsig", "KILL", program, f"--config={file}"),
            ),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={"PATH": SYSTEM_PATH, "HOME": "/nonexistent", "KUBECONFIG": str(Testbed.read(root).kubeconfig)},
        )


def _refuses(controller: Controller, api: kube.Kube, process: subprocess.Popen[bytes], log: Path) -> bool:
    """Whether the webhooks judge what they are asked; an `AssertionError` where the program has ended."""
    assert process.poll() is None, f"{controller.program} ended: {log.read_text(errors='replace')[-2000:]}"
    try:
        api.apply(controller.bad, dry_run=True)
    except kube.KubeError as error:
        return controller.refusal in str(error)
    return False
