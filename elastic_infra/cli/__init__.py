"""The app `elastic-infra`: one module a command, of which only the requested one is imported.

A document goes to stdout, everything else to stderr. Exit codes: 0, 2 for bad input, 130 when interrupted.
"""

from elastic_infra.cli.app import main

__all__ = ["main"]
