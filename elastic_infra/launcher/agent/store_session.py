"""The agent's link to the store, which is served again here where this node hosts the store and the store has ended.

This module transports messages; the protocol's machine decides about their content.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from .. import ipc
from ..command_line.plan import Plan
from ..settings import LauncherSettings
from ..store import link as links
from ..store.client import Order, Target

TELL_SECONDS: Final = 10.0
"""At most one line in this time about a store that cannot be reached."""
HOST_AGAIN_SECONDS: Final = 1.0


class Rendezvous:
    """One node's end of the store."""

    def __init__(
        self,
        channel: ipc.Channel,
        plan: Plan,
        settings: LauncherSettings,
        node: str,
        clock: Callable[[], float],
    ) -> None:
        self._channel = channel
        self._plan = plan
        self._token = settings.store_token
        self._node = node
        self._clock = clock
        self._link: links.Link | None = None
        self._hosts = bool(plan.hosts_store)
        self._hosted_at = clock()
        self._told_at = -TELL_SECONDS

    @property
    def endpoint(self) -> str:
        """Host and port of the store, as messages name them."""
        return f"{self._plan.host}:{self._plan.port}"

    @property
    def is_looking(self) -> bool:
        """Whether there is no link yet, because the port of the store served here is still unknown."""
        return self._link is None

    @property
    def knows_port(self) -> bool:
        """Whether the agent can connect at once; else the store that this node serves reports its port first."""
        return self._plan.port != 0 or not self._hosts

    def connect(self, port: int) -> links.Link:
        """Begin to connect; the returned descriptor is readable when there is a notification."""
        target = Target(self._plan.host, port, self._plan.run_id, self._node, self._token)
        self._link = link = links.Link(target, self._clock)
        link.start()
        return link

    def take(self) -> list[links.Notification]:
        """The notifications that have come from the store."""
        return self._link.take() if self._link else []

    def order(self, order: Order) -> None:
        """Send an order to the store."""
        if self._link:
            self._link.order(order)

    def trouble(self, notification: links.Unreachable) -> str:
        """Serve the store again where no node does; returns a line for the log now and then, else an empty string."""
        now = self._clock()
        if self._hosts and now - self._hosted_at >= HOST_AGAIN_SECONDS:
            self._hosted_at = now
            self._channel.send(ipc.HostStore(self._plan.host, self._plan.port))
        if now - self._told_at < TELL_SECONDS:
            return ""
        self._told_at = now
        return f"The store at {self.endpoint} cannot be reached: {notification.reason}."

    def close(self) -> None:
        """Send what is still to be sent, and end the link."""
        if self._link:
            self._link.close()
