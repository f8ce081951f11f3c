"""`elastic-infra validate --policy`: the rules without Pulumi, as a user calls them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

GOOD = "image: team/train@sha256:" + "0" * 64 + "\nscript: train.py\nresources: {memory: 1Gi}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two jobs and a policy that one of them breaks."""
    (tmp_path / "good.yaml").write_text(GOOD, "utf-8")
    (tmp_path / "tagged.yaml").write_text(GOOD.replace("@sha256:" + "0" * 64, ":1"), "utf-8")
    (tmp_path / "policy.yaml").write_text("image_pinned: mandatory\nlabels: {level: advisory, required: {team: ''}}\n")
    return tmp_path


def _validate(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from elastic_infra.cli import main; main()", "validate", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_a_mandatory_rule_refuses_with_2(folder: Path) -> None:
    """Every violation is a line on stderr, with its level and job."""
    done = _validate(folder, "good.yaml", "tagged.yaml", "--policy", "policy.yaml")

    assert done.returncode == 2
    assert done.stdout == ""
    assert "mandatory image_pinned: job tagged: image 'team/train:1' is not pinned" in done.stderr
    assert "image_pinned: job good" not in done.stderr


def test_the_store_of_a_job_is_judged_with_it(folder: Path) -> None:
    """Its own image is told; the one that it shares with the nodes is told once."""
    nodes = "elastic: {nnodes: '2:4'}\n"
    (folder / "good.yaml").write_text(f"{GOOD}{nodes}rendezvous: {{image: team/store:1}}\n", "utf-8")
    (folder / "tagged.yaml").write_text(GOOD.replace("@sha256:" + "0" * 64, ":1") + nodes, "utf-8")
    done = _validate(folder, "good.yaml", "tagged.yaml", "--policy", "policy.yaml")
    told = [line for line in done.stderr.splitlines() if line.startswith("mandatory")]

    assert done.returncode == 2
    assert [line.partition(" is not")[0] for line in told] == [
        "mandatory image_pinned: job good: image 'team/store:1'",
        "mandatory image_pinned: job tagged: image 'team/train:1'",
    ]


def test_an_advisory_rule_only_tells(folder: Path) -> None:
    """The file is valid all the same."""
    done = _validate(folder, "good.yaml", "--policy", "policy.yaml")

    assert done.returncode == 0
    assert "advisory labels: job good: lacks the label 'team'" in done.stderr


def test_an_exempt_job_is_told_with_the_reason(folder: Path) -> None:
    """It is valid, and a reviewer sees what it breaks."""
    (folder / "tagged.yaml").write_text(GOOD.replace("@sha256:" + "0" * 64, ":1") + "labels: {team: ml}\n", "utf-8")
    exempt = "{labels: {team: ml}, reason: it is being moved}"
    (folder / "policy.yaml").write_text(f"image_pinned: {{level: mandatory, exempt: [{exempt}]}}\n", "utf-8")
    done = _validate(folder, "tagged.yaml", "--policy", "policy.yaml")

    assert done.returncode == 0
    assert "exempt (it is being moved) image_pinned: job tagged: image 'team/train:1' is not pinned" in done.stderr


RULES = """
def no_debug(workload):
    "Debug jobs stay out of the cluster."
    if workload["metadata"]["name"].startswith("tagged"):
        yield "is a debug job. Run it with elastic-infra run."

def broken(workload):
    return 1 / 0
"""


def test_a_rule_of_ones_own(folder: Path) -> None:
    """A function beside the policy, with a level like any other rule; one that is off is not even loaded."""
    (folder / "rules.py").write_text(RULES, "utf-8")
    own = "custom: {no_debug: {function: 'rules.py:no_debug', level: mandatory}, off: {function: 'nowhere.py:f'}}"
    (folder / "policy.yaml").write_text(own, "utf-8")
    done = _validate(folder, "good.yaml", "tagged.yaml", "--policy", "policy.yaml")

    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("mandatory no_debug: job tagged: is a debug job.")


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("rules.py:broken", "custom.broken: the rule's function failed: ZeroDivisionError: division by zero."),
        ("rules.py:nothing", "has no function 'nothing'."),
        ("other.py:nothing", "other.py is no Python file that can be read."),
        ("spoilt.py:nothing", "spoilt.py cannot be run: SyntaxError: "),
        ("rules", "must name a file and a function in it, such as rules.py:no_debug_images."),
    ],
)
def test_a_bad_rule_of_ones_own_is_bad_input(folder: Path, function: str, said: str) -> None:
    """The reason, without a traceback."""
    (folder / "rules.py").write_text(RULES, "utf-8")
    (folder / "spoilt.py").write_text("def", "utf-8")
    (folder / "policy.yaml").write_text(f"custom: {{broken: {{function: '{function}', level: advisory}}}}", "utf-8")
    done = _validate(folder, "good.yaml", "--policy", "policy.yaml")

    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_bad_policy_is_bad_input(folder: Path) -> None:
    """Its faults are told like those of a job file, without a traceback."""
    (folder / "policy.yaml").write_text("image_pinned: [", "utf-8")
    done = _validate(folder, "good.yaml", "--policy", "policy.yaml")
    missing = _validate(folder, "good.yaml", "--policy", "nowhere.yaml")

    assert (done.returncode, missing.returncode) == (2, 2)
    assert "policy.yaml: is not valid YAML at line" in done.stderr
    assert "nowhere.yaml: cannot be read" in missing.stderr
    assert "Traceback" not in done.stderr + missing.stderr
