"""A server with a token, and two nodes that it has accepted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from elastic_infra.launcher.protocol import events
from tests.launcher.store.serving import TOKEN, Node, Served


@pytest.fixture
def served() -> Iterator[Served]:
    served = Served(TOKEN)
    yield served
    served.close()


@pytest.fixture
def nodes(served: Served) -> Iterator[tuple[Node, Node]]:
    pair = (Node(served.port, "a"), Node(served.port, "b"))
    for node in pair:
        node.wait_for_kind(events.StoreConnected)
    yield pair
    for node in pair:
        node.close()
