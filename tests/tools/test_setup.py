"""What a set-up decides to do, and that a done one is quick."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools import setup
from tools.run import ROOT
from tools.setup import Record, Steps

NOW = Record(interpreter="3.12 /src", lock="a", tools="b")
NOTHING = Steps(make=False, clear=False, install=False, parts=())
ALL = ("pulumi", "sources")


@pytest.mark.parametrize(
    ("last", "environment", "again", "expected"),
    [
        (NOW, True, False, NOTHING),
        (NOW, True, True, NOTHING),
        (Record(), False, False, Steps(make=True, clear=False, install=True, parts=ALL)),
        (Record(), True, False, Steps(make=False, clear=False, install=True, parts=ALL)),
        (NOW, False, False, Steps(make=True, clear=False, install=True, parts=ALL)),
        (Record("3.12 /src", "old", "b"), True, False, Steps(make=False, clear=False, install=True, parts=())),
        (Record("3.12 /src", "a", "old"), True, False, Steps(make=False, clear=False, install=False, parts=ALL)),
        (Record("3.11 /src", "a", "b"), True, False, Steps(make=True, clear=True, install=True, parts=ALL)),
        (Record("3.12 /old", "a", "b"), True, False, Steps(make=True, clear=True, install=True, parts=ALL)),
        (Record("3.12 /src", "a", "b", {"pulumi": "no network"}), True, False, NOTHING),
        (
            Record("3.12 /src", "a", "b", {"pulumi": "no network"}),
            *(True, True),
            Steps(make=False, clear=False, install=False, parts=("pulumi",)),
        ),
    ],
)
def test_only_what_changed_is_done(last: Record, expected: Steps, *, environment: bool, again: bool) -> None:
    """Another Python or folder starts afresh, a new lock installs, new tools are fetched, a miss is tried on demand."""
    assert setup.steps(last, NOW, environment=environment, again=again) == expected


@pytest.mark.parametrize("text", ["", "{", "[]", '{"unknown": 1}'])
def test_a_record_that_cannot_be_read_is_none(tmp_path: Path, text: str) -> None:
    """A damaged record makes a new set-up, not a traceback."""
    path = tmp_path / "setup.json"
    path.write_text(text)

    assert setup.read_record(path) == Record()


def test_a_done_set_up_does_nothing() -> None:
    """The second time prints no step."""
    last, now = setup.read_record(setup.RECORD), setup.record_now()
    if (last.lock, last.interpreter) != (now.lock, now.interpreter):
        pytest.skip("this checkout was not set up by `make setup`")
    done = subprocess.run([sys.executable, "-m", "tools.setup"], cwd=ROOT, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (0, "")
