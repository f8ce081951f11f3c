"""What the security options do to a real pod."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.cluster import jobs
from tests.cluster.cluster import MOUNT, Namespace
from tests.cluster.targets import TARGETS

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
JOB = "sealed"
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
