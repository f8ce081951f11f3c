"""`elastic-infra cleanup` on a real cluster: what nothing mounts goes, what a template names stays."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from elastic_infra import JobConfig, render
from elastic_infra.manifests.launcher import ARCHIVE
from elastic_infra.manifests.metadata import MANAGED_BY
from tests.cluster.cluster import Namespace

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


def cleanup(space: Namespace, *options: str) -> list[str]:
    """Runs the command in the namespace: the lines that it prints."""
    path = os.pathsep.join([str(Path(space.cluster.kubectl).parent), os.environ["PATH"]])
    done = subprocess.run(
        (sys.executable, "-m", "elastic_infra.cli", "cleanup", "-n", space.name, "--min-age", "0", *options),
        env={**os.environ, "KUBECONFIG": str(space.cluster.kubeconfig), "PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def config_map(name: str) -> dict[str, Any]:
    """A launcher of an earlier version."""
    metadata = {"name": name, "labels": {MANAGED_BY: "elastic-infra"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "binaryData": {ARCHIVE: ""}}


def test_only_what_no_template_names_is_deleted(space: Namespace) -> None:
    """A suspended job has no pod, and its template counts."""
    for name in ("kept", "gone"):
        space.apply(config_map(name))
    config = {"image": "i", "script": "s.py", "namespace": space.name, "run_policy": {"suspend": True}}
    space.apply(render("train", JobConfig.from_mapping({**config, "elastic": {"nnodes": 2}}), "kept").workload)

    assert cleanup(space) == [f"{space.name}/gone"]
    assert cleanup(space, "--delete") == [f"{space.name}/gone deleted"]
    assert cleanup(space) == []
    assert space.api.find(space.named("v1", "ConfigMap", "kept")) is not None
    assert space.api.find(space.named("v1", "ConfigMap", "gone")) is None
