"""The package's `__init__` in the mounted launcher: finds the modules in one text that holds all of them.

Deflate compresses each entry of a zip alone. One entry with all sources is a third smaller than an entry for each,
because modules have much in common, and the ConfigMap has to stay below what `kubectl apply` can keep.
"""

from __future__ import annotations

import sys
import zipimport
from collections.abc import Sequence
from importlib import abc
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType


class Modules(abc.MetaPathFinder, abc.ExecutionLoader):
    """Finder and loader of the package's modules.

    Args:
        package: name of the package.
        folder: path that the modules' files seem to have: the package's folder in the zip.
        text: all sources, as `archive.joined` writes them.
    """

    def __init__(self, package: str, folder: str, text: str) -> None:
        self._package = package
        self._folder = folder
        self._sources = dict(part.split("\n", 1) for part in text.split("\0"))

    def find_spec(self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None) -> ModuleSpec | None:
        """The module's place; None for a module that is not in the text."""
        file = self._file(name)
        if file is None:
            return None
        spec = spec_from_loader(name, self, origin=self.get_filename(name), is_package=self.is_package(name))
        if spec is not None:
            spec.has_location = True  # so that the module has a __file__
        return spec

    def is_package(self, name: str) -> bool:
        """Whether a module of the text has modules below it."""
        return (self._file(name) or "").endswith("/__init__.py")

    def get_filename(self, name: str) -> str:
        """The path that tracebacks show."""
        return f"{self._folder}/{self._file(name)}"

    def get_source(self, name: str) -> str:
        """The module's source, from which its code is compiled and whose lines tracebacks show.

        Raises:
            ImportError: the text has no such module.
        """
        file = self._file(name)
        if file is None:
            message = f"The mounted launcher has no module {name}."
            raise ImportError(message, name=name)
        return self._sources[file]

    def get_data(self, path: str) -> bytes:
        """A source by its path, for `pkgutil.get_data`.

        Raises:
            OSError: the text has no such file.
        """
        file = path.removeprefix(f"{self._folder}/")
        if file not in self._sources:
            message = f"The mounted launcher has no file {path}."
            raise OSError(message)
        return self._sources[file].encode()

    def _file(self, name: str) -> str | None:
        if not name.startswith(f"{self._package}."):
            return None
        stem = name.removeprefix(f"{self._package}.").replace(".", "/")
        return next((file for file in (f"{stem}.py", f"{stem}/__init__.py") if file in self._sources), None)


if __name__ == "elastic_infra":  # as the package's own __init__, in the zip
    folder = __file__.rpartition("/")[0]
    modules = zipimport.zipimporter(folder).get_data(f"{folder}/sources")
    sys.meta_path.append(Modules(__name__, folder, modules.decode()))
