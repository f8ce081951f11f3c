"""The kubelet: makes this machine the bed's only cluster node."""

from __future__ import annotations

import json

from tests.cluster import kube
from tests.cluster.bed import cgroups
from tests.cluster.bed.component import Component
from tests.cluster.bed.layout import NODE_ADDRESS, NODE_NAME, Bed


def component(bed: Bed) -> Component:
    """Ready when the API server calls the cluster node ready."""
    settings = bed.path("kubelet.json")
    return Component(
        "kubelet",
        command=(
            bed.program("kubelet"),
            f"--config={settings}",
            f"--kubeconfig={bed.kubeconfig}",
            f"--cert-dir={bed.path('kubelet')}",
            f"--hostname-override={NODE_NAME}",
            f"--node-ip={NODE_ADDRESS}",
        ),
        needs=("apiserver", "containerd"),
        files={settings: json.dumps(config(bed)), bed.path("resolv.conf"): ""},
        prepare=lambda: cgroups.create(bed.cgroup),
        ready=lambda: is_ready(bed),
    )


def config(bed: Bed) -> dict[str, object]:
    """The kubelet's settings; anonymous access is safe because nothing outside the bed reaches its port."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{bed.cgroup}",
        "enforceNodeAllocatable": ["pods"],
        "containerRuntimeEndpoint": f"unix://{bed.path('containerd.sock')}",
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "clusterDNS": [NODE_ADDRESS],
        "clusterDomain": "cluster.local",
        "resolvConf": str(bed.path("resolv.conf")),
        "failSwapOn": False,
        "evictionHard": {"memory.available": "200Mi"},
        "syncFrequency": "5s",
        "maxPods": 60,
    }


def is_ready(bed: Bed) -> bool:
    """Whether the cluster node can take pods."""
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE_NAME}}
    live = kube.Kube(kube.with_token(bed.kubeconfig)).find(node)
    conditions = live["status"].get("conditions", []) if live else []
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
