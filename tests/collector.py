"""The garbage collector, kept from running where it costs time or comes between."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Leave cycles of objects uncollected meanwhile; they are collected after it, as ever."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
