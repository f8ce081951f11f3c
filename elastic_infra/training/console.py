"""What the library tells its user: a line on stderr, which is the log of the worker."""

from __future__ import annotations

import contextlib
import sys


def warn(line: str) -> None:
    """Write a warning to stderr; a stream that takes nothing costs the training nothing."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"elastic_infra.training: {line}\n")
        sys.stderr.flush()
