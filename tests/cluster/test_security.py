"""What the security options do to a real pod."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path

import pytest

from elastic_infra.launcher import exit_codes
from elastic_infra.manifests import launcher
from tests.cluster import jobs
from tests.cluster.cluster import MOUNT, Namespace, restarts
from tests.cluster.targets import TARGETS, Target
from tests.cluster.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
JOB = "sealed"
VERIFIED = {"launcher": {"verify": True}}
HAS_TOKEN = "import glob; print(glob.glob('/var/run/secrets/**/token', recursive=True))"
COMPILE = f"""
import errno, json, os, tempfile
import torch
import torch.distributed
torch.distributed.init_process_group("gloo")
closed = []
for folder in ("/", "/usr", "/etc", "/opt", "/var"):
    try:
        tempfile.TemporaryFile(dir=folder)
    except OSError as error:
        closed.append(error.errno in (errno.EROFS, errno.EACCES, errno.ENOENT))
compiled = torch.compile(lambda x: (x.sin() * 2).sum())
value = float(compiled(torch.ones(8)))
for name in ("TRITON_CACHE_DIR", "XDG_CACHE_HOME", "TMPDIR"):
    folder = os.environ.get(name, tempfile.gettempdir())
    os.makedirs(folder, exist_ok=True)
    open(os.path.join(folder, "written"), "w").close()
kernels = [file for _, _, files in os.walk(os.environ["TORCHINDUCTOR_CACHE_DIR"]) for file in files]
with open("{MOUNT}/compiled.json", "w") as file:
    root = os.statvfs("/").f_flag & os.ST_RDONLY
    json.dump({{"closed": closed, "read_only": bool(root), "value": value, "kernels": len(kernels)}}, file)
"""


def test_torch_compiles_with_a_read_only_root(space: Namespace) -> None:
    """The launcher, gloo and inductor with its compiler write to /tmp and HOME alone, where the caches are."""
    if space.cluster.testbed and any(Path(each).is_relative_to("/tmp") for each in (sys.prefix, sys.base_prefix)):
        pytest.skip("the pods' own /tmp hides the Python of this checkout, which lies there")
    training, target = jobs.Training(), TARGETS["job"]
    space.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "compile"}, "data": {"c.py": COMPILE}})
    settings = jobs.config(
        space,
        training,
        target="job",
        elastic={"nnodes": 1},
        script="/compile/c.py",
        security={"read_only_root": True},
        resources={"memory": "3Gi"},
    )
    settings["env"]["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    settings["storage"]["volumes"] = [{"name": "compile", "configmap": "compile"}]
    settings["storage"]["mounts"] = [{"volume": "compile", "mount_path": "/compile"}]
    jobs.submit(space, JOB, settings, "ours")
    target.await_end(space, JOB)
    found = json.loads(space.read("compiled.json"))

    assert found["closed"] == [True] * 5
    assert found["read_only"]
    assert found["value"] == pytest.approx(13.4635, abs=1e-3)
    assert found["kernels"] > 0


@pytest.mark.parametrize("target", TARGETS.values(), ids=list(TARGETS))
def test_a_launcher_that_is_verified_trains_to_the_end(space: Namespace, target: Target) -> None:
    """The kubelet mounts the archive as a file, and the store and both nodes find that it is the right one.

    All of them run as the job's own account, and none has a token of it.
    """
    training, own = jobs.Training(), {"own_service_account": True}
    target.start(space, JOB, target.config(space, training, security=own, **VERIFIED))
    jobs.await_world(space, 2)
    pods = space.api.list("v1", "Pod", space.name, f"app.kubernetes.io/instance={JOB}")
    names = [pod["metadata"]["name"] for pod in target.nodes(space, JOB).values()]
    tokens = [space.cluster.run("-n", space.name, "exec", name, "--", "python3", "-c", HAS_TOKEN) for name in names]
    jobs.tell_to_finish(space)
    target.await_end(space, JOB)

    assert len(pods) >= 3, "the nodes and the store"
    assert {pod["spec"]["serviceAccountName"] for pod in pods} == {JOB}
    assert not any("serviceAccountToken" in json.dumps(pod["spec"]["volumes"]) for pod in pods)
    assert [said.strip() for said in tokens] == ["[]"] * 2
    jobs.check_result(space, training)


def test_a_launcher_that_was_replaced_fails_the_job_at_once(space: Namespace, target: Target) -> None:
    """One that can change stands under its name: no pod runs any of it, none is tried again, and each says why."""
    settings = jobs.config(space, jobs.Training(), target=target.name, elastic={"nnodes": "1:2"}, **VERIFIED)
    for manifest in jobs.objects(JOB, settings, "ours"):
        if launcher.ARCHIVE in manifest.get("binaryData", {}):
            encoded = base64.b64encode(launcher.archive() + b"\0").decode()
            space.apply({**manifest, "binaryData": {launcher.ARCHIVE: encoded}, "immutable": False})
        else:
            space.apply(manifest)
    until("the end", lambda: "Failed" in target.says(space, JOB), jobs.TRAINING_SECONDS, describe=space.describe)
    picked = f"app.kubernetes.io/instance={JOB},app.kubernetes.io/component=worker"
    pods = space.api.list("v1", "Pod", space.name, picked)
    states = [each["status"]["containerStatuses"][0]["state"] for each in pods]
    ends = [state["terminated"] for state in states if "terminated" in state]
    told = [each for job in space.api.list("batch/v1", "Job", space.name) for each in job["status"]["conditions"]]
    reasons = {each["reason"] for each in told if each["type"] == "Failed"}

    assert reasons == (set() if target.kind == "PyTorchJob" else {"PodFailurePolicy"})
    assert {each["exitCode"] for each in ends} == {exit_codes.USAGE}
    assert all("is not the launcher that this job was made with" in each["message"] for each in ends)
    assert len({pod["metadata"]["labels"][target.index] for pod in pods}) == len(pods)
    assert sum(map(restarts, pods)) == 0
    assert space.lines("*.jsonl") == []
