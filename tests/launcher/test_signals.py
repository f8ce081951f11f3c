"""Signals are noted and wake the loop; what to do is decided elsewhere."""

from __future__ import annotations

import json
import select
import signal
import subprocess
import sys

import pytest

from elastic_infra.launcher.signals import Signals
from tests.launcher.launched import ROOT

NOTED = """
import json, os, select, signal
from elastic_infra.launcher.signals import Signals, restore_defaults
signals = Signals.install()
for number in (signal.SIGTERM, signal.SIGHUP):
    os.kill(os.getpid(), number)
woken = bool(select.select([signals.fd], [], [], 10)[0])
signals.drain()
drained = not select.select([signals.fd], [], [], 0)[0]
signals.handle([signal.SIGUSR1])
left = [signal.getsignal(number) is signal.SIG_DFL for number in (signal.SIGTERM, signal.SIGUSR1)]
restore_defaults()
after = signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL
print(json.dumps([signals.caught, woken, drained, left, after]))
"""


def test_signals_are_noted_in_their_order() -> None:
    """In a separate process, so that the handlers of the test's process stay."""
    done = subprocess.run(
        [sys.executable, "-c", NOTED], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    caught, woken, drained, left, after = json.loads(done.stdout)

    assert caught == [signal.SIGTERM, signal.SIGHUP]
    assert (woken, drained, after) == (True, True, True)
    assert left == [True, False]


def test_a_signal_that_cannot_be_caught_is_an_error() -> None:
    """The caller names the option that asked for it."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    signals = Signals()
    with pytest.raises(OSError, match="Invalid argument"):
        signals.handle([signal.SIGKILL])

    assert {number: signal.getsignal(number) for number in before} == before
    assert select.select([signals.fd], [], [], 0)[0] == []
