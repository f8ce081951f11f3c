"""The command: pictures and figures out, what is wrong on stderr."""

from __future__ import annotations

import builtins
import io
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from rich.console import Console

from elastic_infra.timeline.figures import figures
from elastic_infra.timeline.otlp import traces
from elastic_infra.timeline.text import print_text
from tests.cli import elastic_infra
from tests.golden import assert_golden
from tests.timeline.events import RECORDINGS, told

FAULTS = RECORDINGS / "faults"
GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("name", ["faults", "quiet_faults"])
def test_json_is_golden(name: str) -> None:
    """The documented shape: only the document on stdout."""
    result = elastic_infra("timeline", RECORDINGS / name, "--format", "json")

    assert (result.code, result.err) == (0, "")
    assert json.loads(result.out)["figures"]["outcome"] == "succeeded"
    assert_golden(GOLDEN / f"{name}.json", result.out)


def test_traces_go_to_a_collector() -> None:
    """Only the body of the request is on stdout."""
    result = elastic_infra("timeline", FAULTS, "--format", "otlp")

    assert (result.code, result.err) == (0, "")
    assert json.loads(result.out) == traces(told("faults"))


@pytest.mark.parametrize(("name", "width"), [("faults", 100), ("quiet_faults", 100), ("faults", 48)])
def test_text_is_golden(name: str, width: int) -> None:
    """Lanes of signs, figures, outages; on a narrow terminal too no lane is wrapped."""
    out, found = io.StringIO(), told(name)
    print_text(found, figures(found), Console(file=out, width=width, highlight=False, markup=False))
    lines = out.getvalue().splitlines()

    assert max(map(len, lines)) <= width
    assert_golden(GOLDEN / f"{name}-{width}.txt", "".join(f"{line.rstrip()}\n" for line in lines))


@pytest.mark.parametrize(
    ("suffix", "start"), [("svg", b"<svg "), ("html", b"<!DOCTYPE html>"), ("png", b"\x89PNG\r\n")]
)
def test_pictures(tmp_path: Path, suffix: str, start: bytes) -> None:
    """The name decides the form; the figures are told as well where a format is asked for."""
    output = tmp_path / f"timeline.{suffix}"
    result = elastic_infra("timeline", FAULTS, "-o", output)
    told = elastic_infra("timeline", FAULTS, "-o", output, "--format", "text")

    assert (result.code, result.out, result.err) == (0, "", "")
    assert output.read_bytes().startswith(start)
    assert "goodput" in told.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["missing.jsonl"], "missing.jsonl: cannot be read: No such file or directory."),
        ([str(Path(__file__))], f"{__file__}:1: this is no event: it is not JSON. Give files that"),
        ([str(FAULTS), "-o", "picture.pdf"], "picture.pdf: the picture's form is not known. Name a file that ends in"),
        ([str(FAULTS), "-o", "missing/picture.svg"], "missing/picture.svg: cannot be written: No such file"),
    ],
)
def test_bad_input(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: list[str], said: str) -> None:
    """A clear line, nothing on stdout, exit 2."""
    monkeypatch.chdir(tmp_path)
    result = elastic_infra("timeline", *arguments)

    assert (result.code, result.out) == (2, "")
    assert said in result.err
    assert "Traceback" not in result.err


def test_png_without_its_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The extra is named, and what works without it."""
    real = builtins.__import__

    def missing(
        name: str,
        globals: Mapping[str, object] | None = None,  # noqa: A002 - the names of `__import__`
        locals: Mapping[str, object] | None = None,  # noqa: A002
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> object:
        if name == "resvg_py":
            raise ImportError(name)
        return real(name, globals, locals, fromlist, level)

    monkeypatch.delitem(sys.modules, "resvg_py", raising=False)
    monkeypatch.setattr(builtins, "__import__", missing)
    result = elastic_infra("timeline", FAULTS, "-o", tmp_path / "picture.png")

    assert result.code == 2
    assert "Install elastic-infra[png], or write .svg or .html." in result.err


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod's log can be piped in."""
    data = b"elasticrun: hello\n" + b"".join(file.read_bytes() for file in sorted(FAULTS.iterdir()))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    result = elastic_infra("timeline", "-")

    assert result.code == 0
    assert "-:1: this is no event: it is not JSON; 1 such lines are left out." in result.err
