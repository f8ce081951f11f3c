"""Which node serves the store."""

from __future__ import annotations

import socket

import pytest

from elastic_infra.launcher.agent import store_host


@pytest.mark.parametrize(
    ("host", "told", "serves"),
    [
        ("elsewhere", True, True),
        ("localhost", False, False),
        ("localhost", None, True),
        ("job-0", None, True),
        ("job-0.job.default.svc", None, True),
        ("job-1", None, False),
        ("127.0.0.1", None, True),
        ("::1", None, True),
        ("10.0.0.1", None, True),
        ("10.0.0.2", None, False),
    ],
)
def test_the_endpoint_names_the_host(host: str, told: bool | None, serves: bool) -> None:
    """Being told so wins; else the endpoint is this machine's name or one of its addresses."""
    assert store_host.serves_store(host, told=told, hostname="job-0", addresses={"10.0.0.1"}) == serves


@pytest.mark.parametrize("address", ["127.0.0.1", ""])
def test_a_free_port_can_be_taken(address: str) -> None:
    """The workers' own store binds it next."""
    with socket.create_server((address, store_host.free_port(address))) as listener:
        assert listener.getsockname()[1] > 0
