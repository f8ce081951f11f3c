"""One cluster for all tests of this folder: the bed, or with `--kubeconfig` the user's own."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import jobs, kube
from tests.cluster.bed import lifecycle, programs
from tests.cluster.bed.__main__ import DEFAULT_DIR
from tests.cluster.bed.layout import IMAGES
from tests.cluster.cluster import Cluster, Namespace, namespace


def pytest_addoption(parser: pytest.Parser) -> None:
    """Says which cluster the tests use."""
    group = parser.getgroup("cluster")
    group.addoption("--kubeconfig", type=Path, help="test on this cluster instead of a bed on this machine")
    group.addoption("--image", action="append", default=[], help="with --kubeconfig: an image with torch, twice")
    group.addoption("--storage-class", default="", help="with --kubeconfig: a class of ReadWriteMany volumes")
    group.addoption("--cluster-dir", type=Path, default=DEFAULT_DIR, help="the bed's folder (%(default)s)")


@pytest.fixture(scope="session")
def cluster(pytestconfig: pytest.Config) -> Iterator[Cluster]:
    """A running cluster; skips, with the reason, where there can be none.

    A bed that runs already is used and left running.
    """
    try:
        kubectl = programs.built("kubectl")
    except programs.MissingProgramError as error:
        pytest.skip(f"no kubectl: {error}")
    own = pytestconfig.getoption("kubeconfig")
    if own is not None:
        images = tuple(pytestconfig.getoption("image"))
        yield Cluster(kubectl, own, (images[0], images[-1]), None, pytestconfig.getoption("storage_class"))
        return
    root = pytestconfig.getoption("cluster_dir")
    was_up = lifecycle.holder(root) is not None
    try:
        bed = lifecycle.up(root, lambda _: None)
    except lifecycle.MachineError as error:
        pytest.skip(f"no cluster: {error}")
    yield Cluster(kubectl, bed.kubeconfig, IMAGES, bed.path("volumes"), "")
    if not was_up:
        lifecycle.down(root, lambda _: None)


@pytest.fixture(scope="session")
def api(cluster: Cluster) -> Iterator[kube.Kube]:
    """The cluster's API."""
    with tempfile.TemporaryDirectory() as folder, cluster.client(Path(folder)) as client:
        yield client


@pytest.fixture
def space(cluster: Cluster, api: kube.Kube, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    """A namespace that enforces the `restricted` profile and holds the toy, for one test."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    name = request.node.originalname.removeprefix("test_").replace("_", "-")[:40]
    with namespace(cluster, api, f"{name}-{secrets.token_hex(3)}", labels) as own:
        own.apply(jobs.toy_config_map())
        yield own
