"""Durable snapshots behind a URL: whole once the manifest is there, and named errors where they cannot be kept."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest
import torch
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import _registry as known

from elastic_infra.training import ElasticState, Restored, StateError, places
from elastic_infra.training.object_store import ObjectStore
from elastic_infra.training.places import MANIFEST, Disk
from elastic_infra.training.snapshots import Folder, Keep, Saving, Writer, place_of
from tests.training.parts import content


class CrashError(BaseException):
    """The process is killed."""


class Faulty(ObjectStore):
    """Dies in the ``at``-th write, before it or in the middle of it."""

    def __init__(self, url: str, at: int, *, halfway: bool) -> None:
        super().__init__(url)
        self.left = at
        self.halfway = halfway

    def _write(self, name: str, data: memoryview | bytes) -> None:
        self.left -= 1
        if self.left >= 0:
            super()._write(name, data)
            return
        if self.halfway:  # of a file system whose files do not appear whole
            super()._write(name, bytes(data)[: len(data) // 2])
        raise CrashError


@pytest.fixture
def url() -> Iterator[str]:
    """A folder in fsspec's memory, which all tests of a process share."""
    name = f"memory://{uuid.uuid4().hex}/job"
    yield name
    files = fsspec.filesystem("memory")
    files.rm(name, recursive=True) if files.exists(name) else None


@pytest.fixture
def warnings() -> list[str]:
    """What the folder warned of."""
    return []


@pytest.mark.parametrize("halfway", [False, True])
def test_a_kill_at_any_write_loses_no_whole_snapshot(url: str, warnings: list[str], *, halfway: bool) -> None:
    """There is the last snapshot or the new one, both with all their bytes; the next save leaves no part behind."""
    for at in range(3):  # part, note, manifest
        root = f"{url}/{at}"
        Folder(ObjectStore(root), warnings.append, Keep(last=1)).save(1, b"first", Writer())
        with pytest.raises(CrashError):
            Folder(Faulty(root, at, halfway=halfway), warnings.append).save(2, b"second", Writer())
        after = Folder(ObjectStore(root), warnings.append, Keep(last=1))

        assert (after.steps(), content(after, 1)) == ((1,), b"first")
        assert after.save(3, b"third", Writer(run="1"))
        assert content(after, 3) == b"third"
        assert ObjectStore(root).names() == ["step-000000000003"]


def test_a_large_object_comes_in_pieces(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in memory once, where the whole of it at once would be there beside the state."""
    monkeypatch.setattr(places, "_CHUNK", 3)
    store = ObjectStore(url)
    store.write_part("part", b"eight by", b"{}")

    assert list(store.pieces("part")) == [b"eig", b"ht ", b"by"]


def test_every_rank_s_part_is_in_the_manifest(url: str, warnings: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 publishes when the last part is there; a given-up snapshot is none."""
    monkeypatch.setattr(ObjectStore, "poll_seconds", 0.0)
    folder, saving = Folder(ObjectStore(url), warnings.append), Saving()
    saving.given_up.set()

    assert not folder.save(1, b"zero", Writer(0, 2), saving)
    assert "the part of rank 1 did not come" in warnings[0]
    assert folder.save(2, b"one", Writer(1, 2))
    assert Folder(ObjectStore(url), warnings.append).save(2, b"zero", Writer(0, 2))
    assert tuple(content(folder, 2, rank) for rank in range(3)) == (b"zero", b"one", None)


def test_a_rank_that_cannot_write_its_part_is_not_waited_for(url: str, warnings: list[str]) -> None:
    """Rank 0 says why, in the words of that rank's error."""

    class Throttled(ObjectStore):
        def _write(self, name: str, data: memoryview | bytes) -> None:
            if name.endswith(".bin"):
                message = "SlowDown: Please reduce your request rate"
                raise OSError(message)
            super()._write(name, data)

    assert not Folder(Throttled(url), warnings.append).save(1, b"one", Writer(1, 2))
    assert not Folder(ObjectStore(url), warnings.append).save(1, b"zero", Writer(0, 2))
    assert len(warnings) == 2
    assert warnings[0] == warnings[1]
    assert "cannot be saved" in warnings[0]
    assert "SlowDown: Please reduce your request rate. Training goes on." in warnings[0]


def test_a_step_that_is_saved_again_is_the_newer_run_s(url: str, warnings: list[str]) -> None:
    """Training went back behind a damaged snapshot, and comes to its step again."""
    folder = Folder(ObjectStore(url), warnings.append)
    for run in ("0", "1"):
        folder.save(5, run.encode(), Writer(run=run))

    assert (folder.steps(), content(folder, 5), warnings) == ((5,), b"1", [])


def test_a_damaged_part_and_a_missing_manifest_are_named(url: str, warnings: list[str]) -> None:
    """Neither of the two is loaded, and a line says why."""
    store = ObjectStore(url)
    folder = Folder(store, warnings.append)
    for step in (1, 2):
        folder.save(step, b"whole", Writer())
    store._write("step-000000000001/0/rank-00000.bin", b"whale")
    fsspec.filesystem("memory").rm_file(f"{url}/step-000000000002/{MANIFEST}")

    assert folder.steps() == (1,)
    assert "step-000000000002 is skipped: it has no manifest" in warnings[-1]
    with pytest.raises(ValueError, match="has another checksum than the manifest says"):
        content(folder, 1)


def test_training_goes_on_from_a_url(url: str) -> None:
    """As from a folder."""
    model = torch.nn.Linear(2, 2)
    state = ElasticState(url, model=model)
    state.step = 7
    state.snapshot(durable=True)
    state.wait()
    other = torch.nn.Linear(2, 2)

    assert ElasticState(url, model=other).restore() == Restored(7, "disk")
    assert torch.equal(other.weight, model.weight)


def test_a_file_url_is_a_folder_with_renames(tmp_path: Path) -> None:
    """A disk gives more than an object store, so a URL for it needs no fsspec."""
    place = place_of(f"file://{tmp_path}/a%20b")

    assert isinstance(place, Disk)
    assert place.root == f"{tmp_path}/a b"


def test_errors_of_a_store_are_a_warning_while_training_goes_on(warnings: list[str]) -> None:
    """Errors of any class, and no password in the message."""

    class Broken(ObjectStore):
        def _path(self, name: str) -> str:
            raise RuntimeError(name)

    folder = Folder(Broken("memory://user:secret@bucket/job"), warnings.append)

    assert not folder.save(1, b"part", Writer())
    assert len(warnings) == 1
    assert "cannot be saved in memory://bucket/job: RuntimeError: step-000000000001/0/rank-00000.bin" in warnings[0]


class Refusing(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """A bucket that takes nothing, and shows nothing in its folder `closed`; its errors name the whole address."""

    protocol = "refusing"

    def open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        del mode
        message = f"Access Denied: https://key:se/cret@host/{path}?X-Amz-Signature=f00&X-Amz-Credential=key/1&part=1"
        raise PermissionError(message)

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:  # noqa: FBT001, FBT002  fsspec's signature
        del detail
        if "closed" in path:
            message = "Forbidden for se/cret"
            raise PermissionError(message)
        return []


def test_a_bucket_without_rights_is_named_and_no_secret(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """To list it is needed at the start, to write to it is a warning; the text is the store's."""
    monkeypatch.setitem(known, "refusing", Refusing)
    with pytest.raises(StateError, match=r"in refusing://bucket/closed cannot be read: Forbidden for \*\*\*\. Check"):
        ElasticState("refusing://key:se/cret@bucket/closed").restore()
    state = ElasticState("refusing://key:se/cret@bucket/job", model=torch.nn.Linear(1, 1))
    assert state.restore() == Restored(0, "nothing")
    state.snapshot(durable=True)
    state.wait()

    (line,) = capsys.readouterr().err.splitlines()
    assert "step 0 cannot be saved in refusing://bucket/job: Access Denied: https://***@host/" in line
    assert "?X-Amz-Signature=***&X-Amz-Credential=***&part=1. Give the job's account the right to write there." in line


class Unreadable(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """A bucket that takes objects and lists them, and gives none back."""

    protocol = "unreadable"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        del start, end
        message = f"Access Denied: {path}"
        raise PermissionError(message)


def test_a_manifest_that_may_not_be_read_is_no_fresh_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """A right was taken away since it was written: training does not begin again beside the snapshots, and says why."""
    monkeypatch.setitem(known, "unreadable", Unreadable)
    ObjectStore("unreadable://bucket/job")._write(f"step-000000000001/{MANIFEST}", b"{}")

    with pytest.raises(StateError, match=r"unreadable://bucket/job cannot be read: Access Denied.* and the rights\."):
        ElasticState("unreadable://bucket/job", model=torch.nn.Linear(1, 1)).restore()


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says what to install; an unknown scheme says what can be given."""
    with pytest.raises(StateError, match=r"cannot be kept in nowhere://x: .*Give a path, or a URL"):
        ElasticState("nowhere://x")
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(StateError, match=r"need the package fsspec, and s3fs for s3://"):
        ElasticState("s3://bucket/job")
