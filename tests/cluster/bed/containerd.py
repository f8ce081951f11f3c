"""containerd with runc: runs the pods' containers."""

from __future__ import annotations

from tests.cluster.bed import images
from tests.cluster.bed.component import Component
from tests.cluster.bed.layout import PAUSE_IMAGE, Bed


def component(bed: Bed) -> Component:
    """Ready with its images loaded."""
    return Component(
        "containerd",
        command=(bed.program("containerd"), "--config", str(bed.path("containerd.toml"))),
        needs=("network",),
        files={bed.path("containerd.toml"): config(bed)},
        env={"GOMAXPROCS": "2"},
        prepare=lambda: images.write_base_spec(bed),
        ready=bed.path("containerd.sock").exists,
        finish=lambda: images.load(bed),
    )


def config(bed: Bed) -> str:
    """Containerd's settings.

    The native snapshotter copies: the image is empty folders, and it works on any file system. OOM scores
    are restricted because a machine without CAP_SYS_RESOURCE cannot lower them.
    """
    return f"""\
version = 2
root = "{bed.path("containerd")}"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs"]

[grpc]
address = "{bed.path("containerd.sock")}"

[plugins."io.containerd.grpc.v1.cri"]
restrict_oom_score_adj = true
sandbox_image = "{PAUSE_IMAGE}"

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{bed.program("cni")}"
conf_dir = "{bed.path("cni")}"

[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
base_runtime_spec = "{bed.path("base-spec.json")}"
"""
