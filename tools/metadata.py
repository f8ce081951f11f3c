"""Hatch's hook that makes the page of a package index: the README with absolute links, and the project's addresses.

The README's links are relative, so that they work in a checkout, on a branch and in a fork. On a package index they
lead nowhere; there they lead to the files of the released version's tag.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from hatchling.metadata.plugin.interface import MetadataHookInterface

RELATIVE: Final = re.compile(r"(!?)(\[[^\]]*\])\((?!\w+:|#)([^)\s]+)\)")
"""An image's mark, the text and the target of a link to a file of the repository."""


class Page(MetadataHookInterface):
    """Fills in `readme` and `urls`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Called with the metadata of `pyproject.toml`."""
        repository, version = self.config["repository"], metadata["version"]
        text = Path(self.root, "README.md").read_text("utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute(text, repository, f"v{version}")}
        metadata["urls"] = {
            "Repository": repository,
            "Documentation": f"{repository}/blob/v{version}/README.md",
            "Changelog": f"{repository}/blob/v{version}/CHANGELOG.md",
            "Issues": f"{repository}/issues",
        }


def absolute(markdown: str, repository: str, revision: str) -> str:
    """The text with each relative link as an address of the repository at a revision; images as their bytes."""

    def link(found: re.Match[str]) -> str:
        image, label, target = found.groups()
        return f"{image}{label}({repository}/{'raw' if image else 'blob'}/{revision}/{target})"

    return RELATIVE.sub(link, markdown)
