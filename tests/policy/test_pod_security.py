"""The profile `restricted`: each of its demands, wherever a pod can break it."""

from __future__ import annotations

from typing import Any

import pytest

from elastic_infra import JobConfig, render
from elastic_infra.policy.pod_security import unmet

IMAGE = "registry.example.com/train:1"
SAFE = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def demands(spec: dict[str, Any], metadata: dict[str, Any] | None = None) -> list[str]:
    """What a job's pods do not meet with these overlays."""
    pod = {"spec": spec, **({"metadata": metadata} if metadata else {})}
    config = JobConfig.from_mapping({"image": IMAGE, "script": "train.py", "overlays": {"pod": pod}})
    return unmet(render("llm", config).workload)


def training(**fields: Any) -> dict[str, Any]:
    """A pod's spec with these fields of the training container."""
    return {"containers": [{"name": "pytorch", **fields}]}


def context(**fields: Any) -> dict[str, Any]:
    """The same with its security."""
    return training(securityContext=fields)


@pytest.mark.parametrize(
    ("spec", "demand"),
    [
        (context(runAsNonRoot=False), "runAsNonRoot"),
        ({"securityContext": {"runAsNonRoot": None}}, "runAsNonRoot"),
        ({"securityContext": {"runAsNonRoot": False}, **context(runAsNonRoot=True)}, "runAsNonRoot"),
        (context(runAsUser=0), "runAsUser"),
        (context(runAsUser=0.0), "runAsUser"),
        ({"securityContext": {"runAsUser": 0}}, "runAsUser"),
        (context(seccompProfile={"type": "Unconfined"}), "seccompProfile"),
        ({"securityContext": {"seccompProfile": None}}, "seccompProfile"),
        (context(appArmorProfile={"type": "Unconfined"}), "appArmorProfile"),
        ({"securityContext": {"seLinuxOptions": {"type": "spc_t"}}}, "seLinuxOptions"),
        (context(seLinuxOptions={"role": "sysadm_r"}), "seLinuxOptions"),
        ({"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}}, "sysctls"),
        (context(windowsOptions={"hostProcess": True}), "hostProcess"),
        (context(privileged=True), "privileged"),
        (context(allowPrivilegeEscalation=True), "allowPrivilegeEscalation"),
        (context(capabilities={"drop": ["NET_RAW"]}), "capabilities"),
        (context(capabilities={"add": ["SYS_ADMIN"]}), "capabilities"),
        (context(procMount="Unmasked"), "procMount"),
        (training(ports=[{"containerPort": 80, "hostPort": 80}]), "hostPort"),
        (training(livenessProbe={"httpGet": {"host": "10.0.0.1"}}), "host of a probe"),
        (training(lifecycle={"preStop": {"tcpSocket": {"host": "10.0.0.1"}}}), "host of a probe"),
        ({"volumes": [{"name": "data", "nfs": {"server": "nas", "path": "/"}}]}, "volumes"),
        ({"volumes": [{"name": "root", "hostPath": {"path": "/"}}]}, "volumes"),
        ({"hostPID": True}, "host namespaces"),
        ({"initContainers": [{"name": "agent", "image": IMAGE, "securityContext": {**SAFE, "runAsUser": 0}}]},
         "runAsUser"),
    ],
)  # fmt: skip
def test_each_demand_is_judged(spec: dict[str, Any], demand: str) -> None:
    """What a container says counts in place of its pod's, and no container may break what the pod keeps."""
    assert demands(spec) == [demand]


def test_a_profile_by_annotation_is_judged() -> None:
    """AppArmor's form before there was a field, which clusters still read."""
    annotation = "container.apparmor.security.beta.kubernetes.io/pytorch"

    assert demands({}, {"annotations": {annotation: "unconfined"}}) == ["appArmorProfile"]
    assert demands({}, {"annotations": {annotation: "localhost/ours"}}) == []


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"securityContext": {"runAsNonRoot": None}, **context(runAsNonRoot=True)},
        {"securityContext": {"seccompProfile": None}, **context(seccompProfile={"type": "Localhost"})},
        context(capabilities={"drop": ["ALL", "NET_RAW"], "add": ["NET_BIND_SERVICE"]}),
        context(seLinuxOptions={"type": "container_t", "level": "s0:c1,c2"}),
        context(procMount="Default", privileged=False),
        {"securityContext": {"sysctls": [{"name": "net.ipv4.tcp_rmem", "value": "4096 87380 16777216"}]}},
        {"volumes": [{"name": "data", "csi": {"driver": "s3.csi.example.com"}}]},
        training(livenessProbe={"httpGet": {"port": 80}}, ports=[{"containerPort": 80}]),
    ],
)
def test_what_the_profile_allows_passes(spec: dict[str, Any]) -> None:
    """A rule stricter than the cluster would refuse jobs that run there."""
    assert demands(spec) == []


def test_a_field_of_another_form_is_no_crash() -> None:
    """Overlays are verbatim: the API server says what is wrong with them."""
    assert demands(context(seccompProfile={"type": ["RuntimeDefault"]}, capabilities="ALL")) == [
        "seccompProfile",
        "capabilities",
    ]
