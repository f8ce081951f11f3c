"""``python -m elastic_infra.launcher.store --port N``: the store in a dedicated pod."""

from __future__ import annotations

import argparse
import os
import signal
import sys

from ..exit_codes import USAGE
from . import server


def main() -> int:
    """Serve until a signal ends the process."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(128 + signal.SIGTERM))  # PID 1 ignores it by default
    signal.signal(signal.SIGINT, lambda *_: os._exit(128 + signal.SIGINT))
    parser = argparse.ArgumentParser("python -m elastic_infra.launcher.store", description="A store in its own pod.")
    parser.add_argument("--host", default="", help="address to listen on; all by default")
    parser.add_argument("--port", type=int, default=29400, help="port to listen on; torchrun's 29400 by default")
    given = parser.parse_args()
    token = os.environ.get("ELASTIC_INFRA_STORE_TOKEN", "")
    try:
        server.serve_forever(given.host, given.port, token, lambda port: print(f"store: port {port}", flush=True))
    except OSError as error:
        print(f"store: port {given.port} cannot be used: {error.strerror}. Choose another.", file=sys.stderr)
    return USAGE


if __name__ == "__main__":
    raise SystemExit(main())
