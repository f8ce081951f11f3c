"""The launcher's own folder: made, kept while a process of its launcher lives, cleaned up afterwards."""

from __future__ import annotations

import fcntl
import os
import pathlib
import threading
import time
from collections.abc import Iterator

import pytest

from elastic_infra.launcher import run_dir
from tests.launcher.launched import BEHAVE, Launched


def abandon(parent: pathlib.Path) -> pathlib.Path:
    """A folder whose launcher is dead: the kernel has dropped its lock."""
    folder, lock = run_dir.make_locked_folder(str(parent))
    os.close(lock)
    return pathlib.Path(folder)


def test_only_folders_of_dead_launchers_are_removed(tmp_path: pathlib.Path) -> None:
    """A folder that is locked, has no lock file, or has another program's name stays."""
    dead = abandon(tmp_path)
    (dead / "progress-1").write_text("left")
    living, lock = run_dir.make_locked_folder(str(tmp_path))
    unlocked, foreign = tmp_path / "elastic_infra_older", tmp_path / "other"
    for folder in (unlocked, foreign):
        folder.mkdir()
    (foreign / "owner").touch()
    run_dir.cleanup(str(tmp_path))
    os.close(lock)

    assert {path.name for path in tmp_path.iterdir()} == {os.path.basename(living), unlocked.name, foreign.name}


def test_a_link_is_not_followed(tmp_path: pathlib.Path) -> None:
    """A name like ours that points elsewhere deletes nothing there."""
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "owner").touch()
    (tmp_path / "elastic_infra_link").symlink_to(tmp_path / "target")
    run_dir.cleanup(str(tmp_path))

    assert (tmp_path / "target" / "owner").exists()


def test_a_new_folder_is_never_removed(tmp_path: pathlib.Path) -> None:
    """However often other launchers clean up meanwhile, a launcher keeps the folder that it has made."""
    over = threading.Event()

    def clean_up_on() -> None:
        while not over.is_set():
            run_dir.cleanup(str(tmp_path))

    cleaner = threading.Thread(target=clean_up_on)
    cleaner.start()
    try:
        made = [run_dir.make_locked_folder(str(tmp_path)) for _ in range(300)]
    finally:
        over.set()
        cleaner.join()

    assert [folder for folder, _ in made if not os.path.exists(os.path.join(folder, "owner"))] == []
    for _, lock in made:
        os.close(lock)


@pytest.fixture
def launches() -> Iterator[list[Launched]]:
    launched: list[Launched] = []
    yield launched
    for launch in launched:
        launch.end()


def folder_of(launch: Launched) -> pathlib.Path:
    """Where a launcher keeps its files, as its worker finds it."""
    record = launch.wait_for(lambda: launch.journal("started"))[0]
    environ = pathlib.Path(f"/proc/{record['pid']}/environ").read_bytes().split(b"\0")
    progress = next(line for line in environ if line.startswith(b"ELASTIC_INFRA_PROGRESS="))
    return pathlib.Path(progress.decode().partition(":")[2]).parent


def is_free(folder: pathlib.Path) -> bool:
    """Whether the last process that held the lock has ended; any launch on the machine may have deleted the folder."""
    try:
        with open(folder / "owner") as owner:
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except FileNotFoundError:
        pass
    return True


@pytest.mark.launcher
@pytest.mark.timeout(300)
def test_a_killed_launchers_folder_is_deleted_by_the_next(tmp_path: pathlib.Path, launches: list[Launched]) -> None:
    """SIGKILL leaves the folder; a launch elsewhere on the machine deletes it and spares that of one that lives."""
    launches += [Launched(tmp_path, str(BEHAVE), "wait") for _ in range(2)]
    killed, living = (folder_of(launch) for launch in launches)
    launches[0].end()
    while not is_free(killed):
        time.sleep(0.01)
    launches.append(Launched(tmp_path, str(BEHAVE), "finish"))

    assert launches[2].wait() == 0
    assert (killed.exists(), living.is_dir()) == (False, True)
