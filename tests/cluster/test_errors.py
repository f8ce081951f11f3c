"""What a user reads when the cluster is not as the program expects it: from `pulumi up`, and from `check`."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import jobs, kube
from tests.cluster.cluster import Cluster, Namespace
from tests.cluster.stack import job_stack
from tests.cluster.testbed import lifecycle
from tests.cluster.testbed.layout import Testbed
from tests.cluster.testbed.operator import CRD
from tests.cluster.waiting import until
from tests.engine.engine import Engine

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
READY, NOT_READY = 0, 1


def check(cluster: Cluster, kubeconfig: Path, folder: Path, *options: str, **changes: Any) -> tuple[int, str]:
    """Runs `elastic-infra check` on a job with these keys: its exit code, and what it says.

    That is on stderr; with `--suggest` it is on stdout.
    """
    settings = {"image": "i", "script": "s.py", "elastic": {"nnodes": "1:3"}, **changes}
    file = folder / "train.json"
    file.write_text(json.dumps(settings))
    path = os.pathsep.join([str(Path(cluster.kubectl).parent), os.environ["PATH"]])
    done = subprocess.run(
        (sys.executable, "-m", "elastic_infra.cli", "check", str(file), *options),
        env={**os.environ, "KUBECONFIG": str(kubeconfig), "PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    said, silent = (done.stdout, done.stderr) if "--suggest" in options else (done.stderr, done.stdout)
    assert silent == ""
    return done.returncode, said


@pytest.fixture
def spare(cluster: Cluster, tmp_path: Path) -> Iterator[tuple[Path, kube.Kube]]:
    """The kubeconfig and the API of a second testbed, whose definitions may be spoilt; skips where there is none."""
    if cluster.testbed is None:
        pytest.skip("definitions are changed only on a testbed of one's own")
    root = tmp_path / "testbed"
    try:
        testbed: Testbed = lifecycle.up(root, lambda _: None)
        yield testbed.kubeconfig, kube.Kube(kube.with_token(testbed.kubeconfig))
    finally:
        lifecycle.down(root, lambda _: None)


def without_rights(space: Namespace, folder: Path) -> Path:
    """The kubeconfig of an account that may do nothing."""
    config = json.loads(space.cluster.run("config", "view", "--raw", "--minify", "--output=json"))
    token = space.cluster.run("-n", space.name, "create", "token", "default").strip()
    config["users"][0]["user"] = {"token": token}
    file = folder / "without_rights"
    file.write_text(json.dumps(config))
    return file


@pytest.mark.usefixtures("metrics")
def test_a_cluster_that_can_run_the_job_is_told_so(space: Namespace, tmp_path: Path) -> None:
    """Nothing stands in the way, an autoscaler and a volume included; how long the operator lives is told beside it."""
    more = {"autoscaling": {"metrics": [{"type": "cpu", "target": 80}]}, "storage": {"checkpoint": {"size": "1Gi"}}}
    resources = {"resources": {"cpu": "1", "memory": "1Gi"}}

    code, said = check(space.cluster, space.cluster.kubeconfig, tmp_path, namespace=space.name, **more, **resources)

    ready, operator = said.splitlines()
    assert ready == f"The cluster can run train in namespace {space.name}."
    assert operator.startswith("The training operator (Kubeflow Trainer v1) gets fixes only and has left the Kubeflow")
    assert re.search(r"Way out: elastic-infra migrate \S+ --to job$", operator)
    assert code == READY


def test_a_namespace_that_does_not_exist_is_named(space: Namespace, engine: Engine, tmp_path: Path) -> None:
    """`up` fails with the namespace's name and that it was not found; `check` says what to do."""
    settings = {**jobs.config(space, jobs.Training()), "namespace": "nowhere"}

    stack = job_stack(engine, "lost", "ours")
    with pytest.raises(AssertionError, match=r'"nowhere" not found'):
        stack.up(settings)
    code, said = check(space.cluster, space.cluster.kubeconfig, tmp_path, namespace="nowhere")

    assert said.startswith("The namespace nowhere does not exist. Create it")
    assert len(said.splitlines()) == 1
    assert code == NOT_READY


def test_a_name_that_is_too_long_creates_nothing(space: Namespace, engine: Engine) -> None:
    """A name that the rendered Service could not have is refused before anything is created."""
    too_long = "j" * 60

    stack = job_stack(engine, too_long, "ours")
    with pytest.raises(AssertionError, match=r"cannot be deployed"):
        stack.up(jobs.config(space, jobs.Training()))

    assert not space.api.list("kubeflow.org/v1", "PyTorchJob", space.name)


def test_an_unreachable_cluster_is_said_to_be_that(cluster: Cluster, tmp_path: Path) -> None:
    """No server listens: one line says so and what to look at, and nothing else is asked."""
    with socket.socket() as bound:  # bound and not listening: no other program can answer
        bound.bind(("127.0.0.1", 0))
        config = json.loads(cluster.run("config", "view", "--raw", "--minify", "--output=json"))
        config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{bound.getsockname()[1]}"
        file = tmp_path / "unreachable"
        file.write_text(json.dumps(config))

        code, said = check(cluster, file, tmp_path)

    assert said.startswith("The cluster cannot be reached: ")
    assert "Check that `kubectl config current-context`" in said
    assert len(said.splitlines()) == 1
    assert code == NOT_READY


def test_an_account_that_the_cluster_does_not_know_is_said_to_be_that(cluster: Cluster, tmp_path: Path) -> None:
    """A wrong token is not a cluster out of reach, and does not appear in the message."""
    config = json.loads(cluster.run("config", "view", "--raw", "--minify", "--output=json"))
    config["users"][0]["user"] = {"token": "expired-token"}
    file = tmp_path / "expired"
    file.write_text(json.dumps(config))

    code, said = check(cluster, file, tmp_path)

    assert said.startswith("The cluster does not know this account: ")
    assert "expired-token" not in said
    assert code == NOT_READY


def test_an_account_without_permission_reads_what_it_lacks(space: Namespace, tmp_path: Path) -> None:
    """Every verb and kind of the job's objects is named, with the namespace, and no fault is invented beside it."""
    code, said = check(space.cluster, without_rights(space, tmp_path), tmp_path, namespace=space.name)

    assert said.startswith(f"This account has no permission in namespace {space.name} to: create configmap, ")
    assert "create pytorchjob.kubeflow.org, patch pytorchjob.kubeflow.org, delete pytorchjob.kubeflow.org" in said
    assert len(said.splitlines()) == 1
    assert code == NOT_READY


def test_a_cluster_without_a_fitting_operator_is_said_to_be_that(
    cluster: Cluster, spare: tuple[Path, kube.Kube], tmp_path: Path
) -> None:
    """PyTorchJob's definition as it was before 1.7, then none: each is told from the other, and from anything else.

    Without Trainer's definitions as well, `--suggest` leaves one target.
    """
    kubeconfig, api = spare
    said: list[str] = []

    def says(start: str) -> bool:
        # The server publishes the description of a changed definition a moment later.
        code, text = check(cluster, kubeconfig, tmp_path)
        said[:] = [text]
        return code == NOT_READY and text.startswith(start) and len(text.splitlines()) == 1

    field = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/nprocPerNode"
    api.call("PATCH", api.path(CRD), [{"op": "remove", "path": field}], "application/json-patch+json")
    until("an old operator to be noticed", lambda: says("The cluster's training operator is older than 1.7"), 60)
    assert "Upgrade the operator" in said[0]

    api.delete(CRD)
    until("a missing definition to be noticed", lambda: says("The cluster has no PyTorchJob"), 60)
    assert "Install Kubeflow's training operator" in said[0]
    code, suggested = check(cluster, kubeconfig, tmp_path, "--suggest")
    operators, own, trainers = suggested.splitlines()
    assert (code, own, operators) == (READY, "job: yes", f"pytorchjob: no: {said[0].rstrip()}")
    assert trainers.startswith("trainjob: no: The cluster has no TrainJob")
