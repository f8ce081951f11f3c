"""The documentation states the committed figures, and no others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.tools.constants import CONSTANTS, NUMBER, Constant
from tools import figures
from tools.figures import Sentence, Table
from tools.run import ROOT

STATED = figures.stated()
PAGES = ["README.md", *(f"docs/{path.name}" for path in sorted(ROOT.glob("docs/*.md")))]
ABOUT_FIGURES = {"docs/benchmarks.md", "docs/scale.md"}
NO_RESULTS = (
    "Torchrun exits with 1 for any failure",
    "does so before torch 2.10,",
    "a job of up to 10,000 nodes",
    "under version 1 of control groups,",
    "under version 2 the default",
    "published goodput for 2,048 to 100,000 GPUs",
)
"""An exit code, a version, what the simulation can do, and what others have measured."""


def flat(text: str) -> str:
    """The text in one line."""
    return " ".join(text.split())


@pytest.mark.parametrize("stated", STATED, ids=lambda stated: f"{stated.page}: {flat(stated.shown())[:70]}")
def test_the_documentation_states_the_committed_figures(stated: Sentence | Table) -> None:
    """After a new measurement ``python -m tools.figures --write`` puts its figures in."""
    page = (ROOT / stated.page).read_text()

    assert stated.put_into(page) == page, f"{stated.page} should say: {stated.shown()}"


def blocks(page: str) -> list[str]:
    """The paragraphs and tables of a page, each in one line, without code."""
    text = re.sub(r"^```.*?^```", "", (ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL)
    return [flat(block) for block in re.split(r"\n\s*\n", text)]


def numbers_left(pattern: re.Pattern[str], block: str, *bound: str) -> list[str]:
    """What the pattern finds in a block, besides what is bound, in code, or in an address."""
    rest = re.sub("|".join(map(re.escape, bound)), "", block) if bound else block
    return [found[0] for found in pattern.finditer(re.sub(r"`[^`]*`|\]\([^)]*\)", "", rest))]


@pytest.mark.parametrize("page", PAGES)
def test_beside_a_result_no_other_figure_is_stated(page: str) -> None:
    """Every number of a paragraph that cites a result, and of the pages about figures, comes from a committed file."""
    shown = [flat(stated.shown()) for stated in STATED if stated.page == page]
    constants = [constant.text for constant in CONSTANTS if constant.page == page]
    others = [
        numbers_left(re.compile(r"\S*\d\S*"), block, *shown, *NO_RESULTS, *constants)
        for block in blocks(page)
        if "benchmarks/" in block or page in ABOUT_FIGURES
    ]

    assert [figure for found in others for figure in found] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_number_with_a_unit_is_a_result_or_a_known_constant(page: str) -> None:
    """A time, a size, a share or a ratio that stands elsewhere has nobody who renews it: bind it, or leave it out.

    ``tools/figures.py`` binds what was measured; ``tests/tools/constants.py`` has the rest with its sources.
    """
    shown = [flat(stated.shown()) for stated in STATED if stated.page == page]
    constants = [constant.text for constant in CONSTANTS if constant.page == page]

    assert [found for block in blocks(page) for found in numbers_left(NUMBER, block, *shown, *constants)] == []


@pytest.mark.parametrize("constant", CONSTANTS, ids=lambda constant: f"{constant.page}: {constant.text}")
def test_a_constant_is_on_its_page_and_what_its_source_says(constant: Constant) -> None:
    """The page has it once; the code has the same number, or the file is there."""
    name = constant.source.partition(":")[2]

    assert sum(block.count(constant.text) for block in blocks(constant.page)) == 1
    assert constant.stated()
    if constant.source.startswith("https://"):
        return
    assert (ROOT / constant.source.partition(":")[0]).is_file()
    if name:
        assert all(
            any(value == pytest.approx(number, rel=0.005) for value in constant.values())
            for number in constant.stated()
        )


SENTENCE = Sentence("page.md", "takes {ours} s so, and {theirs} s otherwise", {"ours": "0.5", "theirs": "2 to 3"})


@pytest.mark.parametrize(
    ("page", "right"),
    [
        ("It takes 0.5 s\nso, and 2 to\n3 s otherwise.", "It takes 0.5 s\nso, and 2 to\n3 s otherwise."),
        ("It takes 12 s so,\nand 7 s otherwise.", "It takes 0.5 s so,\nand 2 to 3 s otherwise."),
    ],
    ids=["right", "old"],
)
def test_only_the_figures_of_a_sentence_are_replaced(page: str, right: str) -> None:
    """Wherever its lines break, and nothing where they are right."""
    assert SENTENCE.put_into(page) == right


@pytest.mark.parametrize("page", ["It takes a while.", 2 * "It takes 1 s so, and 2 s otherwise. "], ids=["0", "2"])
def test_a_sentence_that_was_reworded_is_an_error(page: str) -> None:
    """Its figures would be unbound."""
    with pytest.raises(ValueError, match=r"page\.md has this [02] times, and once is right: takes 0\.5 s so"):
        SENTENCE.put_into(page)


def test_a_table_is_found_by_its_head() -> None:
    """Its rows are replaced, with more or fewer of them, and nothing beside it."""
    head = "| a | b |\n| --- | --- |"
    table = Table("page.md", f"{head}\n| new | 1 |")

    assert table.put_into(f"x\n\n{head}\n| old | 2 |\n| older | 3 |\n\ny\n") == f"x\n\n{table.text}\n\ny\n"
    with pytest.raises(ValueError, match="0 tables with this head"):
        table.put_into("x\n")


def test_renewed_results_change_what_states_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sentence and table that differs is printed and, on request, written; a second run finds nothing."""
    for page in {stated.page for stated in STATED}:
        (tmp_path / page).parent.mkdir(exist_ok=True)
        (tmp_path / page).write_text((ROOT / page).read_text())
    for path in (ROOT / "benchmarks").rglob("*.[mj][ds]*"):
        copy = tmp_path / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(path.read_text())
    results = tmp_path / "benchmarks" / figures.LAUNCHER
    results.write_text(re.sub(r"importing torch takes [\d.]+ s", "importing torch takes 7.5 s", results.read_text()))
    monkeypatch.setattr(figures, "ROOT", tmp_path)

    assert [figures.main([]), figures.main(["--write"]), figures.main([])] == [1, 0, 0]
    assert "importing torch takes 7.5 s there." in flat((tmp_path / "docs/launcher.md").read_text())
