"""What a program will import, read from its source without running it.

Only statements that run for certain when it starts are followed, into the program's own files too; the warm parent
loads what they name before there is a worker.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator
from typing import Final

from .plan import Entrypoint

_MOST_FILES: Final = 200
"""Of a program that is larger, the rest is found out when it runs."""


def declared(entrypoint: Entrypoint, folder: str) -> tuple[str, ...]:
    """Names of the modules that the program imports when it starts, its own and the standard library's left out.

    Args:
        entrypoint: what every worker runs.
        folder: the working folder, in which ``--module`` looks first.

    Returns:
        names in the order of their statements; none where the source cannot be found, read or parsed.
    """
    root, first = _source(entrypoint, folder)
    names: dict[str, None] = {}
    files = [first] if first else []
    for path in files:
        for name in _named(path):
            own = _own_file(root, name)
            if own is None:
                names[name] = None
            elif own not in files and len(files) < _MOST_FILES:
                files.append(own)
    return tuple(name for name in names if name.partition(".")[0] not in sys.stdlib_module_names)


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


def _named(path: str) -> Iterator[str]:
    try:
        with open(path, "rb") as file:
            statements = ast.parse(file.read()).body
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for statement in statements:
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom) and statement.module and statement.level == 0:
            yield statement.module
