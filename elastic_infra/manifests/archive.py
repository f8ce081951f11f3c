"""Builds the launcher's zip from the sources: small, and the same bytes from the same sources on one machine.

Standard library only and loaded by path: the wheel's build runs this before any dependency is there. deflate's bytes
differ between zlib and its successors, so the wheel carries the zip, and a release is the same everywhere.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

CONTENT: Final = ("launcher", "training")
"""The parts of the package in the zip: the launcher, and the modules for training scripts."""

ENTRY: Final = '''\
"""Entry of the mounted launcher: reachable for itself and for the workers that it starts."""

import os
import sys

archive = sys.path[0]
given = [os.environ.get("ELASTIC_INFRA_WORKDIR"), os.environ.get("PYTHONPATH")]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [archive, *given]))

from elastic_infra.launcher.__main__ import main  # noqa: E402 - after the path is set

sys.exit(main())
'''

_FIXED_TIME: Final = (1980, 1, 1, 0, 0, 0)
_UNIX: Final = 3
"""The zip format's number for the kind of system; Python would write the one it runs on."""


def build(package: Path) -> bytes:
    """The zip: an entry, the package that finds its modules in one text, and that text; sorted, with fixed times.

    Args:
        package: folder of `elastic_infra`.
    """
    files = {
        "__main__.py": ENTRY,
        "elastic_infra/__init__.py": (package / "manifests/mounted_package.py").read_text("utf-8"),
    }
    programs = {path: stripped(source).encode() for path, source in files.items()}
    return packed({**programs, "elastic_infra/sources": joined(sources(package)).encode()})


def sources(package: Path) -> dict[str, str]:
    """Every module's source, by its path in the package."""
    chosen = (path for part in CONTENT for path in (package / part).rglob("*.py"))
    return {path.relative_to(package).as_posix(): path.read_text("utf-8") for path in chosen}


def joined(files: Mapping[str, str]) -> str:
    """Stripped sources as one text, each after its path, for `mounted_package.Modules`."""
    return "\0".join(f"{path}\n{stripped(files[path])}" for path in sorted(files))


def packed(files: Mapping[str, bytes]) -> bytes:
    """The files as a zip that does not depend on the machine that made it."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as target:
        for path in sorted(files):
            entry = zipfile.ZipInfo(path, _FIXED_TIME)
            entry.create_system = _UNIX
            target.writestr(entry, files[path], zipfile.ZIP_DEFLATED, compresslevel=9)
    return buffer.getvalue()


def stripped(source: str) -> str:
    """The source without comments, docstrings and needless spaces, each statement on its line: tracebacks stay true.

    The function has its own small tokenizer, because Python's would cost each start of a checkout's program half a
    second.
    """
    depth = 0

    def kept(token: re.Match[str]) -> str:
        nonlocal depth
        text = token.group()
        depth += (text in _OPENING) - (text in _CLOSING)
        if text.lstrip().startswith("#"):
            return ""
        if text[0] == "\n":
            return "\n" if depth else "\n" + " " * (len(text) // _INDENT)
        if text[-1] == " ":
            return text.strip()
        is_docstring = text[0] in "\"'" and depth == 0 and _is_statement(token)
        return _nothing(token) if is_docstring else text

    return _TOKEN.sub(kept, source)


_OPENING: Final = tuple("([{")
_CLOSING: Final = tuple(")]}")
_INDENT: Final = 4
_TOKEN: Final = re.compile(
    r'''"""(?:\\.|[^\\])*?"""|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|\ *\#[^\n]*|[()\[\]{}]'''
    r"|\n\ *|[,:] | (?:->|:=|\*\*|//|[-+*/|&%<>=!]?=|[-+*/|&%<>]) |\ (?=[(\[{])",
    re.DOTALL,
)
"""A string, a comment, a bracket or spaces: what looks like one inside of another is found as that other."""
_LINE_END: Final = re.compile(r" *(#|\n|\Z)")


def _is_statement(text: re.Match[str]) -> bool:
    """Whether a string is alone on its lines."""
    return not _before(text).strip() and _LINE_END.match(text.string, text.end()) is not None


def _nothing(text: re.Match[str]) -> str:
    """What replaces a docstring: `pass` in a body, which may have no other statement; nothing in a module."""
    return ("pass" if _before(text) else "") + "\n" * text.group().count("\n")


def _before(token: re.Match[str]) -> str:
    """The text before a token on its line."""
    return token.string[token.string.rfind("\n", 0, token.start()) + 1 : token.start()]
