"""What a program will import, read from its source without running it.

Only statements that run for certain when it starts are followed, into the program's own files too; the fork server
loads what they name before there is a worker.
"""

from __future__ import annotations

import ast
import dataclasses
import os
import re
import sys
from collections.abc import Iterator
from typing import Final

from ..command_line.plan import Entrypoint

_MOST_FILES: Final = 200
"""Of a program that is larger, the rest is found out when it runs."""


DYNAMO: Final = "torch._dynamo"
"""What torch imports with the first optimizer and with ``DistributedDataParallel``, for nearly as long as for itself:
https://github.com/pytorch/pytorch/blob/v2.6.0/torch/_compile.py"""
_ALONE: Final = {"torch", "numpy"}
"""Packages that import it for nothing but what the program's own source names."""
_TRAINS: Final = re.compile(rb"\b(nn|optim|compile)\b")
"""A program that names none of these makes neither models nor optimizers."""


@dataclasses.dataclass(frozen=True)
class Declared:
    """What a program will import."""

    names: tuple[str, ...] = ()
    """Modules that it imports when it starts, its own and the standard library's left out, in its order."""
    needs_dynamo: bool = True
    """Whether it may come to need ``torch._dynamo``; where that cannot be seen, it may."""

    @property
    def imports_torch(self) -> bool:
        """Whether it certainly imports torch itself."""
        return any(_package(name) == "torch" for name in self.names)

    @property
    def modules(self) -> tuple[str, ...]:
        """All that is worth loading before a worker runs."""
        return (*self.names, DYNAMO) if self.needs_dynamo else self.names


def declared(entrypoint: Entrypoint, folder: str) -> Declared:
    """What the program imports, as far as its source tells; nothing where that cannot be found, read or parsed.

    Args:
        entrypoint: what every worker runs.
        folder: the working folder, in which ``--module`` looks first.
    """
    root, first = _source(entrypoint, folder)
    names: dict[str, None] = {}
    files = [first] if first else []
    trains = False
    for path in files:
        source = _read(path)
        trains = trains or _TRAINS.search(source) is not None
        for name in _named(source):
            own = _own_file(root, name)
            if own is None:
                names[name] = None
            elif own not in files and len(files) < _MOST_FILES:
                files.append(own)
    found = tuple(name for name in names if _package(name) not in sys.stdlib_module_names)
    return Declared(found, trains or not found or any(_package(name) not in _ALONE for name in found))


def _source(entrypoint: Entrypoint, folder: str) -> tuple[str, str | None]:
    """The folder that is first on the program's path, and the file that runs."""
    if entrypoint.kind == "script":
        return os.path.dirname(os.path.abspath(entrypoint.target)), entrypoint.target
    if entrypoint.kind == "module":
        package = _own_file(folder, f"{entrypoint.target}.__main__")
        return folder, package or _own_file(folder, entrypoint.target)
    return folder, None


def _own_file(root: str, name: str) -> str | None:
    stem = os.path.join(root, *name.split("."))
    return next((path for path in (f"{stem}.py", os.path.join(stem, "__init__.py")) if os.path.isfile(path)), None)


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def _named(source: bytes) -> Iterator[str]:
    try:
        statements = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for statement in statements:
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom) and statement.module and statement.level == 0:
            yield statement.module


def _package(name: str) -> str:
    return name.partition(".")[0]
