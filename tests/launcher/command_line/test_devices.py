"""Counting devices without torch."""

from __future__ import annotations

import sys

import pytest

from elastic_infra.launcher.command_line import devices
from elastic_infra.launcher.command_line.options import OptionsError

TWO = ("null", "nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm")

CASES = [
    ("cpu", {}, TWO, 6),
    ("auto", {}, ("null",), 6),
    ("gpu", {}, ("null",), 0),
    ("auto", {}, TWO, 2),
    ("gpu", {}, TWO, 2),
    ("gpu", {"CUDA_VISIBLE_DEVICES": "1"}, TWO, 1),
    ("gpu", {"CUDA_VISIBLE_DEVICES": "1,0"}, TWO, 2),
    ("gpu", {"CUDA_VISIBLE_DEVICES": "0,7"}, TWO, None),
    ("gpu", {"CUDA_VISIBLE_DEVICES": ""}, TWO, None),
    ("gpu", {"CUDA_VISIBLE_DEVICES": "MIG-4a"}, TWO, None),
    ("gpu", {"NVIDIA_VISIBLE_DEVICES": "void"}, TWO, None),
    ("gpu", {"NVIDIA_VISIBLE_DEVICES": "all"}, TWO, 2),
    ("auto", {}, ("kfd", "dri"), None),
    ("xpu", {}, ("null",), None),
    ("npu", {}, TWO, None),
]


@pytest.mark.parametrize(("kind", "environ", "files", "expected"), CASES)
def test_count(kind: str, environ: dict[str, str], files: tuple[str, ...], expected: int | None) -> None:
    """Device files answer where they can; what only torch can know is left to torch."""
    assert expected == devices.count(kind, environ, files, cpus=6)


def test_torch_is_asked_in_another_process() -> None:
    """A machine without accelerators falls back to its CPUs for auto and to none for gpu."""
    pytest.importorskip("torch")

    assert devices.ask_torch("auto", sys.executable, cpus=6) == 6
    assert devices.ask_torch("gpu", sys.executable, cpus=6) == 0


def test_no_torch_to_ask() -> None:
    """An interpreter that cannot answer is a usage error that says what to do."""
    with pytest.raises(OptionsError, match="Give a number"):
        devices.ask_torch("auto", "/nonexistent/python", cpus=6)
