"""The imports of a program, read from its source without running it.

The fork server loads these modules before there is a worker, so only those count that the program imports before it
does anything else: if the program first changes variables, the path or filters of warnings, a later import must see the
change.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import importlib.util
import os
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Final

from ..command_line.plan import Entrypoint

_MOST_FILES: Final = 200
"""The most files that are read; for a larger program the other imports are recorded when it runs."""


DYNAMO: Final = "torch._dynamo"
"""What torch imports with the first optimizer and with ``DistributedDataParallel``, for nearly as long as for itself:
https://github.com/pytorch/pytorch/blob/v2.6.0/torch/_compile.py"""
_ALONE: Final = {"torch", "numpy"}
"""Packages that import ``torch._dynamo`` only for names that the program's own source uses."""
_TRAINS: Final = re.compile(rb"\b(nn|optim|compile)\b")
"""A program that names none of these makes neither models nor optimizers."""
_CONFIGURES: Final = re.compile(
    rb"environ\s*(\[[^\]]*\]\s*=[^=]|\|=|\.(update|setdefault|pop|popitem|clear)\b)|putenv|dotenv|\bTORCH[A-Z]*_"
    rb"|\bsys\.path\s*(\.(insert|append|extend|remove|pop|clear)\b|\[|\+?=[^=])|\b(simplefilter|filterwarnings)\b"
)
"""A program that names one of these may change what ``torch._dynamo`` reads when it is imported: variables, the path,
filters of warnings. What functions of other packages change is not seen."""
_HARMLESS: Final = {"collections", "dataclasses", "datetime", "enum", "functools", "itertools", "logging", "math",
                   "numpy", "pathlib", "re", "time", "torch", "typing"}  # fmt: skip
"""Packages whose functions, called while a module is imported, change nothing that another import reads."""
_NEVER_THE_USERS: Final = {"torch", "elastic_infra", *sys.stdlib_module_names}
"""Packages that are never code of the user's, wherever they are installed."""
_INSTALLED: Final = re.compile(r"/(site|dist)-packages/")
_BUILTINS: Final = {"bool", "dict", "float", "frozenset", "int", "len", "list", "max", "min", "object", "print",
                   "range", "set", "sorted", "str", "sum", "super", "tuple", "type", "zip"}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Declared:
    """The imports of a program, as far as its source shows them."""

    names: tuple[str, ...] = ()
    """Modules that it imports before anything else, its own and the standard library's left out, in its order."""
    needs_dynamo: bool = True
    """Whether it may come to need ``torch._dynamo``; where that cannot be seen, it may."""

    @property
    def imports_torch(self) -> bool:
        """Whether it certainly imports torch itself."""
        return any(_package(name) == "torch" for name in self.names)

    @property
    def modules(self) -> tuple[str, ...]:
        """All modules that are worth loading before a worker runs."""
        return (*self.names, DYNAMO) if self.needs_dynamo else self.names


def declared(entrypoint: Entrypoint, folder: str) -> Declared:
    """The program's imports, as far as its source shows them; none where the source cannot be found, read or parsed.

    Args:
        entrypoint: what every worker runs.
        folder: the working folder, in which ``--module`` looks first.
    """
    root, first = _source(entrypoint, folder)
    reader = _Reader(root, {}, {})
    if first is not None:
        reader.follow(first, root)
    found = tuple(name for name in reader.names if _package(name) not in sys.stdlib_module_names)
    sources = reader.files.values()
    uses = any(_TRAINS.search(each) for each in sources) or not found
    may_use = uses or any(_package(name) not in _ALONE for name in found)
    return Declared(found, may_use and not any(_CONFIGURES.search(each) for each in sources))


@dataclasses.dataclass(frozen=True)
class _Reader:
    """Reads a program in the order in which it would run."""

    root: str
    names: dict[str, None]
    """Modules of others, in order."""
    files: dict[str, bytes]
    """Sources of the program's own files that were read."""

    def follow(self, path: str, root: str) -> bool:
        """Read a file's first imports; whether the imports after it still come before anything else."""
        if path in self.files:
            return True
        if len(self.files) >= _MOST_FILES:
            return False
        self.files[path] = source = _read(path)
        body = _parse(source)
        if body is None:
            return False
        while body and isinstance(body[0], (ast.Import, ast.ImportFrom)):
            if not all(self._take(name, path) for name in _named(body.pop(0), path, root)):
                return False
        known = _known(_parse(source) or [])
        return all(_is_inert(statement, known) for statement in body)

    def _take(self, name: str, path: str) -> bool:
        is_beside = any(_own_file(self.root, part) for part in _prefixes(name))
        root = self.root if is_beside else _root_elsewhere(_package(name))
        if root is None:
            self.names[name] = None
            return True
        own = [found for part in _prefixes(name) if (found := _own_file(root, part))]
        return bool(own) and all(self.follow(found, root) for found in own if found != path)


def _root_elsewhere(package: str) -> str | None:
    """The folder on the path that holds code of the user's (``PYTHONPATH``, an editable install); None: installed."""
    if package in _NEVER_THE_USERS:
        return None
    with contextlib.suppress(ImportError, ValueError, AttributeError):
        spec = importlib.util.find_spec(package)
        place = (spec.origin or next(iter(spec.submodule_search_locations or ()), "")) if spec else ""
        if place and not _INSTALLED.search(place):
            folder = os.path.dirname(place)
            return os.path.dirname(folder) if os.path.basename(place) == "__init__.py" else folder
    return None


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


def _parse(source: bytes) -> list[ast.stmt] | None:
    """The statements of a file, without what does nothing; None where it cannot be parsed."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return [statement for statement in body if not _is_nothing(statement)]


def _is_nothing(statement: ast.stmt) -> bool:
    """A docstring, another constant, or an import from ``__future__``."""
    is_constant = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return is_constant or (isinstance(statement, ast.ImportFrom) and statement.module == "__future__")


def _named(statement: ast.stmt, path: str, root: str) -> Iterator[str]:
    """The modules of an import, relative ones by their full name."""
    if isinstance(statement, ast.Import):
        yield from (alias.name for alias in statement.names)
    elif isinstance(statement, ast.ImportFrom):
        folder = os.path.dirname(path)
        for _ in range(statement.level - 1):
            folder = os.path.dirname(folder)
        package = os.path.relpath(folder, root).split(os.sep) if statement.level else []
        module = ".".join([*(part for part in package if part != os.curdir), *filter(None, [statement.module])])
        if module:
            yield module
        yield from (
            full for alias in statement.names if _own_file(root, full := ".".join(filter(None, [module, alias.name])))
        )


def _prefixes(name: str) -> Iterator[str]:
    """The packages around a module, then the module."""
    parts = name.split(".")
    return (".".join(parts[: number + 1]) for number in range(len(parts)))


def _known(body: Iterable[ast.stmt]) -> frozenset[str]:
    """Names that stand for harmless packages, or for something in one."""
    found = set(_BUILTINS)
    for statement in body:
        if isinstance(statement, ast.Import):
            names = {alias.asname or _package(alias.name): _package(alias.name) for alias in statement.names}
            found |= {name for name, package in names.items() if package in _HARMLESS}
        elif isinstance(statement, ast.ImportFrom) and _package(statement.module or "") in _HARMLESS:
            found |= {alias.asname or alias.name for alias in statement.names}
    return frozenset(found)


def _is_inert(statement: ast.stmt, known: frozenset[str]) -> bool:
    """Whether a statement, run while a module is imported, changes nothing outside of that module for certain."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
        defaults = [default for default in statement.args.kw_defaults if default is not None]
        return _call_harmless([*statement.decorator_list, *statement.args.defaults, *defaults], known)
    if isinstance(statement, ast.ClassDef):
        outside = [*statement.decorator_list, *statement.bases, *(each.value for each in statement.keywords)]
        return _call_harmless(outside, known) and all(_is_inert(each, known) for each in statement.body)
    if isinstance(statement, (ast.Assign, ast.AnnAssign)):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        return all(isinstance(target, ast.Name) for target in targets) and _call_harmless([statement], known)
    if isinstance(statement, ast.If):
        return ast.unparse(statement.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING", "__name__ == '__main__'"}
    return isinstance(statement, (ast.Pass, ast.Expr)) and _call_harmless([statement], known)


def _call_harmless(parts: Iterable[ast.AST], known: frozenset[str]) -> bool:
    """Whether every call in them goes to a harmless package."""
    calls = (node.func for part in parts for node in ast.walk(part) if isinstance(node, ast.Call))
    return all(_root(function) in known for function in calls)


def _root(expression: ast.expr) -> str:
    """The name at which a dotted name begins; empty for anything else."""
    while isinstance(expression, ast.Attribute):
        expression = expression.value
    return expression.id if isinstance(expression, ast.Name) else ""


def _package(name: str) -> str:
    return name.partition(".")[0]
