"""Asks a language server what an editor asks: the text that is shown where the mouse rests."""

from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any


class LanguageServer:
    """One server over its standard streams: https://microsoft.github.io/language-server-protocol/."""

    def __init__(self, sent: IO[bytes], received: IO[bytes], folder: Path) -> None:
        self._sent, self._received, self._folder = sent, received, folder
        self._numbers = itertools.count()

    @classmethod
    @contextlib.contextmanager
    def started(cls, program: Path, folder: Path) -> Iterator[LanguageServer]:
        """A server that has read nothing yet; it ends with the block."""
        with subprocess.Popen([program, "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            server = cls(process.stdin, process.stdout, folder)
            try:
                server.greet()
                yield server
            finally:
                process.terminate()

    def greet(self) -> None:
        """Say which folder is open."""
        workspace = [{"uri": self._folder.as_uri(), "name": "folder"}]
        able = {"workspace": {"configuration": True}}
        self._ask("initialize", {"processId": None, "capabilities": able, "workspaceFolders": workspace})
        self._send({"method": "initialized", "params": {}})

    def open(self, file: Path) -> None:
        """Open a file, as an editor does."""
        document = {"uri": file.as_uri(), "languageId": "python", "version": 1, "text": file.read_text()}
        self._send({"method": "textDocument/didOpen", "params": {"textDocument": document}})

    def hover(self, file: Path, line: int, column: int) -> str:
        """The text at a place, both numbers from 0; empty where there is none."""
        place = {"textDocument": {"uri": file.as_uri()}, "position": {"line": line, "character": column}}
        found = self._ask("textDocument/hover", place)
        return str(found["contents"]["value"]) if found else ""

    def _ask(self, method: str, params: dict[str, Any]) -> Any:
        number = next(self._numbers)
        self._send({"id": number, "method": method, "params": params})
        while True:
            message = self._receive()
            if "method" not in message and message.get("id") == number:
                return message["result"]
            if "method" in message and "id" in message:
                self._send({"id": message["id"], "result": _answer(message)})

    def _send(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._sent.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self._sent.flush()

    def _receive(self) -> dict[str, Any]:
        length = 0
        while line := self._received.readline().strip():
            name, _, value = line.partition(b":")
            length = int(value) if name == b"Content-Length" else length
        message: dict[str, Any] = json.loads(self._received.read(length))
        return message


def _answer(request: dict[str, Any]) -> object:
    """What the server asks for: which Python runs the code, and nothing else that matters."""
    if request["method"] == "workspace/configuration":
        return [{"pythonPath": sys.executable} for _ in request["params"]["items"]]
    return None
