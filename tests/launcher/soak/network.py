"""A separate network for every node and the store: namespaces on one bridge, which can be cut or filtered.

Needs root, iproute2 and iptables. Nothing outside the namespaces is touched; all names begin with one prefix and the
process's id, and namespaces whose process is gone are removed by the next run.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

PREFIX: Final = "eisoak"
STORE_ADDRESS: Final = "10.99.0.1"
STORE_PORT: Final = 29400
BRIDGE: Final = "02:00:0a:63:00:01"
"""The store's hardware address. By default it is that of a node, and changes for all when that node is cut off."""


def missing() -> str:
    """Why such a network cannot be made here; empty where it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    absent = [program for program in ("ip", "iptables", "setpriv") if shutil.which(program) is None]
    if absent:
        return f"not installed: {', '.join(absent)}"
    network = Network()
    try:
        network.open()
        network.add("probe", 2)
        network.drop_store("probe")
    except subprocess.CalledProcessError as error:
        return f"no network namespaces: {error.stderr.decode().strip()}"
    finally:
        network.close()
    return ""


class Network:
    """The bridge, in the store's namespace, and a namespace a node."""

    def __init__(self) -> None:
        self._owner = f"{PREFIX}{os.getpid()}"
        self._ports: dict[str, str] = {}

    @property
    def store(self) -> str:
        """The name of the store's network namespace."""
        return f"{self._owner}-store"

    def node(self, name: str) -> str:
        """The name of a node's network namespace."""
        return f"{self._owner}-{name}"

    def open(self) -> None:
        """Make the bridge.

        Raises:
            subprocess.CalledProcessError: the kernel or its rights do not allow it.
        """
        cleanup()
        _run("ip", "netns", "add", self.store)
        _run("ip", "-n", self.store, "link", "set", "lo", "up")
        _run("ip", "-n", self.store, "link", "add", "bridge", "address", BRIDGE, "type", "bridge")
        _run("ip", "-n", self.store, "addr", "add", f"{STORE_ADDRESS}/24", "dev", "bridge")
        _run("ip", "-n", self.store, "link", "set", "bridge", "up")

    def add(self, name: str, host: int) -> None:
        """A node's namespace, with the address that ends in ``host``."""
        space, port = self.node(name), f"port{host}"
        _run("ip", "netns", "add", space)
        _run("ip", "-n", space, "link", "set", "lo", "up")
        _run("ip", "-n", self.store, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", space)
        _run("ip", "-n", self.store, "link", "set", port, "master", "bridge", "up")
        _run("ip", "-n", space, "addr", "add", f"{STORE_ADDRESS.rpartition('.')[0]}.{host}/24", "dev", "eth0")
        _run("ip", "-n", space, "link", "set", "eth0", "up")
        self._ports[name] = port

    def cut(self, name: str) -> None:
        """No packet reaches or leaves the node; it does not see that its link is of no use."""
        _run("ip", "-n", self.store, "link", "set", self._ports[name], "nomaster")

    def join(self, name: str) -> None:
        """Put a node back on the bridge after ``cut``."""
        _run("ip", "-n", self.store, "link", "set", self._ports[name], "master", "bridge")

    def drop_store(self, name: str) -> None:
        """Packets between the node and the store's port vanish; others pass."""
        self._filter(name, "-A")

    def heal_store(self, name: str) -> None:
        """Let packets to the store pass again after ``drop_store``."""
        self._filter(name, "-D")

    def close(self) -> None:
        """Remove all namespaces of this network."""
        for space in _spaces():
            if space.startswith(f"{self._owner}-"):
                _remove(space)

    def _filter(self, name: str, change: str) -> None:
        inside = ("ip", "netns", "exec", self.node(name), "iptables", "-w")
        _run(*inside, change, "OUTPUT", "-p", "tcp", "--dport", str(STORE_PORT), "-j", "DROP")
        _run(*inside, change, "INPUT", "-p", "tcp", "--sport", str(STORE_PORT), "-j", "DROP")


def cleanup() -> None:
    """Remove the namespaces of processes that are gone."""
    for space in _spaces():
        owner = space.partition("-")[0].removeprefix(PREFIX)
        if space.startswith(PREFIX) and owner.isdecimal() and not Path("/proc", owner).exists():
            _remove(space)


def _spaces() -> list[str]:
    return [line.split()[0] for line in _run("ip", "netns", "list").splitlines() if line]


def _remove(space: str) -> None:
    with contextlib.suppress(subprocess.CalledProcessError):  # another cleanup was faster
        _run("ip", "netns", "del", space)


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True).stdout.decode()
