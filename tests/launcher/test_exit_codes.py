"""The table of exit codes: what Kubernetes and the operator read from it."""

from __future__ import annotations

import errno
import signal

import pytest

from elastic_infra.launcher import exit_codes


def test_the_operator_retries_what_the_table_calls_a_retry() -> None:
    """``restartPolicy: ExitCode`` retries from 128 on and takes 1 to 127 for permanent; both are on the wire."""
    assert exit_codes.PERMANENT == (1, 2, 93)
    assert (exit_codes.STOPPED, exit_codes.RETRY) == (143, 200)
    assert all(0 < code < 128 for code in exit_codes.PERMANENT)
    assert all(128 <= code < 256 for code in (exit_codes.STOPPED, exit_codes.RETRY))


def test_a_signal_is_told_as_shells_do() -> None:
    """128 plus the signal's number; only SIGTERM's code has a name."""
    assert exit_codes.of_signal(signal.SIGTERM) == exit_codes.STOPPED
    assert exit_codes.of_signal(signal.SIGINT) == 130


@pytest.mark.parametrize(
    ("code", "caught", "expected"),
    [
        (exit_codes.SUCCESS, None, exit_codes.SUCCESS),
        (exit_codes.SUCCESS, signal.SIGTERM, exit_codes.STOPPED),
        (exit_codes.SCRIPT_FAILED, signal.SIGTERM, exit_codes.SCRIPT_FAILED),
        (exit_codes.RETRY, None, exit_codes.RETRY),
    ],
)
def test_a_launcher_that_was_told_to_end_never_says_success(code: int, caught: int | None, expected: int) -> None:
    """Success would end the whole job; a failure keeps its own code."""
    assert exit_codes.final(code, caught) == expected


@pytest.mark.parametrize(
    ("number", "expected"),
    [(errno.ENOSPC, exit_codes.RETRY), (errno.EIO, exit_codes.RETRY), (errno.EACCES, exit_codes.USAGE)],
)
def test_a_log_folder_fails_for_the_node_or_for_the_command_line(number: int, expected: int) -> None:
    """A full disk is this node's trouble and worth a retry elsewhere; a folder that may not be written is not."""
    assert exit_codes.of_log_folder(OSError(number, "")) == expected
