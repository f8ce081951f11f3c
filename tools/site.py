"""MkDocs' hook: the README as the first page, and links to files outside of `docs/` as addresses of the repository.

In the checkout all links stay relative, so that they work in an editor, on a branch and in a fork.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any, Final

from mkdocs.structure.files import File, Files

from tools import release
from tools.metadata import RELATIVE, absolute

_ROOT: Final = Path(__file__).resolve().parent.parent
_FOLDER: Final = "docs"


def on_files(files: Files, *, config: Any) -> Files:  # noqa: ANN401 - mkdocs' own, untyped
    """Add the README as the page `index.md`."""
    readme = (_ROOT / "README.md").read_text("utf-8")
    files.append(File.generated(config, "index.md", content=of_site(readme, "README.md")))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: object) -> str:  # noqa: ANN401 - mkdocs' own, untyped
    """Rewrite the links of one page of `docs/`."""
    path = page.file.src_uri
    return markdown if path == "index.md" else of_site(markdown, f"{_FOLDER}/{path}")


def of_site(markdown: str, place: str) -> str:
    """A page's text for the site.

    Args:
        markdown: the text as it is in the repository.
        place: the page's path in the repository.
    """
    pyproject = (_ROOT / "pyproject.toml").read_text("utf-8")
    repository, revision = release.value("repository", pyproject), f"v{release.value('version', pyproject)}"

    def link(found: re.Match[str]) -> str:
        image, label, target = found.groups()
        path = posixpath.normpath(posixpath.join(posixpath.dirname(place), target))
        if path.startswith(f"{_FOLDER}/"):
            return f"{image}{label}({path.removeprefix(f'{_FOLDER}/')})"
        return absolute(f"{image}{label}({path})", repository, revision)

    return RELATIVE.sub(link, markdown)
