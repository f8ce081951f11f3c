"""What initializers fetch in real pods, by the real clients: git, s3fs at moto's S3, and huggingface_hub at a stand-in.

The servers are pods as well.
"""

from __future__ import annotations

import base64
import itertools
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import jobs, kube
from tests.cluster.cluster import MOUNT, READER, Namespace, is_ready
from tests.cluster.stack import JobStack
from tests.cluster.targets import Target
from tests.cluster.waiting import until
from tests.frameworks import hub

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
JOB = "fetched"
PORT = 8080
FILES = {"config.json": b"{}", "weights/part-1.bin": bytes(range(256)) * 10}
TOKEN = "hub-token"
S3_KEYS = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "key", "AWS_DEFAULT_REGION": "us-east-1"}
HUB = f"""
from hub import Hub
Hub("org/name", "model", {FILES!r}, "{TOKEN}", ("", {PORT})).serve_forever()
"""
FILL = f"""
import s3fs
files = s3fs.S3FileSystem(endpoint_url="http://127.0.0.1:{PORT}")
files.mkdir("corpora")
for name, content in {FILES!r}.items():
    files.pipe(f"corpora/web/{{name}}", content)
files.pipe("corpora/web-2/other", b"other")
"""
GIT = f"""
import os, pathlib, subprocess
root = pathlib.Path("/tmp/code")
for name, content in {FILES!r}.items():
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_bytes(content)
git = ["git", "-C", root, "-c", "user.name=test", "-c", "user.email=test@example.com"]
for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "files"]):
    subprocess.run([*git, *command], check=True)
os.execvp("git", ["git", "daemon", "--export-all", "--base-path=/tmp", "--port={PORT}", "/tmp"])
"""
CHECK = "import importlib.util as found, sys; sys.exit(not all(map(found.find_spec, sys.argv[1:])))"
FOUND = """
import hashlib, pathlib, sys
for file in sorted(pathlib.Path(sys.argv[1]).rglob("*")):
    if file.is_file() and file.name != ".initialized.json" and ".git" not in file.parts:
        print(file.relative_to(sys.argv[1]), hashlib.sha256(file.read_bytes()).hexdigest())
"""


def served(space: Namespace, name: str, *command: str) -> str:
    """The address of a server in a pod of its own, from which other pods fetch."""
    container = {
        "name": "server",
        "image": space.cluster.images[0],
        "command": list(command),
        "env": [{"name": key, "value": value} for key, value in S3_KEYS.items()],
        "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1},
        "resources": {"requests": {"cpu": "50m", "memory": "200Mi"}, "limits": {"memory": "600Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "programs", "mountPath": "/programs"}],
    }
    spec = {
        "containers": [container],
        "volumes": [{"name": "programs", "configMap": {"name": "programs"}}],
        "securityContext": {"runAsUser": 1000, "runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "terminationGracePeriodSeconds": 0,
    }
    pod = space.apply({**space.pod(name), "spec": spec})
    until(name, lambda: is_ready(space.api.get(pod)), describe=space.describe)
    return f"{space.api.get(pod)['status']['podIP']}:{PORT}"


@pytest.fixture
def servers(space: Namespace) -> dict[str, str]:
    """The addresses of a Hub, an S3 and a git server, all with the files; skips where the image has no clients."""
    python = ("-n", space.name, "exec", READER, "--", "python3", "-c")
    try:
        space.cluster.run(*python, CHECK, "huggingface_hub", "moto", "s3fs")
    except AssertionError:
        pytest.skip("the image has not all of huggingface_hub, moto and s3fs")
    programs = {"hub.py": Path(hub.__file__).read_text(), "serve_hub.py": HUB, "serve_git.py": GIT}
    space.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "programs"}, "data": programs})
    found = {
        "hub": served(space, "hub", "python3", "/programs/serve_hub.py"),
        "git": served(space, "git", "python3", "/programs/serve_git.py"),
        "s3": served(space, "s3", "python3", "-m", "moto.server", "-H", "0.0.0.0", "-p", str(PORT)),
    }
    space.cluster.run("-n", space.name, "exec", "s3", "--", "python3", "-c", FILL)
    return found


def test_each_pod_has_what_was_fetched(
    space: Namespace, stack: JobStack, target: Target, servers: dict[str, str]
) -> None:
    """A model and code in the shared volume, the model by a token from a Secret; data on each node. Nothing else."""
    secret: kube.Object = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hub"}}
    space.apply({**secret, "data": {"token": base64.b64encode(TOKEN.encode()).decode()}})
    of_hub = {
        "HF_ENDPOINT": f"http://{servers['hub']}",
        "HF_HUB_DISABLE_XET": "1",
        "HF_TOKEN": {"secret": "hub", "key": "token"},
    }
    of_s3 = {**S3_KEYS, "AWS_ENDPOINT_URL": f"http://{servers['s3']}"}
    places = {"code": f"{MOUNT}/cache/code", "data": "/data/web", "model": f"{MOUNT}/cache/model"}
    settings: dict[str, Any] = {
        **jobs.config(space, jobs.Training(), target=target.name, elastic={"nnodes": 2, "nproc_per_node": 1}),
        "initializers": [
            {"name": "model", "kind": "huggingface", "source": "org/name", "path": places["model"], "env": of_hub},
            {"name": "code", "kind": "git", "source": f"git://{servers['git']}/code", "path": places["code"]},
            {"name": "data", "kind": "s3", "source": "s3://corpora/web", "path": places["data"], "env": of_s3},
        ],
    }
    stack.up(settings)
    jobs.await_world(space, 2)
    found = {
        (index, what): files(space, pod["metadata"]["name"], place)
        for index, pod in target.nodes(space, JOB).items()
        for what, place in places.items()
    }
    jobs.tell_to_finish(space)

    assert sorted(found) == sorted(itertools.product((0, 1), places))
    assert set(found.values()) == {
        "".join(f"{name} {sha256(content).hexdigest()}\n" for name, content in FILES.items())
    }


def files(space: Namespace, pod: str, place: str) -> str:
    """The files below a folder of a pod, each with the SHA-256 of its content."""
    return space.cluster.run("-n", space.name, "exec", pod, "--", "python3", "-c", FOUND, place)
