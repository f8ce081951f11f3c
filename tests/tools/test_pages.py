"""The pages and pictures of the benchmarks' results show what was measured, and say how."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from benchmarks.common import results, summary
from tools import pages
from tools.run import ROOT

if TYPE_CHECKING:
    from tests.cluster import kube

FIGURES = {page.path: page.figures[0] for page in pages.pages() if page.figures and page.path.suffix == ".md"}
"""The JSON of each page."""
MEASURED = r"20\d\d-\d\d-\d\d by `(python -m|make) .*`"
COUNTED = r"\bn \d|\| (n|runs|seed) \||One run a "
"""How a page says how often something was measured; a life under random faults has a row with its seed."""
LITTLE_SAID = {
    *(f"cluster/{name}.json" for name in ("IN_PLACE", "RESTART_POLICY", "START", "TARGETS")),
    "thirty_jobs/RESULTS.json",
}
"""Files older than the facts that are written now: without load, Python and torch. The next measurement adds them."""


def short(path: Path) -> str:
    """Its path below ``benchmarks``."""
    return f"{path.parent.name}/{path.name}"


@pytest.mark.parametrize("page", pages.pages(), ids=lambda page: str(page.path.relative_to(ROOT)))
def test_a_page_is_made_of_its_figures(page: pages.Page) -> None:
    """And of nothing else: who changes a page by hand changes what was measured."""
    if page.module.startswith("benchmarks.cluster"):
        pytest.importorskip("torch", reason="the benchmarks on the cluster import its scripts")

    assert page.path.read_text() == page.text()


def test_each_page_has_its_figures_beside_it() -> None:
    """What was measured can be read by programs too."""
    assert {short(path) for path in ROOT.glob("benchmarks/*/*.md")} == {*map(short, FIGURES)}


@pytest.mark.parametrize("page", FIGURES, ids=short)
def test_each_file_says_when_by_which_command_and_how_often_it_was_measured(page: Path) -> None:
    """And on which machine: without these nobody can measure it again."""
    machine = results.load(FIGURES[page])["machine"]

    assert [line for line in machine if re.search(MEASURED, line)]
    assert [line for line in machine if re.search(r"\d CPUs", line) and re.search(r"Linux \d", line)]
    assert re.search(COUNTED, page.read_text())


@pytest.mark.parametrize("path", FIGURES.values(), ids=short)
def test_each_file_names_versions_and_load(path: Path) -> None:
    """Those that are older are known by name; a new measurement takes a file off that list."""
    facts = "\n".join(results.load(path)["machine"])

    assert all(name in facts for name in ("load average", "Python 3.")) is (short(path) not in LITTLE_SAID)


def test_what_is_measured_from_now_on_names_versions_and_load() -> None:
    """The facts that each program takes before it measures."""
    versions, load, measured = results.machine("python -m benchmarks.new --write", "pytest")

    assert re.fullmatch(r"pytest \d\S+, Python 3\.\S+, Linux \S+, \d+ CPUs", versions)
    assert re.fullmatch(r"load average at the start( \d+\.\d\d){3}", load)
    assert re.fullmatch(f"measured {MEASURED}", measured)


def test_what_is_measured_on_the_cluster_names_its_versions_too() -> None:
    """Kubernetes' as the API server tells it, and those of the programs that the figures depend on."""
    pytest.importorskip("torch", reason="the facts have its version")
    from benchmarks.cluster import page

    class Server:
        def call(self, method: str, path: str) -> Any:
            assert (method, path) == ("GET", "/version")
            return {"gitVersion": "v1.34.1"}

    server = cast("kube.Kube", Server())
    testbed, versions, _, measured = page.facts(server, "benchmarks.cluster.new", ["--write"], "training-operator")

    assert re.fullmatch(r"Kubernetes 1\.34\.1 of the testbed, training-operator [\d.]+", testbed)
    assert re.match(r"torch \d\S+, Python 3\.", versions)
    assert measured.endswith("by `python -m benchmarks.cluster.new --write`")


def test_the_page_of_all_results_has_each_main_table() -> None:
    """The table below a heading where a page has several, the first one otherwise, and none where laws were held."""
    tables = [f"| {name} |\n| --- |\n| 1 |" for name in "ab"]
    soak = "# The soak\n\nAbout.\n\n    python -m soak\n\nSeed 21,\ntorch 2.\n\n| law | held |\n| --- | --- |\n"
    text = summary.document(
        {
            "new/RESULTS.md": f"# New\n\n- 2 CPUs\n- measured\n\n{tables[0]}\n\nAbout.\n\n{tables[1]}\n",
            "old/RESULTS.md": f"# Old\n\nMeasured 2026-01-01 by `make`. About.\n\n{tables[1]}\n",
            "rendezvous/RESULTS.md": f"# Crowd\n\n- 2 CPUs\n\n{tables[0]}\n\n## Beside torch's own\n\n{tables[1]}\n",
            "new/SOAK.md": soak,
        }
    )

    assert text.removeprefix(f"{summary.HEAD}\n\n").split("\n\n") == [
        "## [New](new/RESULTS.md)",
        "- 2 CPUs\n- measured",
        tables[0],
        "## [Old](old/RESULTS.md)",
        "- Measured 2026-01-01 by `make`",
        tables[1],
        "## [Crowd](rendezvous/RESULTS.md)",
        "- 2 CPUs",
        tables[1],
        "## [The soak](new/SOAK.md)",
        "- Seed 21, torch 2.\n- `python -m soak`\n",
    ]


def test_a_page_that_does_not_say_how_it_was_measured_is_an_error() -> None:
    """It would stand among the others as if it were as good."""
    with pytest.raises(ValueError, match="does not say how it was measured"):
        summary.document({"new/RESULTS.md": "# New\n\n| a |\n| --- |\n"})


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
    assert capsys.readouterr().out == 2 * "benchmarks/launcher/NEW.md\nbenchmarks/RESULTS.md\n"
    assert "## [This launcher beside torchrun](launcher/NEW.md)" in (tmp_path / "benchmarks/RESULTS.md").read_text()
    assert "| restart of 2 workers | 0.50 s (p95 0.50, n 1) |" in results.page(path).read_text()
