"""How a testbed is found alive, dead or replaced by another process; no part of Kubernetes runs here."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.cluster.testbed import lifecycle, state
from tests.cluster.testbed.__main__ import main


def test_no_testbed_is_there(tmp_path: Path) -> None:
    """`status` says so and `down` is no error."""
    text, whole = lifecycle.status(tmp_path / "none")
    lifecycle.down(tmp_path / "none", lambda _: None)

    assert "No cluster" in text
    assert not whole


def test_a_dead_testbed_is_told_from_a_living_one(tmp_path: Path) -> None:
    """A process id counts only together with its start time, for ids are used again."""
    with subprocess.Popen(["sleep", "60"]) as process:
        start = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19]
        (tmp_path / lifecycle.HOLDER).write_text(f"{process.pid} {start}")
        alive = lifecycle.holder(tmp_path)
        (tmp_path / lifecycle.HOLDER).write_text(f"{process.pid} {int(start) - 1}")
        other = lifecycle.holder(tmp_path)
        process.kill()

    assert alive == process.pid
    assert other is None


def test_a_dead_testbed_is_cleared_away(tmp_path: Path) -> None:
    """`down` removes the folder of a testbed whose process is gone."""
    root = tmp_path / "testbed"
    (root / "logs").mkdir(parents=True)
    (root / lifecycle.HOLDER).write_text("1 0")
    text, _ = lifecycle.status(root)
    lifecycle.down(root, lambda _: None)

    assert "is dead" in text
    assert not root.exists()


def test_a_testbed_cannot_live_in_a_folder_that_it_covers() -> None:
    """The testbed mounts over /run, and would lose its own folder."""
    with pytest.raises(lifecycle.BedError, match=r"covers /run|needs root on Linux"):
        lifecycle.up(Path("/run/elastic-infra-testbed"), lambda _: None)


def test_the_state_survives_a_round_trip(tmp_path: Path) -> None:
    """What the supervisor writes is what others read; an ended part makes the testbed less than whole."""
    ready = state.State("starting").with_part(state.Part("etcd", 7, 1.5)).with_phase("ready", 9.5, "")
    state.write(ready, state.path(tmp_path))

    assert state.read(tmp_path) == ready
    assert ready.is_whole
    assert not ready.with_end(7, -9).is_whole


def test_down_clears_what_side_by_side_tests_left(tmp_path: Path) -> None:
    """Each worker has a folder of its own, beside the one that was asked for; another testbed's stays."""
    asked, other = tmp_path / "bed", tmp_path / "bed-2"
    ours = [lifecycle.own_folder(asked, worker) for worker in ("gw0", "gw1", "gw2")]
    for folder in (*ours, other):
        folder.mkdir()

    assert main(["down", "--dir", str(asked)]) == 0
    assert [*tmp_path.iterdir()] == [other]
    assert ours[0] == asked
