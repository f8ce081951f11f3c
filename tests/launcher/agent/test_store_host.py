"""Which node serves the store."""

from __future__ import annotations

import errno
import socket
from collections.abc import Collection, Mapping

import pytest

from elastic_infra.launcher.agent.store_host import Here, reachable, reserve_port, serves_store

HERE = Here("pod-host", "job-worker-2", 2, ("10.0.0.7", "fd00::7"))
NAMES: Mapping[str, Collection[str]] = {
    "alias": ("10.0.0.7",),
    "local-alias": ("127.0.1.1",),
    "headless": ("10.0.0.7", "10.0.0.8"),
    "elsewhere": ("10.0.0.8",),
}

CASES = [
    ("localhost", True),
    ("127.0.0.1", True),
    ("::1", True),
    ("10.0.0.7", True),
    ("10.0.0.8", False),
    ("pod-host", True),
    ("pod-host.jobs.svc", True),
    ("job-worker-2", True),
    ("job-worker-2.job.ns.svc", True),
    ("job-worker-0", False),
    ("job-master-2", False),
    ("alias", True),
    ("local-alias", True),
    ("headless", False),
    ("elsewhere", False),
    ("unknown", False),
]


@pytest.mark.parametrize(("host", "expected"), CASES, ids=[case[0] for case in CASES])
def test_endpoints(host: str, expected: bool) -> None:
    """A name, an address or an alias of this machine, or the replica that the endpoint names."""
    assert serves_store(host, told=None, here=HERE, resolve=lambda name: NAMES.get(name, ())) == expected


def test_a_replica_in_its_machines_network() -> None:
    """A replica that shares its machine's name is recognised by its index."""
    for index in (0, 1):
        here = Here("machine-42", "", index, ())
        assert serves_store("job-worker-0", told=None, here=here, resolve=lambda _: ()) == (index == 0)


@pytest.mark.parametrize("told", [True, False])
def test_what_is_told_wins(told: bool) -> None:
    """``is_host`` of the command line holds for any endpoint."""
    assert serves_store("localhost", told=told, here=HERE) == told


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", ""])
def test_a_reserved_port_is_no_other_process_s(address: str) -> None:
    """Until the workers' store listens, no other process gets the port, and connecting is refused at once."""
    with reserve_port(address) as reserved:
        port = reserved.getsockname()[1]
        with socket.socket(reserved.family) as other, pytest.raises(OSError, match="Address already in use"):
            other.bind(("", port))
        with socket.socket(reserved.family) as client:
            assert client.connect_ex(("::1" if ":" in address else "127.0.0.1", port)) == errno.ECONNREFUSED


@pytest.mark.launcher
@pytest.mark.parametrize("libuv", [True, False])
@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_torch_binds_over_a_reserved_port(address: str, libuv: bool) -> None:
    """The workers' own store listens at the port and is reached there while the agent holds it."""
    from torch.distributed import TCPStore

    with reserve_port(address) as reserved:
        port = reserved.getsockname()[1]
        store = TCPStore("127.0.0.1", port, 1, is_master=True, use_libuv=libuv)
        store.set("key", "value")
        assert TCPStore("127.0.0.1", port, 1, is_master=False, use_libuv=libuv).get("key") == b"value"


@pytest.mark.parametrize(
    ("address", "host", "expected"),
    [
        ("127.0.0.1", "node1", "node1"),
        ("127.0.1.1", "node1.example.com", "node1.example.com"),
        ("::1", "node1", "node1"),
        ("10.0.0.7", "node1", "10.0.0.7"),
        ("127.0.0.1", "localhost", "127.0.0.1"),
        ("127.0.0.1", "127.0.0.1", "127.0.0.1"),
    ],
)
def test_peers_are_never_sent_to_their_own_loopback(address: str, host: str, expected: str) -> None:
    """A machine whose name is an alias of its loopback is known to its peers by that name, except alone."""
    assert reachable(address, host) == expected
