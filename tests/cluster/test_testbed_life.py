"""The testbed's own life: up twice, found half dead, down without a trace. A second testbed beside the shared one."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.testbed import cgroups, lifecycle
from tests.cluster.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


@pytest.fixture
def root(cluster: Cluster, tmp_path: Path) -> Iterator[Path]:
    """The folder of a testbed that is down afterwards; skips where there is no testbed."""
    if cluster.testbed is None:
        pytest.skip("a cluster of the user's own has its own life")
    yield tmp_path / "testbed"
    lifecycle.down(tmp_path / "testbed", lambda _: None)


def processes_in(namespace: str) -> set[int]:
    """Processes in a network namespace."""
    found = set()
    for link in Path("/proc").glob("[0-9]*/ns/net"):
        with suppress(OSError):
            if str(link.readlink()) == namespace:
                found.add(int(link.parts[2]))
    return found


def test_a_testbed_comes_back_and_leaves_nothing(root: Path) -> None:
    """`up` twice is one testbed; a testbed that lost a part is rebuilt; `down` leaves no process, mount or group."""
    first = lifecycle.up(root, lambda _: None)
    again = lifecycle.up(root, lambda _: None)
    lifecycle.send(root, "etcd", signal.SIGKILL)
    until("the loss to be seen", lambda: not lifecycle.status(root)[1], 30)
    third = lifecycle.up(root, lambda _: None)
    inside = f"/proc/{lifecycle.first_process(root)}/ns/net"
    namespace = str(Path(inside).readlink())
    before = processes_in(namespace)

    lifecycle.down(root, lambda _: None)

    assert again == first
    assert third.token != first.token
    assert len(before) > 5, "the parts of the control plane and the node"
    assert processes_in(namespace) == set()
    assert str(root) not in Path("/proc/self/mountinfo").read_text()
    assert not any((hierarchy / first.cgroup).exists() for hierarchy in cgroups.hierarchies())
    assert not root.exists()
