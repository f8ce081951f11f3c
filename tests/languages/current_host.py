"""A language host of the CLI's own time, made of an older host: `python current_host.py HOST [FLAGS] ENGINE`.

The newest hosts that can be built from Go modules are years older than the CLI. They take a plugin's folder from a
field that the CLI no longer fills, and they make and link no SDK. Everything else is the older host's own answer.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import Message
from pulumi.runtime.proto import language_pb2

SERVICE = "/pulumirpc.LanguageRuntime/"
STREAMS = {"InstallDependencies", "RunPlugin"}
"""The methods with many answers."""


class CurrentHost(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    """Passes every call on to an older host, and answers what an older host cannot."""

    def __init__(self, older: grpc.Channel) -> None:
        """Serve in front of the host at the end of this channel."""
        self.older = older

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        """What answers a method."""
        name = handler_call_details.method.removeprefix(SERVICE)
        own: dict[str, Callable[[bytes, Any], bytes]] = {"GeneratePackage": _write_schema, "Link": _say_linked}
        if name in own:
            return grpc.unary_unary_rpc_method_handler(own[name])
        if name in STREAMS:
            return grpc.unary_stream_rpc_method_handler(lambda request, context: self._stream(name, request, context))
        return grpc.unary_unary_rpc_method_handler(lambda request, context: self._call(name, request, context))

    def _call(self, name: str, request: bytes, context: grpc.ServicerContext) -> bytes:
        try:
            return bytes(self.older.unary_unary(SERVICE + name)(request))
        except grpc.RpcError as error:
            context.abort(error.code(), error.details())
            raise

    def _stream(self, name: str, request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        if name == "RunPlugin":
            request = _with_program(request)
        try:
            yield from self.older.unary_stream(SERVICE + name)(request)
        except grpc.RpcError as error:
            context.abort(error.code(), error.details())


def _with_program(request: bytes) -> bytes:
    """The plugin's folder where an older host looks for the program; the working directory stays the caller's."""
    asked = _parsed(language_pb2.RunPluginRequest(), request)
    asked.program = asked.info.program_directory
    return bytes(asked.SerializeToString())


def _write_schema(request: bytes, _context: grpc.ServicerContext) -> bytes:
    """In place of an SDK, the schema that it would be made of."""
    asked = _parsed(language_pb2.GeneratePackageRequest(), request)
    Path(asked.directory, "schema.json").write_text(asked.schema)
    return bytes(language_pb2.GeneratePackageResponse().SerializeToString())


def _say_linked(_request: bytes, _context: grpc.ServicerContext) -> bytes:
    return bytes(language_pb2.LinkResponse(import_instructions="linked").SerializeToString())


def _parsed(empty: Message, request: bytes) -> Any:
    empty.ParseFromString(request)
    return empty


def main() -> int:
    """Start the older host, serve in front of it, and say the port as a host does."""
    with subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, text=True) as older:
        assert older.stdout is not None
        server = grpc.server(ThreadPoolExecutor(8))
        server.add_generic_rpc_handlers(
            (CurrentHost(grpc.insecure_channel(f"127.0.0.1:{int(older.stdout.readline())}")),)
        )
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        sys.stdout.write(f"{port}\n")
        sys.stdout.flush()
        threading.Thread(target=lambda: sys.stdout.writelines(older.stdout or ()), daemon=True).start()
        return older.wait()


if __name__ == "__main__":
    sys.exit(main())
