"""Whether this node serves the store, and a free port for the workers: both ask this machine's network.

The rule is torchrun's ``is_host``: the command line says so, or the endpoint names this machine
(https://github.com/pytorch/pytorch/blob/main/torch/distributed/elastic/rendezvous/utils.py); and where there are
replicas and the endpoint's own name ends in an index, the replica of that index.
"""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import socket
from collections.abc import Callable, Collection

from ..command_line.plan import Plan
from ..settings import LauncherSettings


def is_for(plan: Plan, settings: LauncherSettings) -> bool:
    """Whether this node serves the store of the launch."""
    here = Here(socket.gethostname(), settings.node_name, settings.replica_index, own_addresses())
    return serves_store(plan.host, told=plan.hosts_store, here=here)


@dataclasses.dataclass(frozen=True)
class Here:
    """The names by which an endpoint may mean this machine."""

    hostname: str
    node_name: str
    """The pod's name; a pod in its machine's network has another hostname."""
    replica_index: int | None
    addresses: Collection[str]


def serves_store(
    host: str, *, told: bool | None, here: Here, resolve: Callable[[str], Collection[str]] | None = None
) -> bool:
    """``told`` wins; else ``host`` must be a name or address of this machine, or an alias of it.

    An alias is a name all of whose addresses are this machine's; the name of a headless Service has the addresses of
    all nodes, and is none.

    Args:
        host: the endpoint's host.
        told: what the command line says.
        here: this machine.
        resolve: gives the addresses of a name; asks the network by default.
    """
    if told is not None:
        return told
    name = host.partition(".")[0]
    if host in {"localhost", here.hostname} or name in {here.hostname, here.node_name}:
        return True
    # Replicas are numbered, and the endpoint names one of them.
    stem, _, index = name.rpartition("-")
    if stem and index.isdecimal() and here.replica_index is not None:
        return int(index) == here.replica_index and here.node_name.rpartition("-")[0] in {"", stem}
    found = {host} if _is_address(host) else set((resolve or addresses_of)(host))
    return bool(found) and all(address in here.addresses or _is_loopback(address) for address in found)


def addresses_of(name: str) -> frozenset[str]:
    """Addresses that a name has in the network, none for an unknown one."""
    try:
        return frozenset(str(found[4][0]) for found in socket.getaddrinfo(name, None, proto=socket.IPPROTO_TCP))
    except (OSError, UnicodeError):
        return frozenset()


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_loopback(text: str) -> bool:
    return _is_address(text) and ipaddress.ip_address(text).is_loopback


def reachable(address: str, host: str) -> str:
    """This node's address for its peers, where the connection to the store has the given one.

    A machine whose own name is an alias of the loopback (Debian's ``/etc/hosts``) reaches the store that it serves by
    the loopback. Its peers know the machine by the endpoint's host.
    """
    is_alias = _is_loopback(address) and host != "localhost" and not _is_loopback(host)
    return host if is_alias else address


def own_addresses() -> frozenset[str]:
    """Addresses of this machine that packets would leave from; no packet is sent."""
    found = set()
    for family, probe in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as end:
            end.connect((probe, 9))
            found.add(end.getsockname()[0])
    return frozenset(found)


def reserve_port(address: str) -> socket.socket:
    """A bound socket that does not listen: while it is open, the kernel gives its port to no other process.

    The workers' own store binds the port seconds later, over this socket: both set ``SO_REUSEADDR``, which Linux allows
    as long as only one of them listens (socket(7)); torch's ``TCPStore`` sets it, with libuv and without.

    Args:
        address: this node's address, which decides between an IPv4 and an IPv6 port.

    Raises:
        OSError: no port is free.
    """
    end = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    try:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        end.bind(("", 0))
    except OSError:
        end.close()
        raise
    return end
