"""The last words of a worker whose node leaves: a function of the script, which may fail and may take too long."""

from __future__ import annotations

import threading
from collections.abc import Callable

from .console import warn


def call(function: Callable[[], object], deadline: float) -> None:
    """Call a function in a thread of its own; an error, or the end of the time, is a warning.

    Args:
        function: the script's.
        deadline: seconds after which the function is waited for no longer.
    """

    def body() -> None:
        try:
            function()
        except BaseException as error:  # noqa: BLE001  whatever the script raises, sys.exit too
            said = f"{type(error).__name__}: {error}".removesuffix(": ")
            warn(f"The function for on_preemption failed: {said}. The snapshot that was saved before stays.")

    thread = threading.Thread(target=body, name="preemption", daemon=True)
    thread.start()
    thread.join(deadline)
    if thread.is_alive():
        warn(
            f"The function for on_preemption takes longer than its deadline of {deadline:g} s, and is abandoned, "
            "because the process is killed at the end of the grace. Have it do less, or raise the deadline and "
            "runtime.shutdown_grace_seconds."
        )
