"""Short stack traces in the state: Pulumi stores the program's whole stack with each resource, and reads it each time.

There is no option for that (pulumi 3.272): a job's children would have twenty positions each, a third of their state.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Final

FRAMES: Final = 10
"""The innermost frames that are stored: up to eight are Pulumi's and ours, the next is the program's line. The record
of the component, which is registered without this, has the whole stack."""


@contextlib.contextmanager
def short_traces() -> Iterator[None]:
    """Resources that are registered meanwhile have the program's line, and not the stack behind it.

    Pulumi takes the stack by `traceback.extract_stack`, which heeds this variable of the interpreter:
    https://docs.python.org/3/library/sys.html#sys.tracebacklimit. An exception is shown in full, since the variable has
    its earlier value before anything catches it.
    """
    before = getattr(sys, "tracebacklimit", None)
    sys.tracebacklimit = FRAMES if before is None else min(before, FRAMES)
    try:
        yield
    finally:
        if before is None:
            del sys.tracebacklimit
        else:
            sys.tracebacklimit = before
