"""The workflow that runs each language's page with Pulumi's newest hosts takes from each page what is there."""

from __future__ import annotations

import re
from typing import Any

import yaml

from tools.run import ROOT


def workflow() -> dict[str, Any]:
    """The workflow that runs the pages, as data."""
    document: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/languages.yml").read_text())
    return document


def test_each_page_that_is_named_as_a_language_has_its_run() -> None:
    """What `languages.md` links first is what the matrix runs."""
    overview = (ROOT / "docs/languages.md").read_text().partition("```")[0]
    runs = workflow()["jobs"]["page"]["strategy"]["matrix"]["include"]

    assert [run["page"] for run in runs] == re.findall(r"\[[^]]+\]\((\w+)\.md\)", overview)


def test_a_page_has_one_program() -> None:
    """The workflow takes all blocks of the page's language as one file."""
    runs = workflow()["jobs"]["page"]["strategy"]["matrix"]["include"]
    found = {
        run["page"]: re.findall(rf"^```{run['fence']}$", (ROOT / f"docs/{run['page']}.md").read_text(), re.MULTILINE)
        for run in runs
    }

    assert {page: len(blocks) for page, blocks in found.items()} == dict.fromkeys(found, 1)


def test_each_action_is_pinned() -> None:
    """By commit, since a tag can be moved."""
    uses = [step["uses"] for step in workflow()["jobs"]["page"]["steps"] if "uses" in step]

    assert uses
    assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", use) for use in uses), uses
    assert workflow()["permissions"] == {"contents": "read"}
