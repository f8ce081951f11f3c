"""Local code that goes to the pods without a build of the image: a folder's files, and the archive made of them. Pure.

`workdir_files` reads the folder; from then on the config holds all that its objects are made of.
"""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import io
import posixpath
import re
import tarfile
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator, Field

from elastic_infra.config.base import Part, Shorthand
from elastic_infra.config.values import AbsolutePath

MAX_ARCHIVE_BYTES: Final = 1024 * 1024 - 64 * 1024
"""The most that the archive may have: the API server takes 1 MiB of data in a ConfigMap, of which the list of the files
has a part: https://kubernetes.io/docs/concepts/configuration/configmap/#motivation"""

MAX_FOLDER_BYTES: Final = 32 * 1024 * 1024
"""The most that the files may have together: no code that fits into the archive is as large, and a folder with data is
refused before it is read."""

MAX_FILES: Final = 5_000
NAMED: Final = 3
"""How many of the largest files a refusal names."""

LEFT_OUT: Final = (
    ".DS_Store",
    ".git",
    ".hg",
    ".idea",
    ".ipynb_checkpoints",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".svn",
    ".venv",
    ".vscode",
    "*.job.json",
    "*.job.yaml",
    "*.job.yml",
    "*.pyc",
    "Pulumi.*.yaml",
    "Pulumi.yaml",
    "__pycache__",
    "job.json",
    "job.yaml",
    "job.yml",
    "node_modules",
)
"""What is never code of the job: caches, environments, history, and the files that declare the job, whose every change
would else restart it."""

_SECRET_NAMES: Final = (
    ".env",
    ".env.*",
    ".git-credentials",
    ".netrc",
    ".npmrc",
    ".pypirc",
    "*.jks",
    "*.key",
    "*.keystore",
    "*.p12",
    "*.pem",
    "*.pfx",
    "*.tfstate",
    "application_default_credentials.json",
    "credentials",
    "credentials.json",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    "id_rsa",
    "kubeconfig",
)
_SECRET_FOLDERS: Final = frozenset({".aws", ".azure", ".docker", ".gnupg", ".kube", ".ssh"})
_PRIVATE_KEY: Final = re.compile(rb"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY-----")


class Files(dict[str, bytes]):
    """A folder's files by relative path, sorted; one value of a config."""


def _file_name(path: str) -> str:
    """A path inside a folder that has one line and one spelling."""
    is_plain = path == posixpath.normpath(path) and not path.startswith(("/", "../")) and path not in {".", ".."}
    if is_plain and path.isprintable() and len(path.encode()) <= MAX_NAME_BYTES:
        return path
    message = "must be a relative path without '..' and unprintable characters (at most 1024 bytes)."
    raise ValueError(message)


MAX_NAME_BYTES: Final = 1024


def _content(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        message = "must be the file's content in base64."
        raise ValueError(message) from None


def _sorted(files: dict[str, bytes]) -> dict[str, bytes]:
    return Files((path, files[path]) for path in sorted(files))


_FileName = Annotated[str, AfterValidator(_file_name)]
_Content = Annotated[bytes, BeforeValidator(_content, json_schema_input_type=str)]


class Workdir(Part):
    """Code that the pods get beside the image, in a ConfigMap named by its digest: other files are other pods."""

    path: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    """The folder: relative to the job file, and in a program to the program's folder. Caches, `.git`, `.venv`, and the
    files that declare jobs are left out. What looks like a secret is refused, and so are links out of the folder."""

    mount_path: AbsolutePath = "/workspace"
    """Where the files are in the container. It is the working directory unless `working_dir` is set, and is searched
    for modules before the image's PYTHONPATH."""

    exclude: tuple[Annotated[str, Field(min_length=1, max_length=1024)], ...] = ()
    """What else is left out: a pattern such as `*.ipynb` or `data` goes by the name of any file or folder, one with a
    `/`, such as `tests/big/*`, by the path from the folder."""

    files: Annotated[Annotated[dict[_FileName, _Content], AfterValidator(_sorted)] | None, Field(repr=False)] = None
    """The files by their relative path, each in base64, where a program reads them itself; then `path` is not read.
    Files that begin with `#!` can be executed."""


def _folder(value: object) -> object:
    return {"path": value} if isinstance(value, str) else value


WorkdirField = Annotated[Workdir, Shorthand(_folder, {"type": "string", "minLength": 1})]


def is_left_out(path: PurePosixPath, exclude: tuple[str, ...]) -> bool:
    """Whether a file or folder, by its path from the folder, is no part of the code."""
    return any(_matches(path, pattern) for pattern in (*LEFT_OUT, *exclude))


def _matches(path: PurePosixPath, pattern: str) -> bool:
    wanted = PurePosixPath(pattern.strip("/")).parts
    if "/" not in pattern.rstrip("/"):
        return fnmatchcase(path.name, pattern.rstrip("/"))
    return len(wanted) == len(path.parts) and all(map(fnmatchcase, path.parts, wanted))


def secret_looking(path: str, content: bytes) -> bool:
    """Whether a file may hold a secret: by its name, its folder, or a private key in it."""
    pure = PurePosixPath(path)
    by_name = any(fnmatchcase(pure.name.lower(), pattern) for pattern in _SECRET_NAMES)
    return by_name or not _SECRET_FOLDERS.isdisjoint(pure.parts[:-1]) or bool(_PRIVATE_KEY.search(content))


def archive(files: Mapping[str, bytes]) -> bytes:
    """The files as a tar archive that says nothing of the machine that made it.

    bzip2, because its one implementation makes the same bytes everywhere, where those of deflate differ by version.
    """
    return _archive(tuple(sorted(files.items())))


@functools.lru_cache(maxsize=8)
def _archive(files: tuple[tuple[str, bytes], ...]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:bz2", format=tarfile.PAX_FORMAT) as target:
        for path, content in files:
            entry = tarfile.TarInfo(path)
            entry.size, entry.mtime = len(content), _FIXED_TIME
            entry.mode = 0o755 if content.startswith(b"#!") else 0o644
            target.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


_FIXED_TIME: Final = 315_532_800
"""1980, the first year that a zip can hold: packages that a script makes of its own files must not fail."""


def digest(files: Mapping[str, bytes]) -> str:
    """Eight hex digits that change with any file's path or content."""
    return hashlib.sha256(listing(files).encode()).hexdigest()[:8]


def listing(files: Mapping[str, bytes]) -> str:
    """A line for each file: its path, and what tells its content from another."""
    return "".join(f"{path}: {told(files[path])}\n" for path in sorted(files))


def told(content: bytes) -> str:
    """What tells a file's content from another: its size, and the beginning of its SHA-256."""
    return f"{_counted(len(content), 'byte')} ({hashlib.sha256(content).hexdigest()[:8]})"


def amount(files: Mapping[str, bytes]) -> str:
    """How much code that is."""
    return f"{_counted(len(files), 'file')}, {size(sum(map(len, files.values())))}"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def by_path(text: str) -> dict[str, str]:
    """A `listing` read back."""
    pairs = (line.rpartition(": ") for line in text.splitlines())
    return {path: content for path, _, content in pairs}


def largest(sizes: Mapping[str, int]) -> str:
    """The largest files, for a message."""
    found = sorted(sizes, key=lambda path: (-sizes[path], path))[:NAMED]
    return ", ".join(f"{path} ({size(sizes[path])})" for path in found)


def size(count: int) -> str:
    """Bytes in a unit for readers."""
    for unit, name in ((2**20, "MiB"), (2**10, "KiB")):
        if count >= unit:
            return f"{count / unit:.3g} {name}"
    return _counted(count, "byte")


def faults(files: Mapping[str, bytes]) -> Iterator[tuple[str, str]]:
    """What is wrong with the files: the file, empty for all of them, and the reason with what to do."""
    if not files:
        yield "", "holds no file. Name a folder with code, or exclude less."
        return
    for path, content in files.items():
        if secret_looking(path, content):
            reason = (
                "looks like a secret, which a ConfigMap shows to all who may read it. Put it into a Secret and name "
                "that in env or storage.volumes, or add the file to workdir.exclude."
            )
            yield path, reason
    yield from _too_large(files)


def _too_large(files: Mapping[str, bytes]) -> Iterator[tuple[str, str]]:
    sizes = {path: len(content) for path, content in files.items()}
    remedy = f"Exclude what is no code, or put it into the image or a volume. The largest: {largest(sizes)}."
    if len(files) > MAX_FILES or sum(sizes.values()) > MAX_FOLDER_BYTES:
        yield "", f"has {len(files)} files of {size(sum(sizes.values()))}, more than code has. {remedy}"
    elif (packed := len(archive(files)) + len(listing(files).encode())) > MAX_ARCHIVE_BYTES:
        limit = size(MAX_ARCHIVE_BYTES)
        yield "", f"has {size(packed)} when packed, and a ConfigMap has room for {limit}. {remedy}"
