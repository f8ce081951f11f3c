"""The newest whole checkpoint of a transformers ``Trainer``.

``transformers.trainer_utils.get_last_checkpoint`` returns the newest folder, also where its writer was killed. A whole
folder has ``trainer_state.json``, which rank 0 writes last, and files that are as long as they say: another rank may
have been killed while it wrote its own file.
"""

from __future__ import annotations

import json
import os
import re
import struct
from pathlib import Path
from typing import Any, Final

from .adapted import damage_of_torch_file
from .console import warn_for_job

_STATE: Final = "trainer_state.json"
_NAME: Final = re.compile(r"checkpoint-(\d+)")
_LENGTH: Final = struct.Struct("<Q")
"""The first bytes of a safetensors file: https://huggingface.co/docs/safetensors/index#format"""


def latest(folder: str | os.PathLike[str]) -> str | None:
    """The newest whole checkpoint in the Trainer's ``output_dir``, for ``resume_from_checkpoint``.

    A checkpoint that is damaged or was not written to its end is skipped with a warning, and stays where it is. Bytes
    that changed within a file of the right length are not noticed.

    Args:
        folder: the ``output_dir``, on a volume that all nodes share; it need not exist.

    Returns:
        The path of the checkpoint; None without one, so that training begins at step 0.
    """
    for path in _newest_first(Path(folder)):
        damage = _damage(path)
        if damage is None:
            return str(path)
        warn_for_job(f"The checkpoint {path} is skipped: {damage}.")
    return None


def _newest_first(folder: Path) -> list[Path]:
    steps = {path: _NAME.fullmatch(path.name) for path in folder.glob("checkpoint-*") if path.is_dir()}
    numbered = [(int(found[1]), path) for path, found in steps.items() if found]
    return [path for _, path in sorted(numbered, reverse=True)]


def _damage(folder: Path) -> str | None:
    """What is wrong with a checkpoint; None where the checkpoint is whole."""
    if not (folder / _STATE).exists():
        return f"{_STATE}, which is written last, is missing"
    try:
        found = (_damage_of(path) for path in sorted(folder.rglob("*")) if path.is_file())
        return next(filter(None, found), None)
    except OSError as error:
        return f"{error.filename} cannot be read: {error.strerror}"


def _damage_of(path: Path) -> str | None:
    if path.suffix == ".json":
        return _damage_of_json(path)
    if path.suffix == ".safetensors":
        return _damage_of_safetensors(path)
    if path.suffix in {".pt", ".pth", ".bin"}:
        return damage_of_torch_file(path)
    if path.suffix == ".distcp" and not (path.parent / ".metadata").exists():
        return f"{path.parent.name} has no .metadata, which is written last"
    return None


def _damage_of_json(path: Path) -> str | None:
    try:
        content = json.loads(path.read_bytes())
        shards = set(content["weight_map"].values()) if path.name.endswith(".index.json") else set()
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"{path.name} is not whole"
    missing = min((shard for shard in shards if not (path.parent / shard).exists()), default=None)
    return f"{missing}, which {path.name} names, is missing" if missing else None


def _damage_of_safetensors(path: Path) -> str | None:
    try:
        length = _safetensors_length(path)
    except (ValueError, KeyError, TypeError, struct.error):
        return f"{path.name} is not whole"
    return None if path.stat().st_size == length else f"{path.name} ends too early"


def _safetensors_length(path: Path) -> int:
    """The length that the file should have, by its header."""
    with path.open("rb") as file:
        (size,) = _LENGTH.unpack(file.read(_LENGTH.size))
        if size > path.stat().st_size:
            raise ValueError
        header: dict[str, Any] = json.loads(file.read(size))
    ends = [tensor["data_offsets"][1] for name, tensor in header.items() if name != "__metadata__"]
    return int(_LENGTH.size + size + max(ends, default=0))
