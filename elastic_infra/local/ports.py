"""Free ports of this machine."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Sequence
from typing import Final

LOOPBACK: Final = "127.0.0.1"
_HIGHEST: Final = 65535


class PortsError(ValueError):
    """There are not enough free ports; the message says what to do."""


def port_range(text: str) -> range:
    """``29400-29499`` as a range.

    Raises:
        PortsError: the text is no range.
    """
    match = re.fullmatch(r"([0-9]{1,5})-([0-9]{1,5})", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]) <= _HIGHEST:
        message = f"--ports: {text!r} is no range of ports. Write it as 29400-29499."
        raise PortsError(message)
    return range(int(match[1]), int(match[2]) + 1)


def free_ports(count: int, among: Sequence[int] = ()) -> tuple[int, ...]:
    """Ports on which no process listens at this moment.

    Args:
        among: ports to choose from; empty lets the kernel choose.

    Raises:
        PortsError: there are not so many free ports.
    """
    held: list[socket.socket] = []
    try:
        for port in among or [0] * count:
            if len(held) < count:
                held += _taken(port)
        if len(held) < count:
            message = (
                f"--ports: {count} free ports are needed, and between {among[0]} and {among[-1]} there "
                f"{'is' if len(held) == 1 else 'are'} {len(held)}. Give another range, or end what uses them."
            )
            raise PortsError(message)
        return tuple(end.getsockname()[1] for end in held)
    finally:
        _close(held)


def _taken(port: int) -> list[socket.socket]:
    """The port, held open so that it is not chosen twice; empty where another program has it."""
    end = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        end.bind(("", port))
    except OSError:
        end.close()
        return []
    return [end]


def _close(held: Iterable[socket.socket]) -> None:
    for end in held:
        end.close()
