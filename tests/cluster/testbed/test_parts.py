"""What the parts of the testbed are made of, as data: no part runs here."""

from __future__ import annotations

import io
import json
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.testbed import (
    cgroups,
    containerd,
    images,
    kubelet,
    kueue,
    kwok,
    layout,
    network,
    programs,
    sandbox,
    supervisor,
)
from tools import modules
from tools.run import ROOT

PROGRAMS = (
    *("cni", "coredns", "containerd", "ctr", "etcd", "kube-apiserver", "kube-controller-manager"),
    *("kube-scheduler", "kubelet", "training-operator"),
)
BED = layout.Testbed(
    root="/testbed",
    port=1234,
    programs={name: f"/programs/{name}" for name in PROGRAMS},
    token="t0ken",
    python=("/python", "/venv"),
    operator_crd="/crd.yaml",
)


def test_every_part_comes_after_what_it_needs() -> None:
    """The order of the parts is a topological order, and names are unique."""
    names: list[str] = []
    for make in supervisor.PARTS:
        part = make(BED)

        assert set(part.needs) <= set(names)
        assert part.name not in names
        names.append(part.name)


def test_the_check_of_a_change_builds_what_the_testbed_runs_and_no_more() -> None:
    """Each further program is minutes of a bare machine; the engine that the one test there wants is set-up's."""
    (line,) = re.findall(r'^export TOOLS="(.*)"$', (ROOT / ".ci/run").read_text(), re.MULTILINE)
    run = {name for name, tool in modules.load_all().items() if set(tool.programs) & {*programs.BUILT.values()}}

    assert set(line.split()) == run


def test_no_part_writes_outside_the_testbed() -> None:
    """Everything a part writes goes away with the testbed's folder."""
    files = [path for make in supervisor.PARTS for path in make(BED).files]

    assert files
    assert all(path.is_relative_to(BED.root) for path in files)


def test_the_testbed_survives_a_round_trip(tmp_path: Path) -> None:
    """The supervisor reads the testbed that `up` wrote, and no other user can read its token."""
    testbed = layout.Testbed(**{**vars(BED), "root": str(tmp_path)})
    testbed.write()

    assert testbed == layout.Testbed.read(tmp_path)
    assert (tmp_path / "testbed.json").stat().st_mode & 0o077 == 0


def test_containerd_reads_its_settings() -> None:
    """The settings are TOML and name the images and folders of this testbed."""
    tomllib = pytest.importorskip("tomllib", reason="came with Python 3.11")
    settings = tomllib.loads(containerd.config(BED))
    cri = settings["plugins"]["io.containerd.grpc.v1.cri"]

    assert cri["sandbox_image"] == layout.PAUSE_IMAGE
    assert cri["cni"]["conf_dir"] == "/testbed/cni"


def test_pods_get_addresses_of_the_bridge() -> None:
    """The bridge's address, where DNS listens, is the gateway that the pods' network names."""
    plugin: Any = network.cni()["plugins"]
    ranges = plugin[0]["ipam"]["ranges"]

    assert ranges == [[{"subnet": layout.POD_NETWORK, "gateway": layout.NODE_ADDRESS}]]
    assert kubelet.config(BED)["clusterDNS"] == [layout.NODE_ADDRESS]


def test_the_beds_mounts_cover_the_machines_folders() -> None:
    """Only folders of the testbed are mounted, so that no program inside writes to the machine's."""
    binds = [command for command in sandbox.mounts(BED) if "--bind" in command]

    assert all(source.startswith("/testbed/") for *_, source, _ in binds)
    assert {target for *_, target in binds} == {*sandbox.HIDDEN.values(), "/etc/hosts"}


def test_the_image_is_one_layer_with_a_place_for_every_mount() -> None:
    """Both images share the layer; it has the folders, and their parents, that are mounted into it."""
    with tarfile.open(
        fileobj=io.BytesIO(images.archive(["/opt/python", "/srv/a/venv"], {"/lib64/ld.so": b"x"}))
    ) as archive:
        manifest = json.loads(_member(archive, "manifest.json"))
        with tarfile.open(fileobj=io.BytesIO(_member(archive, "layer.tar"))) as layer:
            names = layer.getnames()

    assert [layout.PAUSE_IMAGE, *layout.IMAGES] == [tag for entry in manifest for tag in entry["RepoTags"]]
    assert {"usr", "opt/python", "srv", "srv/a", "srv/a/venv", "tmp", "usr/lib64/ld.so"} <= set(names)
    assert len(names) == len(set(names))


def test_the_image_is_the_same_every_time() -> None:
    """No clock and no machine is in the image."""
    assert images.archive(["/venv"], {}) == images.archive(["/venv"], {})


def test_the_machines_folders_are_mounted_read_only() -> None:
    """A container sees the machine's programs and cannot change them; its other mounts stay."""
    spec = images.with_mounts({"mounts": [{"destination": "/proc"}], "process": {}}, ["/usr"])

    assert [m["destination"] for m in spec["mounts"]] == ["/proc", "/usr"]
    assert "ro" in spec["mounts"][1]["options"]
    assert spec["process"] == {}


@pytest.mark.parametrize("controllers", [("cpu", "cpuset", "memory"), ()])
def test_control_groups_come_and_go(tmp_path: Path, controllers: tuple[str, ...]) -> None:
    """In every hierarchy of v1, or the only one of v2, the group is made and removed with its children."""
    hierarchies = [tmp_path / name for name in controllers] or [tmp_path]
    for hierarchy in hierarchies:
        hierarchy.mkdir(exist_ok=True)
        (hierarchy / "cgroup.procs").touch()
    if not controllers:
        (tmp_path / "cgroup.controllers").touch()

    cgroups.create("testbed", tmp_path)
    for hierarchy in hierarchies:
        (hierarchy / "testbed" / "pods" / "one").mkdir(parents=True)
    cgroups.remove("testbed", tmp_path)

    assert not any((hierarchy / "testbed").exists() for hierarchy in hierarchies)


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    assert file is not None
    return file.read()


def test_kueue_is_asked_only_of_what_it_serves() -> None:
    """A webhook without a server behind it refuses every pod of the cluster."""
    kinds = {
        "jobs": "batch",
        "pytorchjobs": "kubeflow.org",
        "workloads": "kueue.x-k8s.io",
        "pods": "",
        "deployments": "apps",
        "mpijobs": "kubeflow.org",
        "jobsets": "jobset.x-k8s.io",
    }
    asked = [
        resource
        for resource, group in kinds.items()
        if kueue.KUEUE.serves({"rules": [{"apiGroups": [group], "resources": [resource]}]})
    ]

    assert asked == ["jobs", "pytorchjobs", "workloads"]


def test_a_node_without_a_machine_takes_no_pod_that_does_not_ask_for_it() -> None:
    """Its taint is what the jobs of its tests tolerate, and its resources are all free."""
    made: Any = kwok.node("one", {"example.com/gpu": "1"}, labels={"zone": "a"})
    other: Any = kwok.node("two", {}, taint={"key": "spot", "effect": "NoSchedule"})

    assert made["spec"]["taints"] == [{"key": kwok.TOLERATION["key"], "effect": "NoSchedule"}]
    assert other["spec"]["taints"] == [{"key": "spot", "effect": "NoSchedule"}]
    assert {kwok.KEY: "", "zone": "a"}.items() <= made["metadata"]["labels"].items()
    assert made["status"]["allocatable"] == made["status"]["capacity"]
    assert made["status"]["capacity"]["example.com/gpu"] == "1"


def test_a_pod_without_a_machine_never_ends_by_itself() -> None:
    """Every stage that ends a pod waits until the pod is to go, and is deleted only after it has failed as if told."""
    stages = {stage["metadata"]["name"]: stage["spec"] for stage in kwok.ends()}
    going = {"key": ".metadata.deletionTimestamp", "operator": "Exists"}

    assert all(going in spec["selector"]["matchExpressions"] for spec in stages.values())
    assert "exitCode: 143" in stages["pod-end"]["next"]["statusTemplate"]
    assert stages["pod-delete"]["next"] == {"delete": True}
