"""The kubelet: makes this machine the testbed's only cluster node."""

from __future__ import annotations

import json

from tests.cluster import kube
from tests.cluster.testbed import cgroups
from tests.cluster.testbed.component import Component
from tests.cluster.testbed.layout import NODE_ADDRESS, NODE_NAME, Testbed


def component(testbed: Testbed) -> Component:
    """Ready when the API server calls the cluster node ready."""
    settings = testbed.path("kubelet.json")
    return Component(
        "kubelet",
        command=(
            testbed.program("kubelet"),
            f"--config={settings}",
            f"--kubeconfig={testbed.kubeconfig}",
            f"--cert-dir={testbed.path('kubelet')}",
            f"--hostname-override={NODE_NAME}",
            f"--node-ip={NODE_ADDRESS}",
        ),
        needs=("apiserver", "containerd"),
        files={settings: json.dumps(config(testbed)), testbed.path("resolv.conf"): ""},
        prepare=lambda: cgroups.create(testbed.cgroup),
        ready=lambda: is_ready(testbed),
    )


def config(testbed: Testbed) -> dict[str, object]:
    """The kubelet's settings; anonymous access is safe because nothing outside the testbed reaches its port."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{testbed.cgroup}",
        "enforceNodeAllocatable": ["pods"],
        "containerRuntimeEndpoint": f"unix://{testbed.path('containerd.sock')}",
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "clusterDNS": [NODE_ADDRESS],
        "clusterDomain": "cluster.local",
        "resolvConf": str(testbed.path("resolv.conf")),
        "failSwapOn": False,
        "evictionHard": {"memory.available": "200Mi"},
        "imageGCHighThresholdPercent": 100,  # images come from no registry: a full disk must not cost them
        "syncFrequency": "5s",
        "maxPods": 60,
    }


def is_ready(testbed: Testbed) -> bool:
    """Whether the cluster node can take pods."""
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE_NAME}}
    live = kube.Kube(kube.with_token(testbed.kubeconfig)).find(node)
    conditions = live["status"].get("conditions", []) if live else []
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
