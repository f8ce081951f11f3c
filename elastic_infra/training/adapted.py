"""What the adapters of frameworks share: a missing package, and the shape of torch's files."""

from __future__ import annotations

import contextlib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_ZIP: Final = b"PK\x03\x04"


@contextlib.contextmanager
def needs(package: str, adapter: str) -> Iterator[None]:
    """Name the package where an import inside fails because the package is not installed.

    Args:
        package: name of the package, as it is imported and installed.
        adapter: name of the module that needs the package.

    Raises:
        ModuleNotFoundError: the package is not installed. A package that is installed and lacks another one raises its
            own error.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package:
            raise
        message = f"{adapter} needs the package {package}, which is not installed. Install {package} in the image."
        raise ModuleNotFoundError(message, name=package) from None


def damage_of_torch_file(path: Path) -> str | None:
    """What is wrong with a file of ``torch.save``; None where the file is whole.

    The form of the file is looked at and not its content, so that a large file costs no time: a file that was cut off
    has no directory at its end, and a file whose bytes never reached the disk is empty or begins with zeros.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        head = file.read(len(_ZIP))
    if head == bytes(len(_ZIP)):
        return f"{path.name} begins with zeros"
    if _ZIP.startswith(head) and not zipfile.is_zipfile(path):
        return f"{path.name} ends too early"
    return None
