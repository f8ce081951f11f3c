"""Local code in a preview: each file that differs, by name and size, of files on disk and of revisions."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from elastic_infra.config.workdir import told as content
from elastic_infra.preview import Consequence, JobDiff, Side, compare
from elastic_infra.preview.inputs import Reading, read_sides
from tests import jobs
from tests.preview.pairs import diff_of
from tests.preview.repositories import commit

JOB = "image: i\nscript: train.py\nworkdir: ../src\n"


def code(**files: bytes) -> dict[str, Any]:
    """A `workdir` with these files, `_` in a name standing for the dot."""
    return {"files": {name.replace("_", "."): base64.b64encode(text).decode() for name, text in files.items()}}


def told(diff: JobDiff) -> dict[str, tuple[object, object]]:
    """Old and new of each change."""
    return {change.path: (change.old, change.new) for change in diff.changes}


def test_each_file_that_differs_is_a_change_of_its_own_and_a_restart() -> None:
    """By its size and the beginning of its hash; files that are the same are not listed."""
    before = jobs.elastic(workdir=code(train_py=b"1", tokenizer_py=b"old", same_py=b"0"))
    after = jobs.elastic(workdir=code(train_py=b"22", tokenizer_py=b"new!", same_py=b"0", more_py=b""))

    diff = diff_of(before, after)

    assert told(diff) == {
        "workdir.files['tokenizer.py']": (content(b"old"), content(b"new!")),
        "workdir.files['train.py']": (content(b"1"), content(b"22")),
        "workdir.files['more.py']": (None, content(b"")),
    }
    assert {change.consequence for change in diff.changes} == {Consequence.RESTART}
    assert any("workdir" in place for place in diff.changes[0].manifest_paths)


def test_a_first_folder_is_one_change_without_contents() -> None:
    """A reviewer sees how much there is, and reads the files in the pull request."""
    diff = diff_of(jobs.elastic(), jobs.elastic(workdir=code(train_py=b"secret sauce")))

    assert "secret sauce" not in str(diff)
    assert told(diff)["workdir"] == (None, {"files": "1 file, 12 bytes", "mount_path": "/workspace"})
    assert diff.consequence is Consequence.RESTART


def test_another_way_to_the_same_files_changes_nothing() -> None:
    """A folder may be moved."""
    before, after = (jobs.elastic(workdir={**code(train_py=b"1"), "path": path}) for path in ("src", "code"))

    assert diff_of(before, after).consequence is Consequence.NONE


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repository with a job in one folder and its code in another."""
    commit(tmp_path, {"jobs/llm.yaml": JOB, "src/train.py": "1\n", "src/data.csv": "x\n"})
    return tmp_path


def sides(repo: Path, base: str, head: str) -> tuple[Side, Side]:
    """Both sides as the command reads them."""
    return read_sides(base, head, repo, Reading())


@pytest.mark.parametrize(
    ("base", "head"), [("HEAD", "."), ("HEAD", "jobs"), ("HEAD:jobs", "jobs"), ("HEAD:jobs/llm.yaml", "jobs/llm.yaml")]
)
def test_a_revision_has_the_code_that_it_had(repo: Path, base: str, head: str) -> None:
    """Whether the side is the repository, the folder of the job, or its file alone."""
    (repo / "src/train.py").write_text("1\n2\n")

    (diff,) = compare(*sides(repo, base, head)).jobs

    assert told(diff) == {"workdir.files['train.py']": (content(b"1\n"), content(b"1\n2\n"))}


def test_two_revisions_are_compared_without_a_checkout(repo: Path) -> None:
    """As in CI, where only the objects of git are there."""
    commit(repo, {"src/train.py": "2\n"})

    (diff,) = compare(*sides(repo, "HEAD~1", "HEAD")).jobs

    assert [*told(diff)] == ["workdir.files['train.py']"]


def test_a_link_out_of_the_folder_is_refused_in_a_revision_too(repo: Path) -> None:
    """The preview says what `pulumi up` would say."""
    (repo / "src/more.py").symlink_to("../jobs/llm.yaml")
    commit(repo, {})

    comparison = compare(*sides(repo, "HEAD~1", "HEAD"))

    assert [error.side for error in comparison.errors] == ["head"]
    assert "is a link out of the folder" in comparison.errors[0].reason


def test_a_folder_that_a_revision_lacks_is_an_error_of_its_side(repo: Path) -> None:
    """Also where the path leaves the repository."""
    elsewhere, nowhere = (JOB.replace("../src", path) for path in ("../../elsewhere", "../none"))
    commit(repo, {"jobs/llm.yaml": elsewhere, "jobs/other.yaml": nowhere})

    found = {error.path: error.reason for error in compare(*sides(repo, "HEAD~1", "HEAD")).errors}

    assert "is outside of the repository" in found["jobs/llm.yaml"]
    assert "is no folder" in found["jobs/other.yaml"]
