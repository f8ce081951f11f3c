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


def test_an_advisory_rule_only_tells(folder: Path) -> None:
    """The file is valid all the same."""
    done = _validate(folder, "good.yaml", "--policy", "policy.yaml")

    assert done.returncode == 0
    assert "advisory labels: job good: lacks the label 'team'" in done.stderr


def test_a_bad_policy_is_bad_input(folder: Path) -> None:
    """Its faults are told like those of a job file, without a traceback."""
    (folder / "policy.yaml").write_text("image_pinned: [", "utf-8")
    done = _validate(folder, "good.yaml", "--policy", "policy.yaml")
    missing = _validate(folder, "good.yaml", "--policy", "nowhere.yaml")

    assert (done.returncode, missing.returncode) == (2, 2)
    assert "policy.yaml: is not valid YAML at line" in done.stderr
    assert "nowhere.yaml: cannot be read" in missing.stderr
    assert "Traceback" not in done.stderr + missing.stderr
