"""Reads the folder of `workdir` into the config, so that all that follows is pure."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import NoReturn

from elastic_infra.config.errors import ConfigError, Fault
from elastic_infra.config.job import JobConfig
from elastic_infra.config.pod_rules import workdir_is_code
from elastic_infra.config.workdir import MAX_FILES, MAX_FOLDER_BYTES, Files, is_left_out, largest, size


def with_workdir(config: JobConfig, folder: Path) -> JobConfig:
    """The config with the files of its `workdir`, read unless it has them.

    Args:
        folder: that of the job file or program, from which `workdir.path` starts.

    Raises:
        ConfigError: the folder cannot be read, is no code, or does not fit.
    """
    workdir = config.workdir
    if workdir is None or workdir.path is None or workdir.files is not None:
        return config
    files = read_folder(folder / workdir.path, workdir.exclude)
    found = config.model_copy(update={"workdir": workdir.model_copy(update={"files": files})})
    if faults := tuple(workdir_is_code(found)):
        raise ConfigError(faults)
    return found


def read_folder(root: Path, exclude: tuple[str, ...]) -> Files:
    """The files of a folder.

    Args:
        exclude: patterns of what is left out, as `Workdir.exclude`.

    Raises:
        ConfigError: the folder cannot be read, has links out of it, or more than code has.
    """
    try:
        if not root.is_dir():
            _refuse(f"is no folder: {root.absolute()}. It starts from the folder of the job file or program.")
        return Files((path, (root / path).read_bytes()) for path in sorted(_sizes(root, exclude)))
    except OSError as error:
        _refuse(f"cannot be read: {error.strerror or error}: {error.filename}.")


def _sizes(root: Path, exclude: tuple[str, ...]) -> Mapping[str, int]:
    """Size of each file, before any is read: a folder may hold data without end."""
    found: dict[str, int] = {}
    total = 0
    for path, length in _walk(root, exclude):
        found[path] = length
        total += length
        if len(found) > MAX_FILES or total > MAX_FOLDER_BYTES:
            _refuse(
                f"has more than {MAX_FILES} files or {size(MAX_FOLDER_BYTES)}, which is more than code has. Exclude "
                f"what is no code, or put it into the image or a volume. The largest so far: {largest(found)}."
            )
    return found


def _walk(root: Path, exclude: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    top = root.resolve()
    for place, folders, files in os.walk(root, onerror=_raise):
        here = PurePosixPath(Path(place).relative_to(root).as_posix())
        folders[:] = sorted(name for name in folders if not is_left_out(here / name, exclude))
        for name in folders:
            if (Path(place) / name).is_symlink():
                _refuse("is a link to a folder, which is not followed. Exclude it, or copy it.", here / name)
        for name in sorted(files):
            path = here / name
            if not is_left_out(path, exclude):
                yield str(path), _size(top, Path(place) / name, path)


def _size(top: Path, file: Path, path: PurePosixPath) -> int:
    """Size of a plain file; a link counts as the file that it leads to, inside the folder."""
    if not str(path).isprintable():
        shown = ascii(str(path))
        _refuse(f"holds a file whose name is not plain text: {shown}. Rename it, or exclude it.")
    if file.is_symlink() and not file.resolve().is_relative_to(top):
        _refuse("is a link out of the folder. Copy the file into it, or exclude it.", path)
    facts = file.stat()
    if not stat.S_ISREG(facts.st_mode):
        _refuse("is no plain file. Exclude it.", path)
    return facts.st_size


def _raise(error: OSError) -> None:
    raise error


def _refuse(reason: str, path: PurePosixPath | None = None) -> NoReturn:
    raise ConfigError([Fault("workdir.path" if path is None else f"workdir.files[{str(path)!r}]", reason)])
