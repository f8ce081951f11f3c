"""Waits for a state of the cluster, never for a length of time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
PATIENCE_SECONDS = 150
"""Several times what the slowest step takes on a busy two-core machine; a test that waits longer has failed."""
POLL_SECONDS = 0.5


def until(
    what: str,
    probe: Callable[[], T],
    seconds: float = PATIENCE_SECONDS,
    *,
    describe: Callable[[], str] = lambda: "",
) -> T:
    """Returns the first true answer of `probe`.

    Raises:
        AssertionError: there was none within `seconds`; the message names `what`, the last answer and
            what `describe` says of the cluster then.
    """
    deadline = time.monotonic() + seconds
    while not (answer := probe()):
        if time.monotonic() > deadline:
            message = f"Waited {seconds} s for {what}; the last answer was {answer!r}. {describe()}"
            raise AssertionError(message)
        time.sleep(POLL_SECONDS)
    return answer
