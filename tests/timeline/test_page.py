"""The page, opened in a real browser."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from elastic_infra.timeline.figures import figures
from elastic_infra.timeline.formatting import PHASES
from elastic_infra.timeline.page import page
from tests.timeline.events import told

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium here (Debian: apt-get install chromium)")


def opened(file: Path) -> tuple[str, list[str]]:
    """The page as a headless browser has it, and what its console says."""
    command = [
        *(str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
        *(f"--user-data-dir={file.parent / 'profile'}", "--enable-logging=stderr", "--dump-dom", file.as_uri()),
    ]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=True, timeout=200)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


class Outline(HTMLParser):
    """Tags that are open, and every address."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.addresses += [value or "" for name, value in attrs if name in {"src", "href", "data", "action"}]


def test_the_page_needs_nothing_else() -> None:
    """One file: no script, and no address but an empty icon."""
    found = told("faults")
    outline = Outline()
    outline.feed(page(found, figures(found)))

    assert outline.addresses == ["data:,"]
    assert outline.tags.isdisjoint({"script", "iframe", "img", "object"})


def test_the_page_tells_all_figures() -> None:
    """Every outage with its whole cause, every generation, every mark, every phase in words."""
    found = told("faults")
    known = figures(found)
    text = page(found, known)
    rows = len(re.findall("<tr>", text))

    marks = sum(len(lane.marks) for lane in found.lanes) + len(found.marks)
    assert rows == 8 + (1 + len(known.outages)) + (1 + len(found.generations)) + (1 + marks) + len(PHASES)
    assert "Rank 1 was killed by SIGKILL. The runner did this on purpose, as a fault." in text


@needs_browser
def test_a_browser_opens_the_page_without_errors(tmp_path: Path) -> None:
    """The console stays empty and the picture is there; an error would be seen, as the control shows."""
    found, file, control = told("faults"), tmp_path / "timeline.html", tmp_path / "control.html"
    file.write_text(page(found, figures(found)), "utf-8")
    control.write_text("<script>console.error('seen')</script>")
    content, console = opened(file)

    assert console == []
    assert "<svg" in content
    assert "goodput" in content
    assert len(opened(control)[1]) == 1
