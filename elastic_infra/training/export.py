"""A snapshot on disk as a checkpoint of torch, for programs that do not use this library.

``python -m elastic_infra.training.export s3://bucket/job weights.pt`` writes the newest whole snapshot. One process
does it, without the ranks that saved the snapshot and without the script's classes: sharded tensors are put together
from the parts of all ranks.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch

from . import host_memory, shards, snapshots
from .console import warn

_FAILED: Final = 1


class ExportError(ValueError):
    """Nothing can be exported; the message says why, and what to do."""


def load(folder: str | os.PathLike[str], *, step: int | None = None, only: Iterable[str] = ()) -> dict[str, Any]:
    """The content of a durable snapshot as plain values and whole tensors in host memory.

    Args:
        folder: the folder or URL that ``ElasticState`` was given.
        step: the step of the snapshot; None, the default: the newest one that can be read. Older ones are tried where
            bytes of a newer one are damaged, with a warning.
        only: names of the members and plain values to read, such as ``model``. None by default: all of them.

    Returns:
        ``step``, the ``state_dict`` of each member by its name, and the plain values. An optimizer's ``state_dict``
        counts its parameters, as torch's own does.

    Raises:
        ExportError: there is no such snapshot, or it has no such member.
    """
    try:
        found = snapshots.Folder(snapshots.place_of(folder), warn)
        steps = found.steps()
    except (ImportError, OSError, ValueError) as error:
        raise ExportError(str(error)) from error
    if step is not None and step not in steps:
        there = f"Whole snapshots are there of the steps {', '.join(map(str, steps))}" if steps else "It has none"
        message = f"{found.root} has no whole snapshot of step {step}. {there}."
        raise ExportError(message)
    for each in steps if step is None else (step,):
        try:
            return _content(found, each, tuple(only))
        except ExportError:
            raise
        except (OSError, ValueError) as error:
            warn(f"The snapshot of step {each} in {found.root} cannot be read: {error}.")
    message = f"{found.root} has no whole snapshot. Give the folder that the script gives to ElasticState."
    raise ExportError(message)


def save_file(content: Mapping[str, Any], path: Path) -> None:
    """Write one file for ``torch.load(path, weights_only=True)``; it appears whole or not at all."""
    _appear(path, lambda draft: torch.save(dict(content), draft))


def save_sharded(content: Mapping[str, Any], path: Path) -> None:
    """Write a folder for ``torch.distributed.checkpoint.load``, which any number of ranks can read.

    https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
    """
    from torch.distributed import checkpoint

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that one process saves, as it was told
        _appear(path, lambda draft: checkpoint.save(dict(content), checkpoint_id=draft))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    given = _parser().parse_args(argv)
    save = save_sharded if given.format == "dcp" else save_file
    if given.output.exists():
        warn(f"{given.output} exists. Give another name, or delete it.")
        return _FAILED
    try:
        content = load(given.folder, step=given.step, only=given.only)
        save(content, given.output)
    except ExportError as error:
        warn(str(error))
        return _FAILED
    except (OSError, RuntimeError) as error:  # torch raises the second for a missing folder and a full disk
        warn(f"{given.output} cannot be written: {str(error).strip().splitlines()[0].rstrip('.')}.")
        return _FAILED
    sys.stdout.write(f"{given.output}: {', '.join(content)}; step {content['step']}\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m elastic_infra.training.export",
        description="Write a durable snapshot as a checkpoint of torch. All of it is held in memory meanwhile.",
    )
    parser.add_argument("folder", help="folder or URL of the snapshots, as the script gives it to ElasticState")
    parser.add_argument("output", type=Path, help="file or folder to write, which must not exist")
    parser.add_argument("--step", type=int, help="step of the snapshot; the newest whole one by default")
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="a member, such as model; repeat it"
    )
    form = "torch: one file for torch.load, the default; dcp: a folder for torch.distributed.checkpoint"
    parser.add_argument("--format", choices=("torch", "dcp"), default="torch", help=form)
    return parser


def _content(folder: snapshots.Folder, step: int, only: tuple[str, ...]) -> dict[str, Any]:
    tree = host_memory.state_of(folder.part(step, 0))
    named = {**tree["members"], **tree["plain"]}
    missing = sorted(set(only) - named.keys())
    if missing:
        message = f"The snapshot of step {step} has no {missing[0]!r}, but {', '.join(map(repr, named))}."
        raise ExportError(message)
    chosen = {name: value for name, value in named.items() if not only or name in only}
    assembly = shards.Assembly(shards.whole_targets(chosen))
    if assembly.missing:
        others = (host_memory.state_of(folder.part(step, rank)) for rank in range(1, folder.world(step)))
        assembly.fill(part["shards"] for part in itertools.chain([tree], others))
    return {"step": step, **assembly.put_into(chosen)}


def _appear(path: Path, write: Callable[[Path], object]) -> None:
    draft = path.with_name(f".{path.name}.draft")
    try:
        write(draft)
        draft.rename(path)
    finally:
        shutil.rmtree(draft) if draft.is_dir() else draft.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
