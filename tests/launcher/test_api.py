"""Torch's function API as a command line of our launcher."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from elastic_infra.launcher import api
from elastic_infra.launcher.command_line.options import OptionsError
from tests.launcher import functions


def config(**changes: object) -> SimpleNamespace:
    """A launch on one node of two workers, with the fields that every release of torch has."""
    usual = {
        "min_nodes": 1,
        "max_nodes": 1,
        "nproc_per_node": 2,
        "run_id": "function",
        "rdzv_backend": "c10d",
        "rdzv_endpoint": "localhost:0",
        "rdzv_configs": {"timeout": 900},
        "max_restarts": 0,
        "start_method": "spawn",
    }
    return SimpleNamespace(**{**usual, **changes})


def test_other_start_methods_are_refused(tmp_path: Path) -> None:
    """Forking a process that may hold threads is unsafe, so only spawn is taken."""
    with pytest.raises(OptionsError, match="spawn"):
        api.command_line(config(start_method="fork"), functions.double, (1,), tmp_path)


def test_a_program(tmp_path: Path) -> None:
    """A string is a program with its arguments."""
    words = api.command_line(config(), "train", ("--lr", 1), tmp_path)

    assert words[-4:] == ("--no-python", "train", "--lr", "1")
