"""A snapshot on disk appears whole or not at all, for any end of its writer, and the newest whole one stays."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from elastic_infra.training import snapshots
from elastic_infra.training.places import MANIFEST, Disk, Files
from elastic_infra.training.snapshots import WAIT_SECONDS, Folder, Keep, NewerFormatError, Saving, Writer
from tests.training.parts import content
from tests.training.volumes import small_volume

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = Path(__file__).resolve().parent / "scripts"
CONTENT = {step: bytes([step]) * 1000 for step in range(1, 10)}


class PowerLoss(Files):
    """Keeps what the disk holds for certain after each call, should the power fail then.

    A file's name is certain once its folder was synced after the name was given; what is deleted or renamed is so at
    once, because a file system may write these early.
    """

    def __init__(self) -> None:
        self.states: list[dict[Path, bytes]] = []
        self._certain: dict[Path, bytes] = {}
        self._unnamed: dict[Path, bytes] = {}

    def write(self, path: Path, data: memoryview | bytes) -> None:
        """The bytes are synced, and the name is not."""
        super().write(path, data)
        self._unnamed[path] = bytes(data)
        self.states.append(dict(self._certain))

    def rename(self, source: Path, target: Path) -> None:
        """A folder takes along what it holds for certain, and nothing else."""
        for files in (self._certain, self._unnamed):
            for path in [path for path in files if path.is_relative_to(source)]:
                files[target / path.relative_to(source)] = files.pop(path)
        self.states.append(dict(self._certain))
        super().rename(source, target)

    def sync(self, folder: Path) -> None:
        """The names in the folder are certain."""
        super().sync(folder)
        for path in [path for path in self._unnamed if path.parent == folder]:
            self._certain[path] = self._unnamed.pop(path)
        self.states.append(dict(self._certain))

    def remove(self, folder: Path) -> None:
        """The folder may be gone at once."""
        super().remove(folder)
        self._certain = {path: data for path, data in self._certain.items() if not path.is_relative_to(folder)}
        self.states.append(dict(self._certain))


def read(folder: Folder) -> dict[int, bytes]:
    """Step and content of every whole snapshot."""
    parts = {step: content(folder, step) for step in folder.steps()}
    return {step: part for step, part in parts.items() if part is not None}


def script(name: str, *arguments: str | Path, prefix: tuple[str, ...] = ()) -> list[str]:
    """The lines that a script prints."""
    command = [*prefix, sys.executable, SCRIPTS / name, *arguments]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.fixture
def warnings() -> list[str]:
    """What the folder warned of."""
    return []


@pytest.mark.parametrize(
    "case",
    [
        "damaged",
        "peer",
        pytest.param("first", marks=pytest.mark.slow),  # a part of what the first case does
        pytest.param("next", marks=pytest.mark.slow),
    ],
)
def test_a_kill_at_any_system_call_loses_no_whole_snapshot(tmp_path: Path, case: str) -> None:
    """SIGKILL at each call in turn: the old snapshot stays until the new one is whole, and the next save succeeds."""
    kills = [json.loads(line) for line in script("killed_saves.py", tmp_path, case)]

    newest = [max((step for step, _ in kill["after"]), default=0) for kill in kills]
    assert set(newest) == {0 if case == "first" else 1, 2}, "the kills came before and after the new snapshot"
    assert newest == sorted(newest)
    for kill in kills:
        assert all(is_right for _, is_right in kill["after"])
        assert set(kill["before"]) <= {step for step, _ in kill["after"]} or kill["after"][0][0] == 2
        assert kill["next"] == [[3, True]]


def test_a_power_loss_after_any_call_loses_no_whole_snapshot(tmp_path: Path, warnings: list[str]) -> None:
    """Names that were not synced are lost, and the snapshot before is deleted only once the new one's are synced."""
    files, root = PowerLoss(), tmp_path / "job"
    folder = Folder(Disk(root, files), warnings.append, Keep(last=1))
    folder.save(1, CONTENT[1], Writer())
    files.states.clear()
    folder.save(2, CONTENT[2], Writer())

    newest = []
    for number, state in enumerate(files.states):
        left = tmp_path / f"{number}"
        for path, data in state.items():
            (left / path.relative_to(root)).parent.mkdir(parents=True, exist_ok=True)
            (left / path.relative_to(root)).write_bytes(data)
        found = read(Folder(Disk(left), warnings.append))
        assert all(content == CONTENT[step] for step, content in found.items())
        newest.append(max(found, default=0))
    assert set(newest) == {1, 2}


def test_a_full_and_a_read_only_volume_are_one_warning_each(tmp_path: Path) -> None:
    """What did not fit leaves nothing behind, the snapshots that are there stay, and saving goes on with the volume."""
    (line,) = script("full_volume.py", tmp_path, prefix=small_volume(tmp_path))

    told = json.loads(line)
    assert told["saved"] == [True, False, False, True, False, False]
    full, again, refused = told["warnings"]
    assert "No space left on device. Free space there" in full
    assert "are saved again, from step 4 on" in again
    assert "Read-only file system. Mount the volume so that it can be written" in refused
    assert told["left behind"] == []
    assert told["steps"] == [4, 1]


def test_a_volume_without_room_for_all_parts_keeps_none_of_them(tmp_path: Path) -> None:
    """Whichever rank found no room: rank 0 says why at once, nothing fills the volume, and the next save succeeds."""
    (line,) = script("full_volume_ranks.py", tmp_path, prefix=small_volume(tmp_path))

    told = json.loads(line)
    assert told["seconds"] < WAIT_SECONDS / 60
    assert told["saved"] == [[False, False], [False, True], [True, True]]
    assert told["left behind"] == [[], [], []]
    full, again = told["warnings"]
    assert "step 1 cannot be saved" in full
    assert "No space left on device. Free space there, or enlarge the volume. Training goes on." in full
    assert "are saved again, from step 3 on" in again
    assert told["steps"] == [3]


class FullFor(Files):
    """A disk on which files of one name find no room."""

    def __init__(self, name: str) -> None:
        self._name = name

    def write(self, path: Path, data: memoryview | bytes) -> None:
        """The file is there, and empty."""
        super().write(path, b"" if path.name == self._name else data)
        if path.name == self._name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_part_that_comes_after_the_snapshot_was_given_up_is_deleted(tmp_path: Path, warnings: list[str]) -> None:
    """Rank 0 found no room, and no part waits for it; both ranks say why."""
    said: list[str] = []
    assert not Folder(Disk(tmp_path, FullFor("rank-00000.bin")), said.append).save(1, b"zero", Writer(0, 2))
    assert not Folder(Disk(tmp_path), warnings.append).save(1, b"one", Writer(1, 2))

    assert "No space left" in said[0]
    assert warnings == said
    assert [path.name for path in sorted(tmp_path.glob("*/*"))] == ["rank-00000.bin.failed", "rank-00001.bin.failed"]


def test_a_rank_without_room_for_its_reason_is_not_waited_for(tmp_path: Path, warnings: list[str]) -> None:
    """The empty file says that the part will not come."""

    class Full(Files):
        def write(self, path: Path, data: memoryview | bytes) -> None:
            del data
            path.touch()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    assert not Folder(Disk(tmp_path, Full()), warnings.append).save(1, b"one", Writer(1, 2))
    assert not Folder(Disk(tmp_path), warnings.append).save(1, b"zero", Writer(0, 2))
    assert "No space left" in warnings[0]
    assert "a rank could not write its part. Training goes on." in warnings[1]


def test_a_failed_save_frees_what_dead_writers_left(tmp_path: Path, warnings: list[str]) -> None:
    """Else a full volume stays full: drafts go by their age, and none that another writer may still be writing."""
    ages = {".draft-old": 2 * WAIT_SECONDS, ".draft-young": 0.0}
    for name, age in ages.items():
        (tmp_path / name).mkdir()
        written = (tmp_path / name).stat().st_mtime - age
        os.utime(tmp_path / name, (written, written))

    assert not Folder(Disk(tmp_path, FullFor("rank-00000.bin")), warnings.append).save(1, b"zero", Writer())
    assert not (tmp_path / ".draft-old").exists()
    assert (tmp_path / ".draft-young").exists()


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


def test_a_file_that_goes_while_its_folder_is_listed_leaves_nothing_open(tmp_path: Path) -> None:
    """Another rank renames what it has written: the list is empty until the next look, and the folder is closed."""
    (tmp_path / "draft").mkdir()
    (tmp_path / "draft" / "gone").symlink_to("nowhere")

    assert Disk(tmp_path).sizes("draft") == {}


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


@pytest.mark.parametrize(("last", "every"), [(0, None), (0, 4), (-1, None), (2, 0), (2, -4)])
def test_a_rule_that_may_keep_no_snapshot_is_refused(last: int, every: int | None) -> None:
    """The newest snapshot would go, or nobody could say which others stay."""
    with pytest.raises(ValueError, match=rf"last \({last}\) and every \({every}\) must be 1 or more"):
        Keep(last, every)


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
        (newest / MANIFEST).write_text('{"format": 0, "parts": {}}')
    elif damage == "length":
        (newest / "rank-00000.bin").write_bytes(b"short")
    else:
        (newest / "rank-00000.bin").unlink()

    assert folder.steps() == (2,)
    assert "step-000000000003 is skipped: " in warnings[-1]
    Folder(Disk(tmp_path), warnings.append, Keep(last=1)).save(3, CONTENT[3], Writer(run="again"))
    assert read(folder) == {3: CONTENT[3]}


def test_a_damaged_snapshot_gives_way_and_is_deleted(tmp_path: Path, warnings: list[str]) -> None:
    """Training comes to its step again; once the new snapshot is whole the damaged one takes no room."""
    folder = Folder(Disk(tmp_path), warnings.append)
    folder.save(3, CONTENT[2], Writer())
    damaged = tmp_path / "step-000000000003"
    (damaged / MANIFEST).unlink()
    written = damaged.stat().st_mtime - 2 * WAIT_SECONDS
    os.utime(damaged, (written, written))

    assert Folder(Disk(tmp_path), warnings.append).save(3, CONTENT[3], Writer(run="again"))
    assert read(folder) == {3: CONTENT[3]}
    assert list(tmp_path.iterdir()) == [damaged]


def flip(root: Path, step: int) -> None:
    """Change one byte of a snapshot's part, which keeps its length."""
    part = root / f"step-{step:012d}" / "rank-00000.bin"
    part.write_bytes(part.read_bytes()[:-1] + b"\xff")


@pytest.mark.parametrize("last", [1, 2])
def test_a_damaged_snapshot_of_the_right_length_gives_way(tmp_path: Path, warnings: list[str], last: int) -> None:
    """The new copy of its step is kept, and not the old one that nobody can read."""
    folder = Folder(Disk(tmp_path), warnings.append, Keep(last=last))
    folder.save(1, CONTENT[1], Writer())
    folder.save(2, CONTENT[2], Writer())
    flip(tmp_path, 2)

    assert folder.save(2, CONTENT[2], Writer(run="again"))
    assert read(folder)[2] == CONTENT[2]


def test_a_whole_snapshot_of_another_writer_stays(tmp_path: Path, warnings: list[str]) -> None:
    """Its checksums are right, so that no moment is without a snapshot of the step, and no draft is left."""
    folder = Folder(Disk(tmp_path), warnings.append)
    folder.save(2, CONTENT[1], Writer())

    assert folder.save(2, CONTENT[2], Writer(run="again"))
    assert read(folder) == {2: CONTENT[1]}
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000000002"]


class Busy(Disk):
    """A volume that cannot read one file the first ``times`` times."""

    def __init__(self, root: Path, name: str, times: int) -> None:
        super().__init__(root)
        self._name, self._left = name, times

    def read(self, name: str) -> bytes:
        """An error as of a network volume whose server starts anew."""
        if name.endswith(self._name) and self._left:
            self._left -= 1
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return super().read(name)


@pytest.mark.parametrize("name", [MANIFEST, "rank-00000.bin"])
def test_a_file_that_cannot_be_read_for_a_moment_is_read_again(tmp_path: Path, warnings: list[str], name: str) -> None:
    """The newest snapshot is used, and no older one."""
    Folder(Disk(tmp_path), warnings.append).save(2, CONTENT[2], Writer())

    assert read(Folder(Busy(tmp_path, name, times=1), warnings.append)) == {2: CONTENT[2]}
    assert warnings == []


def test_a_manifest_that_cannot_be_read_is_an_error_and_costs_no_snapshot(
    tmp_path: Path, warnings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its snapshot may be whole, so it is neither passed over for an older one, nor counted, nor deleted."""
    monkeypatch.setattr(snapshots, "_PAUSES", ())
    for step in (1, 2):
        Folder(Disk(tmp_path), warnings.append).save(step, CONTENT[step], Writer())
    place = Busy(tmp_path, f"{2:012d}/{MANIFEST}", times=-1)

    with pytest.raises(OSError, match="Stale file handle"):
        Folder(place, warnings.append).steps()
    assert Folder(place, warnings.append, Keep(last=2)).save(3, CONTENT[3], Writer())
    assert Folder(Disk(tmp_path), warnings.append).steps() == (3, 2, 1)


def test_a_later_snapshot_that_cannot_be_read_costs_no_earlier_one(tmp_path: Path, warnings: list[str]) -> None:
    """Training has come past it to an earlier step: what is saved now stays, in a process that has not read it too."""
    Folder(Disk(tmp_path), warnings.append).save(5, CONTENT[5], Writer())
    flip(tmp_path, 5)
    for step in (2, 3):
        assert Folder(Disk(tmp_path), warnings.append, Keep(last=1)).save(step, CONTENT[step], Writer())

    assert Folder(Disk(tmp_path), warnings.append).steps() == (5, 3)


def test_a_snapshot_that_failed_its_checksum_does_not_count_among_those_kept(
    tmp_path: Path, warnings: list[str]
) -> None:
    """Two whole ones stay beside it."""
    folder = Folder(Disk(tmp_path), warnings.append, Keep(last=2))
    folder.save(1, CONTENT[1], Writer())
    folder.save(2, CONTENT[2], Writer())
    flip(tmp_path, 2)
    with pytest.raises(ValueError, match="another checksum"):
        content(folder, 2)
    folder.distrust(2)

    folder.save(3, CONTENT[3], Writer())
    assert folder.steps() == (3, 2, 1)


def test_a_snapshot_of_a_newer_version_stays(tmp_path: Path, warnings: list[str]) -> None:
    """An older version neither reads nor deletes it, and saves its own beside it."""
    folder = Folder(Disk(tmp_path), warnings.append, Keep(last=1))
    folder.save(2, CONTENT[2], Writer())
    newer = tmp_path / "step-000000000002" / MANIFEST
    newer.write_text(newer.read_text().replace('"format": 1', '"format": 2'))

    assert folder.save(1, CONTENT[1], Writer())
    assert folder.save(3, CONTENT[3], Writer())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000000000002", "step-000000000003"]
    with pytest.raises(NewerFormatError, match="step-000000000002 has format 2"):
        folder.steps()


@pytest.mark.parametrize(
    ("number", "said", "advice"),
    [
        (errno.ENOSPC, "No space left", "Free space there, or enlarge the volume. "),
        (errno.EACCES, "Permission denied", "Give the job's account the right to write there. "),
        (errno.EIO, "Input/output error", ""),
    ],
)
def test_a_disk_that_takes_nothing_is_one_warning(
    tmp_path: Path, warnings: list[str], number: int, said: str, advice: str
) -> None:
    """Training goes on; the message says which snapshot, where, why and what to do, and is not written again."""

    class Full(Files):
        def write(self, path: Path, data: memoryview | bytes) -> None:
            del path, data
            raise OSError(number, said)

    folder = Folder(Disk(tmp_path, Full()), warnings.append)
    assert not folder.save(7, b"x", Writer())
    assert not folder.save(8, b"x", Writer())
    assert warnings == [f"The snapshot of step 7 cannot be saved in {tmp_path}: {said}. {advice}Training goes on."]


def test_a_part_is_read_on_from_where_a_fault_broke_it_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy volume answers a moment later: no byte comes twice, and none is missing."""
    whole, faults = list(range(10)), [7, 3, 5]

    def pieces(_self: Disk, _name: str) -> Iterator[bytes]:
        fault = faults.pop() if faults else None
        for index in range(0, len(whole), 2):
            if fault is not None and index + 2 > fault:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            yield bytes(whole[index : index + 2])

    monkeypatch.setattr(Disk, "pieces", pieces)
    monkeypatch.setattr(snapshots, "_PAUSES", (0.0, 0.0, 0.0))

    assert b"".join(Folder(Disk(tmp_path), print)._pieces("part")) == bytes(whole)
