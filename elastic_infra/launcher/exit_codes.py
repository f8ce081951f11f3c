"""The launcher's exit codes, as one table (wire contract with ``restartPolicy`` and ``podFailurePolicy``)."""

from __future__ import annotations

import errno
from typing import Final

SUCCESS: Final = 0
"""All workers succeeded, or the job had already succeeded when this node came."""
SCRIPT_FAILED: Final = 1
"""The script failed beyond its budget: permanent."""
USAGE: Final = 2
"""The arguments are wrong, or the script is missing or unreadable: permanent."""
NO_PROGRESS: Final = 93
"""The same step failed three times: permanent."""
STOPPED: Final = 143
"""SIGTERM stopped the launcher (preemption, scale-down): retry."""
RETRY: Final = 200
"""Store lost beyond ``join_timeout``, watchdog fired, or this node alone keeps failing: retry."""

PERMANENT: Final = (SCRIPT_FAILED, USAGE, NO_PROGRESS)
"""Codes after which a retry of the pod cannot help; every other failure is worth a retry."""


def of_signal(number: int) -> int:
    """The launcher was ended by a signal: retry."""
    return 128 + number


def final(code: int, caught: int | None) -> int:
    """The process's exit code: a launcher that was told to end never reports success of the job."""
    return of_signal(caught) if caught is not None and code == SUCCESS else code


def of_log_folder(error: OSError) -> int:
    """Log files cannot be made: ``RETRY`` for a full disk on this node, ``USAGE`` for any other reason."""
    return RETRY if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE} else USAGE
