"""KWOK beside a running testbed: cluster nodes without a machine, which come, fall silent and go as a test says.

A pod on such a node is said to be ready and ends well when it is told to go, while nothing runs in it. The testbed's
own node is the kubelet's alone.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from tests.cluster import kube
from tests.cluster.cluster import is_ready
from tests.cluster.testbed import controllers, programs
from tests.cluster.waiting import until
from tools import build, modules

TOOL: Final = "kwok"
"""The folder of `tools/` that pins it, and its program."""
MODULE: Final = "sigs.k8s.io/kwok"
READY: Final = "kustomize/stage/pod/fast/pod-ready.yaml"
"""KWOK's own stage that begins a pod. Those that end pods are this module's: KWOK's own end a Job's pods at once, with
success, and take the finalizer away by which the Job controller counts them."""
KEY: Final = "tests.elastic-infra/kwok"
"""Label of the nodes that KWOK keeps, and their taint."""
TOLERATION: Final = {"key": KEY, "operator": "Exists"}
"""What a pod needs to be scheduled to such a node; the config of a job calls it the same."""
TAINT: Final = {"key": KEY, "effect": "NoSchedule"}
END: Final = """
phase: Failed
conditions:
- {type: Ready, status: "False", lastTransitionTime: {{ Now | Quote }}}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  imageID: ""
  ready: false
  restartCount: 0
  state: {terminated: {exitCode: 143, finishedAt: {{ Now | Quote }}, startedAt: {{ Now | Quote }}}}
{{ end }}
"""


@dataclass(frozen=True)
class Nodes:
    """The nodes without a machine."""

    api: kube.Kube
    process: subprocess.Popen[bytes]
    names: list[str] = field(default_factory=list)

    def add(
        self,
        name: str,
        resources: Mapping[str, str],
        labels: Mapping[str, str] = {},
        taint: Mapping[str, str] = TAINT,
    ) -> None:
        """A node comes; returns once it is ready."""
        self.names.append(name)
        self.api.call("POST", self.api.collection("v1", "Node", ""), node(name, resources, labels, taint))
        until(f"{name} to be ready", lambda: is_ready(self.api.get(named(name))), describe=lambda: self._seen(name))

    def silence(self) -> None:
        """All of them say nothing from now on, and their pods neither begin nor end."""
        self.process.send_signal(signal.SIGSTOP)

    def cordon(self, name: str) -> None:
        """No further pod is scheduled to a node."""
        self.api.patch(named(name), {"spec": {"unschedulable": True}})

    def remove(self, name: str) -> None:
        """A node goes, whatever runs on it."""
        self.api.delete(named(name))

    def _seen(self, name: str) -> str:
        return str(self.api.get(named(name))["status"].get("conditions"))


def named(name: str) -> kube.Object:
    """What names a node to the client."""
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}


def node(
    name: str, resources: Mapping[str, str], labels: Mapping[str, str] = {}, taint: Mapping[str, str] = TAINT
) -> kube.Object:
    """A node that KWOK keeps, with so much of each resource, to which no pod goes that does not tolerate its taint."""
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "10", **resources}
    own = {KEY: "", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
    return {
        **named(name),
        "metadata": {"name": name, "labels": {**own, **labels}},
        "spec": {"taints": [taint]},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


@contextmanager
def running(root: Path, api: kube.Kube) -> Iterator[Nodes]:
    """It runs in the testbed meanwhile; the nodes that are left go with it.

    Raises:
        MissingProgramError: it is not built.
    """
    program = programs.built(TOOL)
    ready = build.module_folder(modules.HERE / TOOL, MODULE, build.go_program()) / READY
    file = root / "kwok.yaml"
    file.write_text(yaml.safe_dump_all([yaml.safe_load(ready.read_text()), *ends()]))
    log = root / "logs" / "kwok.log"
    selector = f"--manage-nodes-with-label-selector={KEY}"
    process = controllers.started(root, log, program, f"--config={file}", selector, "--node-lease-duration-seconds=40")
    nodes = Nodes(api, process)
    try:
        yield nodes
        assert process.poll() is None, f"{TOOL} ended: {log.read_text(errors='replace')[-2000:]}"
    finally:
        for name in nodes.names:
            nodes.remove(name)
        process.kill()  # a stopped process hears nothing else
        process.wait()


def ends() -> tuple[dict[str, Any], ...]:
    """What becomes of a pod that is to go: its containers end as SIGTERM ends them, then it is deleted."""
    going = {"key": ".metadata.deletionTimestamp", "operator": "Exists"}
    ended = {"key": ".status.phase", "values": ["Failed", "Succeeded"]}
    return (
        _stage("pod-end", [going, {**ended, "operator": "NotIn"}], {"statusTemplate": END}),
        _stage("pod-delete", [going, {**ended, "operator": "In"}], {"delete": True}),
    )


def _stage(name: str, when: list[dict[str, Any]], then: dict[str, Any]) -> dict[str, Any]:
    """One step of a pod's life: https://kwok.sigs.k8s.io/docs/user/stages-configuration/."""
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": "Pod"},
            "selector": {"matchExpressions": when},
            "next": then,
        },
    }
