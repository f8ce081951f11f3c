"""The accelerators that the environment lets workers see. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from .options import OptionsError


def listed(environ: Mapping[str, str]) -> tuple[str, list[str] | None]:
    """The variable by which devices are chosen, and those in it; None without it. HIP's own leads, as in torchrun."""
    name = "HIP_VISIBLE_DEVICES" if environ.get("HIP_VISIBLE_DEVICES") else "CUDA_VISIBLE_DEVICES"
    chosen = environ.get(name)
    return name, None if chosen is None else [word.strip() for word in chosen.split(",")]


def check_one_each(workers: int, environ: Mapping[str, str]) -> None:
    """Raise where ``--virtual-local-rank`` has fewer devices to give than there are workers.

    Raises:
        OptionsError: a worker would have no device.
    """
    name, devices = listed(environ)
    if devices is not None and len(devices) < workers:
        message = (
            f"--virtual-local-rank: {workers} workers need a device each, and {name} has {len(devices)}. "
            f"List more devices there or lower --nproc-per-node."
        )
        raise OptionsError(message)
