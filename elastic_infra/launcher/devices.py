"""How many workers ``--nproc-per-node auto|cpu|gpu|xpu|...`` means, without importing torch where that is possible.

``count`` is pure and answers from the device files and the environment, or says None when only torch can know; then
``ask_torch`` asks a throwaway interpreter.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Collection, Mapping
from typing import Final

from .options import OptionsError

_NVIDIA: Final = re.compile(r"nvidia\d+")
_OTHERS: Final = re.compile(r"kfd|dri|dxg|accel\d*|davinci\d*|habanalabs.*|vfio")
"""Device files of accelerators that only torch can count (AMD, Intel, Ascend, Gaudi, TPU, WSL)."""

_ASK: Final = """
import sys, torch
kind = sys.argv[1]
if kind == "auto":
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is not None and accelerator.is_available():
        print(accelerator.device_count())
    elif torch.cuda.is_available():
        print(torch.cuda.device_count())
    else:
        print(-1)
else:
    module = getattr(torch, "cuda" if kind == "gpu" else kind, None)
    usable = hasattr(module, "device_count") and module.is_available()
    print(module.device_count() if usable else 0)
"""


def count(kind: str, environ: Mapping[str, str], device_files: Collection[str], cpus: int) -> int | None:
    """Workers per node for a word, or None when only torch can say.

    Args:
        kind: the word given for ``--nproc-per-node``.
        environ: the launcher's environment.
        device_files: names in ``/dev``.
        cpus: CPUs this process may use, torchrun's answer for ``cpu``.
    """
    if kind == "cpu":
        return cpus
    if kind not in {"auto", "gpu"} or any(_OTHERS.fullmatch(name) for name in device_files):
        return None
    gpus = sum(1 for name in device_files if _NVIDIA.fullmatch(name))
    if not gpus:
        return cpus if kind == "auto" else 0
    return _visible(gpus, environ)


def _visible(gpus: int, environ: Mapping[str, str]) -> int | None:
    """Of ``gpus`` devices, those the workers may use; None for MIG slices and UUIDs, which torch resolves."""
    if environ.get("NVIDIA_VISIBLE_DEVICES") in {"", "none", "void"}:
        return None
    chosen = environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return gpus
    indices = [word.strip() for word in chosen.split(",")]
    if all(word.isdecimal() and int(word) < gpus for word in indices) and len(set(indices)) == len(indices):
        return len(indices)
    return None


def ask_torch(kind: str, interpreter: str, cpus: int, *, timeout_seconds: float = 120.0) -> int:
    """Ask torch in a process of its own.

    Raises:
        OptionsError: torch cannot be asked.
    """
    try:
        answer = subprocess.run(
            [interpreter, "-c", _ASK, kind], capture_output=True, text=True, timeout=timeout_seconds, check=True
        )
        number = int(answer.stdout.split()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        message = f"--nproc-per-node {kind} needs torch to count devices, and {interpreter} could not. Give a number."
        raise OptionsError(message) from error
    return cpus if number < 0 else number
