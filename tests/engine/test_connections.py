"""Programs of one process do not disturb each other's connections."""

from __future__ import annotations

from concurrent import futures

import grpc
import pytest
from pulumi.runtime._grpc_settings import _GRPC_CHANNEL_OPTIONS

from tests.ports import free_port


def test_the_port_of_an_engine_that_ended_serves_the_next_one(engine: object) -> None:
    """A program that failed looks for its engine in vain; the next engine may get the same port."""
    assert engine
    port = free_port()
    with grpc.insecure_channel(f"127.0.0.1:{port}", options=_GRPC_CHANNEL_OPTIONS) as earlier:
        assert _answer(earlier) is grpc.StatusCode.UNAVAILABLE
        server = grpc.server(futures.ThreadPoolExecutor())
        assert server.add_insecure_port(f"127.0.0.1:{port}") == port
        server.start()
        try:
            with grpc.insecure_channel(f"127.0.0.1:{port}", options=_GRPC_CHANNEL_OPTIONS) as later:
                assert _answer(later) is grpc.StatusCode.UNIMPLEMENTED
        finally:
            server.stop(grace=None).wait()


def _answer(channel: grpc.Channel) -> grpc.StatusCode:
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary("/any/method")(b"", timeout=10)
    code: grpc.StatusCode = caught.value.code()
    return code
