"""A survivor is freed from the making of a group, and one that nothing frees is known."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

from elastic_infra.training import waits

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tests" / "training" / "scripts" / "lost_peer.py"


def freed(folder: pathlib.Path, where: str) -> str:
    """How the remaining rank of two ended, whose group would wait for five minutes."""
    environ = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(SCRIPT), str(folder), where]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]  # torch 2.7 to 2.9 print lines of gloo's before it


def test_a_peer_that_is_lost_while_the_group_forms_holds_nobody(tmp_path: pathlib.Path) -> None:
    """It has said its address and never connects; there is no connection yet that could be cut."""
    assert freed(tmp_path, "making") == "freed"


def test_a_wait_that_nothing_ends_is_known(tmp_path: pathlib.Path) -> None:
    """Gloo leaves a receiver in the middle of a message: known once the connections are gone, and not before."""
    said = freed(tmp_path, "message")
    if said == "unnamed":
        pytest.skip("this torch does not name the threads of its collectives")
    assert said == "stuck"


def test_a_main_thread_that_does_not_wait_for_gloo_is_not_stuck() -> None:
    """This one computes, and has no group at all."""
    assert waits.in_gloo(frozenset()) == ()
