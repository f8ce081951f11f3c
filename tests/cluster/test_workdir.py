"""Local code on a real cluster: pods unpack it, another content replaces them, and nothing is left over."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from elastic_infra.manifests.workdir import ARCHIVE
from elastic_infra.operations.failures import last_failure
from tests.cluster import jobs
from tests.cluster.cluster import MOUNT, READER, Namespace
from tests.cluster.stack import JobStack
from tests.cluster.targets import Target
from tests.cluster.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
JOB = "local-code"
TRAIN = f"""
import os, time
from pathlib import Path
from lib.version import VERSION
Path("{MOUNT}", f"ran-{{VERSION}}-{{os.environ['ELASTIC_INFRA_REPLICA_INDEX']}}").write_text(os.getcwd())
while not Path("{MOUNT}/finish").exists():
    time.sleep(0.2)
"""
FETCH = f"""
import time
print("x", file=open("{MOUNT}/fetches", "a"))
time.sleep(3)
print(1, file=open("set", "w"))
"""


def code(folder: Path, version: int) -> Path:
    """A script in a folder of its own, and a package beside that."""
    for path, text in {"bin/train.py": TRAIN, "lib/version.py": f"VERSION = {version}\n"}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


def archives(space: Namespace) -> list[str]:
    """Names of the ConfigMaps with code."""
    found = space.api.list("v1", "ConfigMap", space.name)
    return [each["metadata"]["name"] for each in found if ARCHIVE in each.get("binaryData", {})]


def await_version(space: Namespace, version: int) -> None:
    """Returns once both nodes have run this code."""
    seen = [f"{MOUNT}/ran-{version}-{index}" for index in range(2)]

    def both() -> bool:
        found = space.cluster.run("-n", space.name, "exec", READER, "--", "ls", MOUNT).split()
        return all(Path(path).name in found for path in seen)

    until(f"version {version} on both nodes", both, jobs.TRAINING_SECONDS, describe=space.describe)


def test_pods_run_the_folders_code_and_another_content_replaces_them(
    space: Namespace, stack: JobStack, tmp_path: Path
) -> None:
    """Under the restricted profile and with a read-only image; the old ConfigMap goes with the pods that had it."""
    settings: dict[str, Any] = {
        **jobs.config(space, jobs.Training(), target="job", elastic={"nnodes": 2, "nproc_per_node": 1}),
        "script": "bin/train.py",
        "workdir": {"path": str(code(tmp_path, 1))},
        "security": {"read_only_root": True},
    }
    created = stack.up(settings)
    await_version(space, 1)
    first = archives(space)
    again = stack.up(settings)
    code(tmp_path, 2)
    changed = stack.up(settings)
    await_version(space, 2)
    second = archives(space)
    jobs.tell_to_finish(space)

    assert created["workdir"] == "create"
    assert again == {}
    assert {"workdir", "workload"} <= changed.keys()
    assert changed.keys().isdisjoint({"launcher", "service", "token"})
    assert (len(first), len(second)) == (1, 1)
    assert first != second
    assert space.read("ran-2-0") == "/workspace"


def test_pods_share_what_one_of_them_fetched(space: Namespace, stack: JobStack, target: Target, tmp_path: Path) -> None:
    """On nodes that are fit: one download into the shared volume, by a program of the job's own code."""
    code(tmp_path, 1)
    (tmp_path / "fetch.py").write_text(FETCH)
    command = ["python3", "/workspace/fetch.py"]
    settings: dict[str, Any] = {
        **jobs.config(space, jobs.Training(), target=target.name, elastic={"nnodes": 2, "nproc_per_node": 1}),
        "script": "bin/train.py",
        "workdir": {"path": str(tmp_path)},
        "health_check": {"disk": "1Mi"},
        "initializers": [{"name": "data", "kind": "command", "command": command, "path": f"{MOUNT}/cache/set"}],
    }
    stack.up(settings)
    await_version(space, 1)
    jobs.tell_to_finish(space)

    assert space.read("fetches").split() == ["x"]
    assert space.read("cache/set/set").split() == ["1"]


def test_a_node_that_is_not_fit_is_named_in_the_pods_status(space: Namespace, stack: JobStack, tmp_path: Path) -> None:
    """Nothing trains there; the reason is where `kubectl describe` and `elastic-infra status` look."""
    settings: dict[str, Any] = {
        **jobs.config(space, jobs.Training(), target="job", elastic={"nnodes": 2, "nproc_per_node": 1}),
        "script": "bin/train.py",
        "workdir": {"path": str(code(tmp_path, 1))},
        "health_check": {"disk": "1Pi"},
    }
    stack.up(settings)

    def said() -> str:
        pods = space.api.list("v1", "Pod", space.name, f"batch.kubernetes.io/job-name={JOB}")
        failures = (failure for pod in pods for failure in [last_failure(pod, [pod], [])])
        return next((failure.what for failure in failures if failure is not None), "")

    until("a failed check", said, jobs.TRAINING_SECONDS, describe=space.describe)

    assert re.match(
        r"init container health exited with code 200 \(Error\): health: cluster node \S+ is not fit", said()
    )
    assert "GiB free, and 1.05e+06 GiB are asked for" in said()
