"""The pages and pictures of the benchmarks' results show what was measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.common import results
from tools import pages
from tools.run import ROOT


@pytest.mark.parametrize("page", pages.pages(), ids=lambda page: str(page.path.relative_to(ROOT)))
def test_a_page_is_made_of_its_figures(page: pages.Page) -> None:
    """And of nothing else: who changes a page by hand changes what was measured."""
    if page.module.startswith("benchmarks.cluster"):
        pytest.importorskip("torch", reason="the benchmarks on the cluster import its scripts")

    assert page.path.read_text() == page.text()


def test_a_page_is_made_again_without_a_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A page that is missing or differs is named, and written on request."""
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    path = tmp_path / "benchmarks/launcher/NEW.json"
    path.parent.mkdir(parents=True)
    path.with_name("report.py").touch()
    sample = {"row": "restart of 2 workers", "arm": "ours", "value": 0.5, "outcome": ""}
    path.write_text(results.text({"machine": ["a machine"], "import_seconds": 3.0, "samples": [sample]}))

    assert [pages.main([]), pages.main(["--write"]), pages.main([])] == [1, 0, 0]
    assert capsys.readouterr().out == 2 * "benchmarks/launcher/NEW.md\n"
    assert "| restart of 2 workers | 0.50 s (p95 0.50, n 1) |" in results.page(path).read_text()
