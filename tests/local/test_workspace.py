"""Where a run that is given no work folder keeps its results."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastic_infra.local import workspace


def test_runs_of_one_second_have_folders_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the first still runs or has ended: a new run neither waits for it nor resumes from it."""
    monkeypatch.chdir(tmp_path)
    first = workspace.make(workspace.default_folder("llm", "20260101-120000"))
    second = workspace.make(workspace.default_folder("llm", "20260101-120000"))
    first.remove_scratch()
    third = workspace.make(workspace.default_folder("llm", "20260101-120000"))
    for each in (second, third):
        each.remove_scratch()
    names = [each.folder.name for each in (first, second, third)]

    assert names == ["llm-20260101-120000", "llm-20260101-120000-2", "llm-20260101-120000-3"]
    assert first.folder.parent == tmp_path / ".elastic-infra"


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that the user gives."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".elastic-infra").write_text("")
    with pytest.raises(workspace.WorkspaceError, match="cannot be written"):
        workspace.make(workspace.default_folder("llm", "20260101-120000"))
