"""The room that a container's memory limits leave, as the kernel's files say."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastic_infra.training.memory_room import bytes_left

GIB = 1 << 30


def group(folder: Path, names: tuple[str, str], limit: object, used: int, stat: str) -> None:
    """The files of one cgroup."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(stat)


V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes")
V2 = ("memory.max", "memory.current")


def test_what_is_used_and_a_twentieth_are_not_left(tmp_path: Path) -> None:
    """Bytes of files in the page cache are left, since the kernel drops them first; those of /dev/shm are not."""
    (tmp_path / "own").write_text("0::/\n")
    group(tmp_path / "g", V2, 20 * GIB, 12 * GIB, f"shmem {5 * GIB}\ninactive_file {2 * GIB}\nactive_file {GIB}\n")

    assert bytes_left(tmp_path / "g", tmp_path / "own") == 10 * GIB


def test_the_narrowest_limit_above_counts(tmp_path: Path) -> None:
    """A pod's limit binds its containers; "max" is no limit."""
    (tmp_path / "own").write_text("0::/pod/container\n")
    group(tmp_path / "g" / "pod", V2, 10 * GIB, 8 * GIB, "")
    group(tmp_path / "g" / "pod" / "container", V2, "max", 7 * GIB, "")

    assert bytes_left(tmp_path / "g", tmp_path / "own") == 10 * GIB - 10 * GIB // 20 - 8 * GIB


def test_the_first_version_of_cgroups(tmp_path: Path) -> None:
    """There the kernel names the group by its path on the machine, of which the container sees only the top."""
    (tmp_path / "own").write_text("12:cpu,cpuacct:/kubepods/a\n9:memory:/kubepods/a\n0::/\n")
    group(tmp_path / "g" / "memory", V1, 10 * GIB, 4 * GIB, f"total_inactive_file {GIB}\n")

    assert bytes_left(tmp_path / "g", tmp_path / "own") == 10 * GIB - 10 * GIB // 20 - 3 * GIB


@pytest.mark.parametrize("own", ["0::/\n", "", "nonsense"])
def test_without_a_limit_nothing_is_known(tmp_path: Path, own: str) -> None:
    """No files, or files that cannot be read: only the volume of the memory bounds the snapshots."""
    (tmp_path / "own").write_text(own)

    assert bytes_left(tmp_path / "g", tmp_path / "own") is None
    assert bytes_left(tmp_path / "g", tmp_path / "absent") is None


def test_on_this_machine() -> None:
    """The real files are read."""
    left = bytes_left()

    assert left is None or left >= 0
