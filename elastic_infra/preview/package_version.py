"""The version of this package that a side pins. Another version mounts another launcher, which restarts every job."""

from __future__ import annotations

import re
from typing import Final

from elastic_infra.preview.sources import Source

_PACKAGE: Final = r"elastic[-_.]infra"
_PINNED: Final = {
    "uv.lock": re.compile(rf'(?mi)^name = "{_PACKAGE}"\s*\nversion = "([^"]+)"'),
    "poetry.lock": re.compile(rf'(?mi)^name = "{_PACKAGE}"\s*\nversion = "([^"]+)"'),
    "requirements.txt": re.compile(rf"(?mi)^\s*{_PACKAGE}(?:\[[^\]]*\])?\s*==\s*([^\s;\\#]+)"),
    "pyproject.toml": re.compile(rf"(?mi)[\"']{_PACKAGE}(?:\[[^\]]*\])?\s*==\s*([^\s;\"']+)"),
}
"""File to the pattern whose first group is the version; locks first, since they decide."""


def pinned_package(source: Source) -> str | None:
    """The version in the nearest lock or requirements file, None when nothing pins it."""
    for name, content in source.above(tuple(_PINNED)):
        if found := _PINNED[name].search(content.decode("utf-8", "replace")):
            return found[1]
    return None
