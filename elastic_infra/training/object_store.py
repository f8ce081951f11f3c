"""Durable snapshots behind a URL (``s3://``, ``gs://`` and others), through fsspec: the manifest is written last.

An object appears whole and cannot be renamed, so parts are written to where they stay, in a folder of their run, and
the manifest makes a snapshot of them. fsspec and the package for the URL's scheme are the training image's: this module
imports them only where a script gives a URL. https://filesystem-spec.readthedocs.io/en/latest/api.html
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from .places import FAILED, MANIFEST, pieces_of

_CHUNK: Final = 1 << 24
_USER: Final = re.compile(r"//((?:[^/@]*|.*:.*))@")
"""Name and password in a URL; the keys of S3 may have slashes."""
_SIGNATURE: Final = re.compile(r"(?i)\b((?:[\w-]*(?:signature|credential|token|accesskeyid|secret|sig))=)[^&\s\"'<>]+")
"""What signs a request, in the address that an error names."""


class MissingPackageError(ImportError):
    """A package for the URL is not installed; the message names the package."""


class ObjectStore:
    """The snapshots below a URL.

    Raises:
        MissingPackageError: fsspec, or its package for the URL's scheme, is not installed.
        ValueError: fsspec does not know the scheme.
    """

    poll_seconds = 1.0
    """Each look is a request, which costs money."""

    def __init__(self, url: str) -> None:
        self.root = _USER.sub("//", url).partition("?")[0].rstrip("/")
        self._secrets = _secrets_of(url)
        self._files, path = _open(url, self.root, self._secrets)
        self._root = path.rstrip("/")

    def check(self) -> None:
        """Nothing: the account may have the right to write and none to delete what a check would write."""

    def prefix(self, run: str) -> str:
        """Parts stay in the folder of the run that wrote them."""
        return f"{run}/"

    def draft(self, snapshot: str, run: str) -> str:
        """A folder in the snapshot's own."""
        return f"{snapshot}/{run}"

    def write_part(self, name: str, data: memoryview | bytes, note: bytes) -> None:
        """Write both objects; a part without its note is in no manifest."""
        self._write(name, data)
        self._write(f"{name}.json", note)

    def write_failure(self, name: str, reason: bytes) -> None:
        """Write an object that tells rank 0 why a part is missing."""
        self._write(f"{name}{FAILED}", reason)

    def give_up(self, draft: str, parts: Iterable[str], seconds: float) -> None:
        """Nothing: a bucket is not full, and what is left goes once a newer snapshot is whole."""

    def publish(self, snapshot: str, run: str, manifest: bytes, is_whole: Callable[[], bool]) -> None:
        """Write the manifest, in place of another one where there is one."""
        del run, is_whole
        self._write(f"{snapshot}/{MANIFEST}", manifest)

    def names(self) -> list[str]:
        """The names directly below the root."""
        with self._os_errors():
            self._files.invalidate_cache()
            try:
                found = self._files.ls(self._root, detail=False)
            except FileNotFoundError:
                return []
            return [path.rstrip("/").rpartition("/")[2] for path in found]

    def sizes(self, folder: str) -> Mapping[str, int]:
        """Bytes of each object in the folder and in the folders of its runs."""
        with self._os_errors():
            self._files.invalidate_cache()
            top = self._path(folder)
            try:
                found = self._files.find(top, detail=True)
            except FileNotFoundError:
                return {}
            return {path.partition(f"{top}/")[2]: int(entry["size"]) for path, entry in found.items()}

    def read(self, name: str) -> bytes:
        """The content of an object."""
        with self._os_errors():
            return bytes(self._files.cat_file(self._path(name)))

    def pieces(self, name: str) -> Iterator[bytes]:
        """The content of an object, piece by piece."""
        with self._os_errors(), self._files.open(self._path(name), "rb") as file:
            yield from pieces_of(file)

    def remove(self, folder: str) -> None:
        """Delete the manifest first, so that what is left in between is no snapshot."""
        with contextlib.suppress(OSError), self._os_errors():
            with contextlib.suppress(FileNotFoundError):
                self._files.rm_file(self._path(f"{folder}/{MANIFEST}"))
            self._files.rm(self._path(folder), recursive=True)

    def remove_drafts(self, newest: str, seconds: float) -> None:
        """Delete the parts of steps before the newest snapshot that have no manifest: their writers are past them."""
        del seconds
        for name in self.names():
            if name.startswith("step-") and name < newest and not self._has_manifest(name):
                self.remove(name)

    def _has_manifest(self, snapshot: str) -> bool:
        try:
            json.loads(self.read(f"{snapshot}/{MANIFEST}"))
        except (FileNotFoundError, ValueError):
            return False
        return True

    def _write(self, name: str, data: memoryview | bytes) -> None:
        view = memoryview(data)
        with self._os_errors(), self._files.open(self._path(name), "wb") as file:
            for begin in range(0, len(view), _CHUNK):
                file.write(view[begin : begin + _CHUNK])

    @contextlib.contextmanager
    def _os_errors(self) -> Iterator[None]:
        """Each file system of fsspec has errors of its own besides OSError, which all mean that the place has a fault.

        The text is the file system's; what is secret in it is hidden.
        """
        try:
            yield
        except FileNotFoundError:
            raise
        except Exception as error:
            kind = PermissionError if isinstance(error, PermissionError) else OSError
            text = (error.strerror or str(error)) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
            raise kind(_hidden(text, self._secrets)) from error

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"


def _open(url: str, shown: str, secrets: Sequence[str]) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        message = (
            f"Snapshots in {shown} need the package fsspec, and s3fs for s3://, gcsfs for gs:// or adlfs for az://. "
            "Install them in the training image."
        )
        raise MissingPackageError(message) from error
    try:
        files, path = url_to_fs(url)
    except ImportError as error:
        said = _hidden(str(error), secrets)
        message = f"Snapshots in {shown} need a package that is missing: {said}. Install it in the training image."
        raise MissingPackageError(message) from None
    except ValueError as error:
        said = _hidden(str(error), secrets)
        message = f"Snapshots cannot be kept in {shown}: {said}. Give a path, or a URL whose scheme fsspec knows."
        raise ValueError(message) from None
    return files, str(path)


def _secrets_of(url: str) -> tuple[str, ...]:
    """What of a URL no message may show: name and password together and alone, and what comes after ``?``."""
    found = _USER.search(url)
    user = found[1] if found else ""
    return tuple(filter(None, (f"{user}@" if user else "", user.partition(":")[2], url.partition("?")[2])))


def _hidden(text: str, secrets: Sequence[str]) -> str:
    """The text of an error without the URL's secrets and without signatures."""
    for secret in secrets:
        text = text.replace(secret, "***@" if secret.endswith("@") else "***")
    return _SIGNATURE.sub(r"\1***", text)
