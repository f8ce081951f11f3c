"""What the library tells its user: a line on stderr, which is the log of the worker."""

from __future__ import annotations

import contextlib
import os
import sys


def warn(line: str) -> None:
    """Write a warning to stderr; a stream that takes nothing costs the training nothing."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"elastic_infra.training: {line}\n")
        sys.stderr.flush()


def warn_for_node(line: str) -> None:
    """Write a warning once a node, of what all its workers see, such as a full volume: only local rank 0 writes it."""
    if os.environ.get("LOCAL_RANK", "0") == "0":
        warn(line)


def warn_for_job(line: str) -> None:
    """Write a warning once for the job, of what every worker sees: only rank 0 writes the line."""
    if os.environ.get("RANK", "0") == "0":
        warn(line)
