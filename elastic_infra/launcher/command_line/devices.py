"""How many workers ``--nproc-per-node auto|cpu|gpu|xpu|...`` means, without importing torch where that is possible.

``count`` is pure: it answers from the device files and the environment, or returns None when only torch can know.
``ask_torch`` then asks a throwaway interpreter.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Collection, Mapping
from typing import Final

from .options import OptionsError

_NVIDIA: Final = re.compile(r"nvidia\d+")
_OTHERS: Final = re.compile(r"kfd|dri|dxg|accel\d*|davinci\d*|habanalabs.*|vfio")
"""Device files of accelerators that only torch can count (AMD, Intel, Ascend, Gaudi, TPU, WSL)."""

ASK_SECONDS: Final = 120.0
"""The longest wait for torch's answer: importing torch from a cold network disk takes a minute."""
_LOOK_SECONDS: Final = 0.2

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
    """The number of ``gpus`` devices that workers may use; None for MIG slices and UUIDs, which torch resolves."""
    if environ.get("NVIDIA_VISIBLE_DEVICES") in {"", "none", "void"}:
        return None
    chosen = environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return gpus
    indices = [word.strip() for word in chosen.split(",")]
    if all(word.isdecimal() and int(word) < gpus for word in indices) and len(set(indices)) == len(indices):
        return len(indices)
    return None


def ask_torch(kind: str, interpreter: str, cpus: int, *, interrupted: Callable[[], bool] = lambda: False) -> int:
    """Ask torch in a separate process; gives up as soon as a signal tells the launcher to end.

    Raises:
        OptionsError: torch cannot be asked.
    """
    message = f"--nproc-per-node {kind} needs torch to count devices, and {interpreter} could not. Give a number."
    try:
        with subprocess.Popen(
            [interpreter, "-c", _ASK, kind], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as child:
            output = _output(child, interrupted)
        number = int(output.split()[-1])
    except (OSError, ValueError, IndexError) as error:
        raise OptionsError(message) from error
    return cpus if number < 0 else number


def _output(child: subprocess.Popen[str], interrupted: Callable[[], bool]) -> str:
    for _ in range(int(ASK_SECONDS / _LOOK_SECONDS)):
        try:
            return child.communicate(timeout=_LOOK_SECONDS)[0]
        except subprocess.TimeoutExpired:
            if interrupted():
                break
    child.kill()
    return ""
