"""A key management service for stacks: a stand-in for Vault's transit engine, which keeps no secret from anybody.

A passphrase costs every command of the CLI a million rounds of hashing, half of what a small operation takes. What the
engine encrypts with the key it gets here is encrypted as ever.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from typing_extensions import override

PROVIDER: Final = "hashivault://test"
"""The secrets provider of a stack: https://www.pulumi.com/docs/iac/concepts/secrets/#hashicorp-vault-transit-secrets-engine."""
_PREFIX: Final = "vault:v1:"


class _Transit(BaseHTTPRequestHandler):
    """`encrypt` and `decrypt` of https://developer.hashicorp.com/vault/api-docs/secret/transit."""

    def do_PUT(self) -> None:
        """Hand back what was encrypted, or what is to be decrypted, with or without the mark of a ciphertext."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "/encrypt/" in self.path:
            data = {"ciphertext": _PREFIX + asked["plaintext"]}
        else:
            data = {"plaintext": asked["ciphertext"].removeprefix(_PREFIX)}
        answer = json.dumps({"data": data}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Leave out the line that each request would get on stderr."""


@contextlib.contextmanager
def serving() -> Iterator[Mapping[str, str]]:
    """The variables by which the CLI finds the service."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Transit)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield {"VAULT_SERVER_URL": f"http://127.0.0.1:{server.server_port}", "VAULT_SERVER_TOKEN": "test"}
    finally:
        server.shutdown()
        server.server_close()
