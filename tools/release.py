"""Says whether a tag may be published: ``python -m tools.release v1.2.3 https://host/owner/repository``.

The release workflow asks before the build: what is published stays, so that every slip found here is one that no later
release has to explain. Standard library only.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from typing import Final

from tools.run import ROOT

CI_EXAMPLES: Final = ("examples/ci/github-preview.yml", "examples/ci/gitlab-preview.yml")
"""Files to copy that install this package."""


def faults(tag: str, repository: str, pyproject: str, changelog: str) -> Iterator[str]:
    """What is wrong, a line each.

    Args:
        tag: the tag that was pushed, `v` and the version.
        repository: address of the repository that publishes.
        pyproject: content of `pyproject.toml`.
        changelog: content of `CHANGELOG.md`.
    """
    version, home = value("version", pyproject), value("repository", pyproject)
    if tag != f"v{version}":
        yield f"The tag is {tag}, and pyproject.toml has the version {version}. Tag v{version}, or change the version."
    if repository != home:
        yield f"This is {repository}, and the package would lead to {home}. Change `repository` in pyproject.toml."
    if not re.search(rf"(?m)^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", changelog):
        yield f"CHANGELOG.md has no dated entry for {version}. Name the entry `## [{version}] - YYYY-MM-DD`."


def value(key: str, pyproject: str) -> str:
    """The text that a key of `pyproject.toml` has.

    Raises:
        ValueError: no line has the key.
    """
    found = re.search(rf'(?m)^{key} = "([^"]+)"', pyproject)
    if found is None:
        message = f"pyproject.toml has no line `{key} = ...`"
        raise ValueError(message)
    return found[1]


def main() -> int:
    """Print every fault; 1 where there is one."""
    parser = argparse.ArgumentParser(prog="python -m tools.release", description="Says whether a tag may be published.")
    parser.add_argument("tag")
    parser.add_argument("repository")
    given = parser.parse_args()
    texts = [(ROOT / name).read_text("utf-8") for name in ("pyproject.toml", "CHANGELOG.md")]
    found = list(faults(given.tag, given.repository, *texts))
    for line in found:
        print(line, file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
