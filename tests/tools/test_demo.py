"""The demo, as `make demo` runs it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tools import demo
from tools.demo import Place, Training
from tools.run import ROOT


@pytest.mark.engine
@pytest.mark.launcher
@pytest.mark.timeout(900)
def test_the_demo_runs_the_job_with_faults_and_ends_by_saying_what_to_type_next(pulumi_cli: Path) -> None:
    """Rendered, explained, previewed by a real engine, trained with and without faults, and in processes that stay.

    The way to a cluster comes last.
    """
    done = subprocess.run(
        [sys.executable, "-m", "tools.demo"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    said = done.stdout

    assert done.returncode == 0, f"{said}\n{pulumi_cli}"
    assert re.findall(r"^== ([^:\n]+)", said, re.MULTILINE) == [
        *("What the API server gets", "What it means", "What `pulumi up` would do"),
        *("Run it here; a node comes, another is lost", "Once more, left alone", "A picture of the first run"),
        "Another job, whose processes stay",
        *("What came out", "Who stayed"),
    ]
    assert "12 to create" in said
    assert said.index("fault: scale 3") < said.index("with 3 workers") < said.index("fault: kill node 1")
    assert said.count("the job succeeded") == 3
    assert said.count("goodput") == 3
    [disturbed, left_alone] = re.findall(r"accuracy (9\d\.\d\d%, weights [0-9a-f]{16})$", said, re.MULTILINE)
    assert disturbed == left_alone
    assert re.search(r"went on from its checkpoints at step [1-9]\d*, [1-9]\d*", said)
    [first, second] = re.search(r"Processes (\d+) and (\d+) trained from the first step to the last", said).groups()  # type: ignore[union-attr]  # else this fails
    assert re.search(rf"process {first} is rank \d of 3", said)
    assert re.search(rf"process {second} is rank \d of 3", said)
    assert ET.parse(ROOT / demo.PICTURE).getroot().tag.endswith("svg")
    assert "pulumi up\n" in said.split("Next, on a cluster of yours")[1]


@pytest.mark.parametrize(
    ("disturbed", "left_alone", "why"),
    [
        (Training((14,), "accuracy 1"), Training((), "accuracy 1"), ""),
        (Training((14,), "accuracy 1"), Training((), "accuracy 2"), "the results differ"),
        (Training((14,), ""), Training((), ""), "the results differ"),
        (Training((), "accuracy 1"), Training((), "accuracy 1"), "training was over before the faults came"),
    ],
)
def test_the_demo_fails_where_it_shows_nothing(disturbed: Training, left_alone: Training, why: str) -> None:
    """Other weights, no result, and faults that came too late are failures, and said to be."""
    assert demo.compare(disturbed, left_alone).startswith(why)
    assert bool(demo.compare(disturbed, left_alone)) == bool(why)


TWO = (Place(1, 2, 0, 71), Place(1, 2, 1, 72))


@pytest.mark.parametrize(
    ("later", "why"),
    [
        ((Place(50, 3, 2, 80), Place(90, 2, 0, 71), Place(90, 2, 1, 72)), ""),
        ((Place(50, 3, 2, 80), Place(60, 2, 0, 71), Place(90, 3, 0, 71), Place(90, 3, 1, 72)), ""),
        ((Place(50, 3, 2, 80), Place(90, 2, 0, 71), Place(90, 2, 1, 81)), "process 72 did not stay"),
        ((), "training was over before the third node came"),
        ((Place(90, 3, 0, 71), Place(90, 3, 1, 72), Place(90, 3, 2, 80)), "training was over before the third node"),
    ],
)
def test_the_demo_fails_where_a_process_does_not_stay(later: tuple[Place, ...], why: str) -> None:
    """Or where nothing has come and gone, so that staying means nothing."""
    assert demo.follow((*TWO, *later)).startswith(why)
    assert bool(demo.follow((*TWO, *later))) == bool(why)


def test_the_demo_reads_the_places_from_the_logs(tmp_path: Path) -> None:
    """By step and rank, whatever the order of the nodes."""
    (tmp_path / "node-0.log").write_text("step 9: process 5 is rank 0 of 2\nstep 1: process 5 is rank 0 of 1\n")
    (tmp_path / "node-1.log").write_text("warning\nstep 9: process 6 is rank 1 of 2\nstep 9: accuracy 97%\n")

    assert demo.places(tmp_path) == (Place(1, 1, 0, 5), Place(9, 2, 0, 5), Place(9, 2, 1, 6))


def test_the_demo_shortens_the_other_job(tmp_path: Path) -> None:
    """The example's own number of steps is replaced, and its script is beside the job."""
    demo.shorten(ROOT / demo.NEVER_STOPS, tmp_path / "copy")

    assert 'args: ["--steps", "1500", "--pause", "0.01"]' in (tmp_path / "copy" / "job.yaml").read_text()
    assert (tmp_path / "copy" / "train.py").exists()
