"""Damaged traffic, quickly: `make fuzz` does the same for ten minutes and looks at memory as well."""

from __future__ import annotations

import contextlib
import random
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elastic_infra.launcher.agent import status_server
from tests.launcher.fuzz import traffic
from tests.launcher.store.serving import TOKEN, Served, ask, before_hello

SEEDS = st.integers(0, 1 << 32)
quick = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(params=["", TOKEN], ids=["open", "closed"])
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    served = Served(request.param)
    yield served
    served.close()


@pytest.fixture
def status_port() -> int:
    return status_server.serve(0, lambda: None)


@quick
@given(seed=SEEDS)
def test_damaged_traffic_ends_no_store(served: Served, seed: int) -> None:
    """A node's own messages, damaged: the server refuses wrong messages by a rule, not by an internal fault."""
    with before_hello(served) as end, contextlib.suppress(OSError):
        end.sendall(traffic.damaged(random.Random(seed), traffic.of_a_node(TOKEN)))
        end.shutdown(socket.SHUT_WR)
        while end.recv(1 << 16):
            pass

    with before_hello(served) as other:
        assert "incarnation" in ask(other, {"op": "hello", "id": 0, "job": "another", "token": TOKEN})
    assert served.server.faults == 0


@quick
@given(seed=SEEDS)
def test_damaged_requests_end_no_status_port(status_port: int, seed: int) -> None:
    """A scraper's own requests, damaged."""
    chance = random.Random(seed)
    with socket.create_connection(("127.0.0.1", status_port), timeout=20) as end, contextlib.suppress(OSError):
        end.sendall(traffic.damaged(chance, chance.choice(traffic.REQUESTS)))
        end.shutdown(socket.SHUT_WR)
        while end.recv(1 << 16):
            pass

    with pytest.raises(urllib.error.HTTPError, match="503"):  # there is no snapshot yet
        urllib.request.urlopen(f"http://127.0.0.1:{status_port}/status", timeout=20)


def test_the_damage_is_the_seeds() -> None:
    """A failure of the long run can be run again."""
    sent = traffic.of_a_node("")
    twice = [[traffic.damaged(random.Random(seed), sent) for seed in range(50)] for _ in range(2)]

    assert twice[0] == twice[1]
    assert len(set(twice[0])) > 30
