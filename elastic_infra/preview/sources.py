"""The source of a side: a file, a folder, or a revision read with git, without a checkout."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path, PurePosixPath
from typing import Protocol

from elastic_infra.config.load import MAX_FILE_BYTES

Wanted = Callable[[str], bool]


class SourceError(ValueError):
    """A side that cannot be read at all; says why and what to do."""


class Source(Protocol):
    """Files of one side, by their path inside it."""

    @property
    def is_file(self) -> bool:
        """Whether the side is one file, given directly."""

    @property
    def name(self) -> str:
        """Name of the file or folder itself."""

    def files(self, wanted: Wanted) -> Iterator[tuple[str, bytes]]:
        """Path and content of each wanted file, sorted by path.

        Raises:
            SourceError: one of them cannot be read.
        """

    def above(self, names: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
        """Files of these names in the folder itself, then in each folder above within the repository."""

    def folder(self) -> AbstractContextManager[Path]:
        """The side as a folder that programs can run in."""

    def beside(self, file: str, folder: str) -> AbstractContextManager[Path]:
        """The folder of one of its files, with all that lies in another folder, which is named from there.

        Raises:
            SourceError: the other folder is no part of what can be read.
        """


@dataclasses.dataclass(frozen=True)
class OnDisk:
    """A file or folder of this machine."""

    root: Path

    @property
    def is_file(self) -> bool:
        """Whether it is one file."""
        return self.root.is_file()

    @property
    def name(self) -> str:
        """The file's name without its folder."""
        return self.root.resolve().name

    def files(self, wanted: Wanted) -> Iterator[tuple[str, bytes]]:
        """Every wanted file; links are not followed, since they may lead out of the folder."""
        if self.is_file:
            yield self.name, _read(self.root)
            return
        for path in sorted(_walk(self.root)):
            if wanted(path):
                yield path, _read(self.root / path)

    def above(self, names: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
        """The folder itself, then those above up to the repository's; only itself outside of one."""
        start = self.root.resolve().parent if self.is_file else self.root.resolve()
        folders = [start, *start.parents]
        top = next((i for i, folder in enumerate(folders) if (folder / ".git").exists()), 0)
        for folder in folders[: top + 1]:
            for name in names:
                if (folder / name).is_file():
                    yield name, _read(folder / name)

    @contextlib.contextmanager
    def folder(self) -> Iterator[Path]:
        """The folder itself, absolute: a program runs with its own as the current one."""
        yield self.root.resolve()

    @contextlib.contextmanager
    def beside(self, file: str, folder: str) -> Iterator[Path]:  # noqa: ARG002 - it is all there
        """The folder of the file."""
        yield (self.root if self.is_file else self.root / file).parent


def _walk(root: Path) -> Iterator[str]:
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in files:
            path = Path(folder, name)
            if not path.is_symlink():
                yield str(PurePosixPath(path.relative_to(root)))


def _read(path: Path) -> bytes:
    """At most one byte more than a job file may have."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror or error}."
        raise SourceError(message) from None
