"""A revision as a source: its files are read out of git's objects, so that no checkout is touched."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import posixpath
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from elastic_infra.preview.sources import SourceError, Wanted


@dataclasses.dataclass(frozen=True)
class Revision:
    """A folder or file of one commit.

    Attributes:
        top: root of the repository's working tree.
        commit: full id of the commit.
        path: inside the repository; empty for all of it.
        is_there: whether the commit has the path; a side that lacks it is empty.
    """

    top: Path
    commit: str
    path: str
    is_file: bool
    is_there: bool = True

    @property
    def name(self) -> str:
        """Name of the file or folder."""
        return PurePosixPath(self.path).name or self.top.name

    def files(self, wanted: Wanted) -> Iterator[tuple[str, bytes]]:
        """Every wanted file; links and submodules are left out."""
        entries = _entries(self, [self.path] if self.path else [])
        found = {path: _inside(path, self) for path in entries}
        chosen = [path for path in sorted(entries) if self.is_file or wanted(found[path])]
        for path, content in zip(chosen, _blobs(self.top, [entries[path] for path in chosen]), strict=True):
            yield found[path], content

    def above(self, names: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
        """The folder itself, then those above it."""
        start = PurePosixPath(self.path).parent if self.is_file else PurePosixPath(self.path)
        folders = [start, *start.parents]
        wanted = [str(folder / name) for folder in folders for name in names]
        entries = _entries(self, wanted)
        chosen = [path for path in wanted if path in entries]
        contents = _blobs(self.top, [entries[path] for path in chosen])
        yield from ((PurePosixPath(path).name, content) for path, content in zip(chosen, contents, strict=True))

    @contextlib.contextmanager
    def folder(self) -> Iterator[Path]:
        """The commit's files in a folder that is gone afterwards; links out of it are left out."""
        with tempfile.TemporaryDirectory(prefix="elastic-infra-") as place:
            _write(Path(place), _tree(self.top, self.commit, []), self.top)
            yield Path(place, self.path)

    @contextlib.contextmanager
    def beside(self, file: str, folder: str) -> Iterator[Path]:
        """The folder of the file, with the commit's files and links in the other one; it is gone afterwards."""
        home = posixpath.dirname(self.path if self.is_file else posixpath.join(self.path, file))
        wanted = posixpath.normpath(posixpath.join(home, folder))
        if wanted.startswith(("/", "../")) or wanted == "..":
            message = f"{folder} is outside of the repository, so that no revision has it."
            raise SourceError(message)
        with tempfile.TemporaryDirectory(prefix="elastic-infra-") as place:
            _written(Path(place), _tree(self.top, self.commit, [normal(wanted)] if normal(wanted) else []), self.top)
            (Path(place) / home).mkdir(parents=True, exist_ok=True)
            yield Path(place, home)


def revision(spec: str, folder: Path, other_path: str = "") -> Revision:
    """The revision behind ``origin/main``, ``origin/main:jobs`` or ``main...HEAD``, the commit at which HEAD left main.

    A revision that lacks the other side's path is empty, since a pull request may add the whole folder.

    Args:
        folder: any folder of the repository.
        other_path: where the other side lies in the repository; this side's path when the spec names none.

    Raises:
        SourceError: no repository, no such revision, or no such path in it.
    """
    top = repository(folder)
    if top is None:
        message = "is neither a file nor a folder, and there is no git repository here that could have such a revision."
        raise SourceError(message)
    name, colon, given = spec.partition(":")
    commit = _commit(top, name)
    path = normal(given) if colon else other_path
    kind = _kind(top, commit, path)
    if kind is None and path != other_path:
        message = f"{name!r} has no {path!r}. Look with: git ls-tree {name}"
        raise SourceError(message)
    return Revision(top, commit, path, is_file=kind == "blob", is_there=kind is not None)


def as_sides(spec: str) -> tuple[str, str] | None:
    """BASE and HEAD in ``main...HEAD`` and ``main..HEAD``, each with the path behind the colon; None for one side.

    As git takes them: https://git-scm.com/docs/git-diff (A...B starts where B left A; an empty name is HEAD)
    """
    name, colon, path = spec.partition(":")
    found = _RANGE.fullmatch(name)
    if found is None:
        return None
    base = name if found["dots"] == "..." else found["old"] or "HEAD"
    return f"{base}{colon}{path}", f"{found['new'] or 'HEAD'}{colon}{path}"


_RANGE: Final = re.compile(r"(?P<old>[^.](?:(?!\.\.).)*|)(?P<dots>\.\.\.?)(?P<new>(?!/)(?:(?!\.\.).)*)")


def repository(folder: Path) -> Path | None:
    """Root of the repository that holds a folder, if any."""
    try:
        return Path(_git(folder, "rev-parse", "--show-toplevel").strip())
    except SourceError:
        return None


def normal(path: str) -> str:
    """The path as git writes it, empty for the whole repository."""
    text = str(PurePosixPath(path))
    return "" if text == "." else text


def _commit(top: Path, name: str) -> str:
    found = _RANGE.fullmatch(name)
    if found and found["dots"] == "...":
        return _merge_base(top, *(_commit(top, found[end] or "HEAD") for end in ("old", "new")))
    try:
        return _git(top, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}").strip()
    except SourceError:
        shallow = _git(top, "rev-parse", "--is-shallow-repository").strip() == "true"
    if shallow:
        message = (
            f"{name!r} is not in this shallow clone. Fetch it first (git fetch --depth=1 origin BRANCH), "
            "or check out with its history (actions/checkout: fetch-depth: 0)."
        )
        raise SourceError(message)
    message = f"{name!r} is neither a file, a folder nor a revision of this repository. Look with: git branch --all"
    raise SourceError(message)


def _merge_base(top: Path, old: str, new: str) -> str:
    try:
        return _git(top, "merge-base", old, new).strip()
    except SourceError:
        message = (
            f"{old[:10]} and {new[:10]} have no commit in common in this clone. Fetch more of their history "
            "(git fetch --unshallow, or actions/checkout: fetch-depth: 0)."
        )
        raise SourceError(message) from None


def _kind(top: Path, commit: str, path: str) -> str | None:
    try:
        return _git(top, "cat-file", "-t", f"{commit}:{path}").strip()
    except SourceError:
        return None


def _entries(revision: Revision, paths: list[str]) -> dict[str, str]:
    """Path to object id of the plain files under these paths."""
    if revision.path and not revision.is_file and _kind(revision.top, revision.commit, revision.path) is None:
        return {}
    found = _tree(revision.top, revision.commit, paths)
    return {entry.path: entry.id for entry in found if entry.mode.startswith(_PLAIN)}


@dataclasses.dataclass(frozen=True)
class _Entry:
    """One file of a commit, by git's mode and object id."""

    path: str
    mode: str
    id: str


_PLAIN: Final = "100"
"""How the modes of plain files begin; what follows are the permissions."""
_LINK: Final = "120000"


def _tree(top: Path, commit: str, paths: list[str]) -> list[_Entry]:
    listing = _git(top, "ls-tree", "-r", "-z", "--full-tree", commit, "--", *paths)
    rows = [row.partition("\t") for row in listing.split("\0") if row]
    return [_Entry(path, *facts.split()[::2]) for facts, _, path in rows]


def _write(place: Path, entries: list[_Entry], top: Path) -> None:
    """Write a commit's files, and its links that stay inside."""
    inside = place.resolve()
    for link in _written(place, entries, top):
        if not Path(os.path.realpath(link)).is_relative_to(inside):
            link.unlink()


def _written(place: Path, entries: list[_Entry], top: Path) -> list[Path]:
    """Write a commit's files and links, not by an archive, whose attributes leave files out; returns the links."""
    chosen = [entry for entry in entries if entry.mode.startswith(_PLAIN) or entry.mode == _LINK]
    links: list[Path] = []
    for entry, content in zip(chosen, _blobs(top, [entry.id for entry in chosen]), strict=True):
        target = place / entry.path
        target.parent.mkdir(parents=True, exist_ok=True)
        if entry.mode == _LINK:
            target.symlink_to(os.fsdecode(content))
            links.append(target)
        else:
            target.write_bytes(content)
            target.chmod(int(entry.mode[-3:], 8))
    return links


def _inside(path: str, revision: Revision) -> str:
    return str(PurePosixPath(path).relative_to(revision.path)) if not revision.is_file else PurePosixPath(path).name


def _blobs(top: Path, ids: list[str]) -> list[bytes]:
    output = _run(top, ("cat-file", "--batch"), "\n".join([*ids, ""]).encode())
    contents = []
    for _ in ids:
        header, _, output = output.partition(b"\n")
        if header.endswith(b" missing"):
            message = f"the object {header.split()[0].decode()} is not in this clone. Fetch the revision again."
            raise SourceError(message)
        size = int(header.split()[2])
        contents.append(output[:size])
        output = output[size + 1 :]
    return contents


def _git(folder: Path, *arguments: str) -> str:
    return _run(folder, arguments).decode("utf-8", "surrogateescape")


def _run(folder: Path, arguments: tuple[str, ...], text: bytes = b"") -> bytes:
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], input=text, capture_output=True, check=False, env=environment
        )
    except FileNotFoundError:
        message = "is no file or folder here, and reading a revision needs git, which is not installed."
        raise SourceError(message) from None
    if done.returncode:
        reason = done.stderr.decode("utf-8", "replace").strip().splitlines()
        message = f"git {arguments[0]} failed: {reason[-1] if reason else f'exit code {done.returncode}'}"
        raise SourceError(message)
    return done.stdout
