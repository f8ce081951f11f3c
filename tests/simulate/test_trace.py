"""A user's trace: every line that is no change is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastic_infra.config import ConfigError
from elastic_infra.simulate import trace
from elastic_infra.simulate.scenario import Change

HEAD = "hours,event,nodes\n"


def test_changes_in_the_order_of_their_times(tmp_path: Path) -> None:
    """As a spreadsheet writes them: with a mark of the encoding, spaces, empty lines, and no number for one node."""
    path = tmp_path / "trace.csv"
    path.write_text(f"\ufeff{HEAD}2.5, return ,3\n\n1,loss,\n0.5,crash\n", newline="\r\n")

    assert trace.read(path) == (Change(1800, "crash"), Change(3600, "loss"), Change(9000, "return", 3))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "t.csv:1 must name the columns hours,event,nodes"),
        ("time,what\n1,loss\n", "t.csv:1 must name the columns"),
        (f"{HEAD}soon,loss,1\n", "t.csv:2 hours: must be a number from 0 to 1e+12."),
        (f"{HEAD}-1,loss,1\n", "t.csv:2 hours: "),
        (f"{HEAD}nan,loss,1\n", "t.csv:2 hours: "),
        (f"{HEAD}1e999,loss,1\n", "t.csv:2 hours: "),
        (f"{HEAD}1,explode,1\n", "t.csv:2 event: must be one of loss, preemption, crash, return."),
        (f"{HEAD}1\n", "t.csv:2 event: "),
        (f"{HEAD}1,loss,0\n", "t.csv:2 nodes: must be a whole number from 1 on, or empty for 1."),
        (f"{HEAD}1,loss,1.5\n", "t.csv:2 nodes: "),
        (f"{HEAD}1,loss,\u0665\n", "t.csv:2 nodes: "),
        (f"{HEAD}1,loss,{'9' * 5000}\n", "t.csv:2 nodes: "),
        (f'{HEAD}1,"{"x" * 200_000}",1\n', "t.csv is no CSV: "),
    ],
)
def test_what_is_no_change(text: str, said: str) -> None:
    """The line and the column are named, the value is not."""
    with pytest.raises(ConfigError) as raised:
        trace.parse(text, "t.csv")

    assert said in str(raised.value)


def test_all_faults_at_once() -> None:
    """One run shows every line to fix."""
    with pytest.raises(ConfigError) as raised:
        trace.parse(f"{HEAD}x,loss,1\n1,loss,1\n2,y,z\n", "t.csv")

    assert len(raised.value.faults) == 3


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """A missing file and one that is no text."""
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for name, said in (("missing", "cannot be read: No such file"), ("binary", "is not UTF-8 text (byte 0)")):
        with pytest.raises(ConfigError) as raised:
            trace.read(tmp_path / name)
        assert said in str(raised.value)
