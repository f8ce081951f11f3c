"""A snapshot on disk appears whole or not at all, for any end of its writer, and the newest whole one stays."""

from __future__ import annotations

import errno
import json
import threading
from pathlib import Path

import pytest

from elastic_infra.training.places import MANIFEST, Disk, Files
from elastic_infra.training.snapshots import Folder, Keep, Saving, Writer

CONTENT = {step: bytes([step]) * 1000 for step in range(1, 10)}


class CrashError(BaseException):
    """The process is killed."""


class Faulty(Files):
    """Dies in the ``at``-th call, before or in the middle of what the call does."""

    def __init__(self, at: int, *, halfway: bool = False) -> None:
        self.left = at
        self.halfway = halfway

    def write(self, path: Path, data: memoryview | bytes) -> None:
        """Half of the data may be there."""
        if self._dies():
            if self.halfway:
                path.write_bytes(bytes(data[: len(data) // 2]))
            raise CrashError
        super().write(path, data)

    def rename(self, source: Path, target: Path) -> None:
        """The name may be there without having been synced."""
        if self._dies():
            if self.halfway:
                source.rename(target)
            raise CrashError
        super().rename(source, target)

    def remove(self, folder: Path) -> None:
        """Some files may be gone."""
        if self._dies():
            if self.halfway:
                next(folder.iterdir()).unlink()
            raise CrashError
        super().remove(folder)

    def _dies(self) -> bool:
        self.left -= 1
        return self.left < 0


def read(folder: Folder) -> dict[int, bytes]:
    """Step and content of every whole snapshot."""
    parts = {step: folder.part(step, 0) for step in folder.steps()}
    return {step: part for step, part in parts.items() if part is not None}


@pytest.fixture
def warnings() -> list[str]:
    """What the folder warned of."""
    return []


@pytest.mark.parametrize("halfway", [False, True])
def test_a_kill_at_any_call_of_a_save_loses_no_whole_snapshot(
    tmp_path: Path, warnings: list[str], *, halfway: bool
) -> None:
    """After each point of a save there is the last snapshot or the new one, both with all their bytes."""
    calls = 0
    while True:
        root = tmp_path / f"{calls}"
        Folder(Disk(root), warnings.append, Keep(last=1)).save(1, CONTENT[1], Writer())
        try:
            Folder(Disk(root, Faulty(calls, halfway=halfway)), warnings.append, Keep(last=1)).save(
                2, CONTENT[2], Writer()
            )
        except CrashError:
            whole = read(Folder(Disk(root), warnings.append))
            assert whole
            assert all(content == CONTENT[step] for step, content in whole.items())
            assert Folder(Disk(root), warnings.append, Keep(last=1)).save(3, CONTENT[3], Writer(run="1"))
            assert read(Folder(Disk(root), warnings.append))[3] == CONTENT[3]
            calls += 1
            continue
        break

    assert calls == 6  # part, note, note's name, manifest, name, removal of the old one: each was tried


def test_every_rank_s_part_is_waited_for(tmp_path: Path, warnings: list[str]) -> None:
    """Rank 0 publishes when the last part is there."""
    folder = Folder(Disk(tmp_path), warnings.append)
    first = threading.Thread(target=folder.save, args=(1, b"zero", Writer(0, 2)))
    first.start()
    while not list(tmp_path.glob(".draft-*/rank-00000.bin.json")):
        threading.Event().wait(0.001)

    assert folder.steps() == ()
    folder.save(1, b"one", Writer(1, 2))
    first.join()
    assert folder.steps() == (1,)
    assert json.loads((tmp_path / "step-000000000001" / MANIFEST).read_text())["world"] == 2


def test_missing_parts_are_not_waited_for_once_the_snapshot_is_given_up(tmp_path: Path, warnings: list[str]) -> None:
    """The rank may be gone: nothing is published, one warning names the rank, and the next snapshot is whole."""
    saving = Saving()
    saving.given_up.set()
    folder = Folder(Disk(tmp_path), warnings.append)

    assert not folder.save(1, b"zero", Writer(0, 2), saving)
    assert saving.written.is_set()
    assert "the part of rank 1 did not come before its generation ended" in warnings[0]
    assert folder.save(2, b"zero", Writer(run="1"))
    assert folder.steps() == (2,)


def test_the_last_and_every_nth_stay(tmp_path: Path, warnings: list[str]) -> None:
    """The same snapshots are kept after any number of saves."""
    folder = Folder(Disk(tmp_path), warnings.append, Keep(last=2, every=4))
    for step in range(1, 10):
        folder.save(step, CONTENT[step], Writer())

    assert folder.steps() == (9, 8, 4)
    assert warnings == []


@pytest.mark.parametrize("damage", ["manifest", "length", "missing", "format"])
def test_what_is_not_whole_is_skipped_by_name_and_not_counted(tmp_path: Path, warnings: list[str], damage: str) -> None:
    """A damaged snapshot is no reason to delete a whole one."""
    folder = Folder(Disk(tmp_path), warnings.append, Keep(last=1))
    folder.save(1, CONTENT[1], Writer())
    folder.save(2, CONTENT[2], Writer())
    folder = Folder(Disk(tmp_path), warnings.append, Keep(last=2))
    folder.save(3, CONTENT[3], Writer())
    newest = tmp_path / "step-000000000003"
    if damage == "manifest":
        (newest / MANIFEST).unlink()
    elif damage == "format":
        (newest / MANIFEST).write_text('{"format": 99, "parts": {}}')
    elif damage == "length":
        (newest / "rank-00000.bin").write_bytes(b"short")
    else:
        (newest / "rank-00000.bin").unlink()

    assert folder.steps() == (2,)
    assert "step-000000000003 is skipped: " in warnings[-1]
    Folder(Disk(tmp_path), warnings.append, Keep(last=1)).save(3, CONTENT[3], Writer(run="again"))
    assert read(folder) == {3: CONTENT[3]}


@pytest.mark.parametrize(("number", "said"), [(errno.ENOSPC, "No space left"), (errno.EROFS, "Read-only")])
def test_a_disk_that_takes_nothing_is_a_warning(tmp_path: Path, warnings: list[str], number: int, said: str) -> None:
    """Training goes on; the message says which snapshot, where and why."""

    class Full(Files):
        def write(self, path: Path, data: memoryview | bytes) -> None:
            del path, data
            raise OSError(number, said)

    assert not Folder(Disk(tmp_path, Full()), warnings.append).save(7, b"x", Writer())
    assert warnings == [f"The snapshot of step 7 cannot be saved in {tmp_path}: {said}. Training goes on."]
