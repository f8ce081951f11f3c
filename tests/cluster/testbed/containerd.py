"""containerd with runc: runs the pods' containers."""

from __future__ import annotations

from tests.cluster.testbed import images
from tests.cluster.testbed.component import Component
from tests.cluster.testbed.layout import PAUSE_IMAGE, Testbed


def component(testbed: Testbed) -> Component:
    """Ready with its images loaded."""
    return Component(
        "containerd",
        command=(testbed.program("containerd"), "--config", str(testbed.path("containerd.toml"))),
        needs=("network",),
        files={testbed.path("containerd.toml"): config(testbed)},
        env={"GOMAXPROCS": "2"},
        prepare=lambda: images.write_base_spec(testbed),
        ready=testbed.path("containerd.sock").exists,
        finish=lambda: images.load(testbed),
    )


def config(testbed: Testbed) -> str:
    """Containerd's settings.

    The native snapshotter copies: the image is empty folders, and it works on any file system. OOM scores
    are restricted because a machine without CAP_SYS_RESOURCE cannot lower them.
    """
    return f"""\
version = 2
root = "{testbed.path("containerd")}"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs"]

[grpc]
address = "{testbed.path("containerd.sock")}"

[plugins."io.containerd.grpc.v1.cri"]
restrict_oom_score_adj = true
sandbox_image = "{PAUSE_IMAGE}"

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{testbed.program("cni")}"
conf_dir = "{testbed.path("cni")}"

[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
base_runtime_spec = "{testbed.path("base-spec.json")}"
"""
