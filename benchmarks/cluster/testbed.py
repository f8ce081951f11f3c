"""The test cluster for the benchmarks: started where it does not run yet, and left running."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from tests.cluster import kube
from tests.cluster.cluster import Cluster, Namespace, namespace
from tests.cluster.testbed import lifecycle, programs
from tests.cluster.testbed.__main__ import DEFAULT_DIR
from tests.cluster.testbed.layout import IMAGES


@contextmanager
def running(folder: Path = DEFAULT_DIR) -> Iterator[tuple[Cluster, kube.Kube]]:
    """The cluster of this folder, and a client of its API."""
    testbed = lifecycle.up(folder, print)
    cluster = Cluster(programs.built("kubectl"), testbed.kubeconfig, IMAGES, folder)
    with tempfile.TemporaryDirectory() as own, cluster.client(Path(own)) as api:
        yield cluster, api


def fresh(cluster: Cluster, api: kube.Kube, name: str) -> AbstractContextManager[Namespace]:
    """A namespace of its own for one measurement, whose name begins so."""
    return namespace(cluster, api, f"{name}-{secrets.token_hex(3)}", {}, small=False)
