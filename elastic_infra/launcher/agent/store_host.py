"""Whether this node serves the store, and a free port for the workers: questions to this machine's network.

The rule is torchrun's ``is_host``: told so, or the endpoint names this machine
(https://github.com/pytorch/pytorch/blob/main/torch/distributed/elastic/rendezvous/utils.py); and where there are
replicas and the endpoint's own name ends in an index, the replica of that index.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections.abc import Collection

from ..command_line.plan import Plan


def is_for(plan: Plan) -> bool:
    """Whether this node serves the store of the launch."""
    return serves_store(plan.host, told=plan.hosts_store, hostname=socket.gethostname(), addresses=own_addresses())


def serves_store(host: str, *, told: bool | None, hostname: str, addresses: Collection[str]) -> bool:
    """Pure: ``told`` wins; else ``host`` must be this machine's name or one of its addresses."""
    if told is not None:
        return told
    if host in {"localhost", hostname} or host.partition(".")[0] == hostname:
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or host in addresses


def own_addresses() -> frozenset[str]:
    """Addresses of this machine that packets would leave from; no packet is sent."""
    found = set()
    for family, probe in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as end:
            end.connect((probe, 9))
            found.add(end.getsockname()[0])
    return frozenset(found)


def free_port(address: str) -> int:
    """A port nothing listens on at this moment, the workers' own store takes it next.

    Raises:
        OSError: no port is free.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as end:
        end.bind(("", 0))
        return int(end.getsockname()[1])
