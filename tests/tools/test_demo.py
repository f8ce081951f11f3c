"""The demo, as `make demo` runs it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tools import demo
from tools.demo import Training
from tools.run import ROOT


@pytest.mark.engine
@pytest.mark.launcher
@pytest.mark.timeout(900)
def test_the_demo_runs_the_job_with_faults_and_ends_by_saying_what_to_type_next(pulumi_cli: Path) -> None:
    """Rendered, explained, previewed by a real engine, trained with and without faults; the way to a cluster last."""
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
        "What came out",
    ]
    assert "12 to create" in said
    assert said.index("fault: scale 3") < said.index("with 3 workers") < said.index("fault: kill node 1")
    assert said.count("the job succeeded") == 2
    assert said.count("goodput") == 2
    [disturbed, left_alone] = re.findall(r"accuracy (9\d\.\d\d%, weights [0-9a-f]{16})$", said, re.MULTILINE)
    assert disturbed == left_alone
    assert re.search(r"went on from its checkpoints at step [1-9]\d*, [1-9]\d*", said)
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
