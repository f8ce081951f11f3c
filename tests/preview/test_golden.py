"""The comment for each telling change, letter by letter. `make golden` writes them anew."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from elastic_infra.manifests import launcher
from elastic_infra.preview.markdown import MARKER, MAX_LENGTH, as_markdown
from tests.preview.cases import CASES, comparison

GOLDEN = Path(__file__).with_name("golden")


@pytest.mark.parametrize("case", CASES)
def test_the_comment_is_the_golden_one(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of wording is seen by a person before it is committed."""
    monkeypatch.setattr(launcher, "archive", lambda: b"the launcher of every version")
    path = GOLDEN / f"{case}.md"
    text = as_markdown(comparison(case), title="Training jobs", link="https://ci.example.com/runs/1")
    if os.environ.get("ELASTIC_INFRA_REWRITE_GOLDEN"):
        path.write_text(text, "utf-8")

    assert path.read_text("utf-8") == text


def test_no_golden_is_left_over() -> None:
    """Every expected file belongs to a case."""
    assert {path.stem for path in GOLDEN.glob("*.md")} == set(CASES)


@pytest.mark.parametrize("case", CASES)
def test_a_comment_shows_no_value_of_a_variable(case: str) -> None:
    """Neither plain values nor what replaces a reference."""
    text = as_markdown(comparison(case))

    assert text.startswith(MARKER)
    assert len(text) <= MAX_LENGTH
    assert "hf_plain_text_token" not in text
    assert "k-123" not in text


@pytest.mark.parametrize("case", CASES)
def test_a_comment_renders_as_html(case: str) -> None:
    """Tables are tables, every fold is closed, and nothing of the markup is left as text."""
    text = as_markdown(comparison(case))
    page = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)

    assert page.count("<details>") == page.count("</details>") == text.count("<details>")
    assert page.count("<table>") == text.count("|---|\n")
    assert "|---" not in page
    assert "**" not in page
