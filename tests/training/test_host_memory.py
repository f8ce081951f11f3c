"""A state comes out of memory as it went in, or not at all."""

from __future__ import annotations

import contextlib
import enum
import errno
import io
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from elastic_infra.training import host_memory, memory_room
from elastic_infra.training.host_memory import DamagedError, SharedMemory

STATE: dict[str, Any] = {
    "numbers": [1, 2.5, 1j, True, None, "text", b"bytes", (3, 4)],
    "nested": {0: {"weight": torch.arange(6.0).reshape(2, 3)}, "empty": torch.empty(0, 4)},
    "halves": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
    "scalar": torch.tensor(7),
    "transposed": torch.arange(12).reshape(3, 4).T,
}


def written(state: Any) -> bytearray:
    """The bytes of a state's snapshot."""
    layout = host_memory.layout_of(state)
    header = host_memory.header_of(layout)
    room = bytearray(host_memory.needed(layout, header))
    assert host_memory.write(layout, memoryview(room), header) == len(room)
    return room


def assert_same(left: Any, right: Any) -> None:
    """Equal values, and tensors of equal type."""
    if isinstance(left, torch.Tensor):
        assert left.dtype == right.dtype
        assert torch.equal(left, right)
    elif isinstance(left, dict):
        assert left.keys() == right.keys()
        for name in left:
            assert_same(left[name], right[name])
    else:
        assert left == right


def test_round_trip() -> None:
    """Types, shapes and values of everything that a state_dict holds."""
    assert_same(STATE, host_memory.read(memoryview(written(STATE))))


class Stage(enum.IntEnum):
    """A number with a name."""

    LATE = 2


class Kind(str, enum.Enum):
    """A text with a name, which is not what ``str`` makes of it."""

    BEST = "best"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (np.float64(0.5), 0.5),
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.complex128(1j), 1j),
        (np.bool_(True), True),  # noqa: FBT003  NumPy takes no name
        (np.str_("text"), "text"),
        (Stage.LATE, 2),
        (Kind.BEST, "best"),
    ],
)
def test_numbers_and_text_come_back_as_python_s_own(given: Any, expected: Any) -> None:
    """As values and as names: the parser of a header makes no others, and the snapshot would be lost."""
    read = host_memory.read(memoryview(written({"value": [given], "names": {("at", given): 1}})))

    assert read == {"value": [expected], "names": {("at", expected): 1}}
    assert type(read["value"][0]) is type(expected)


def test_a_header_with_other_values_is_damage() -> None:
    """So that this one snapshot is skipped, and training goes on from another one."""
    layout = host_memory.layout_of({})
    buffer = io.BytesIO()
    torch.save({"structure": Stage.LATE, "places": [], "size": 0}, buffer)
    room = bytearray(host_memory.needed(layout, buffer.getvalue()))
    host_memory.publish(layout, memoryview(room), buffer.getvalue())

    with pytest.raises(DamagedError, match="other values than numbers"):
        host_memory.read(memoryview(room))
    with pytest.raises(DamagedError, match="other values than numbers"):
        host_memory.empty(buffer.getvalue())


@pytest.mark.parametrize("damage", ["cut", "magic", "header"])
def test_damage_is_seen(damage: str) -> None:
    """A snapshot that was not written to its end, or whose structure changed, is not read."""
    room = written(STATE)
    if damage == "cut":
        del room[-1]
    else:
        room[{"magic": 0, "header": 40}[damage]] ^= 1

    with pytest.raises(DamagedError):
        host_memory.read(memoryview(room))


@pytest.mark.parametrize("length", [1, 7, 1 << 20])
def test_a_part_is_read_from_pieces_of_any_length(length: int) -> None:
    """Each tensor has memory of its own: a small one that stays does not keep all others."""
    part = bytes(host_memory.bytes_of(3, STATE))
    found = host_memory.state_of(part[at : at + length] for at in range(0, len(part), length))

    assert_same(STATE, found)
    for tensor in host_memory.tensors_in(found):
        assert tensor.untyped_storage().nbytes() == tensor.nbytes


@pytest.mark.parametrize("length", [0, 20, 40, -1])
def test_a_part_that_ends_early_is_damaged(length: int) -> None:
    """In its first bytes, in its header, and in its tensors."""
    with pytest.raises(DamagedError):
        host_memory.state_of([bytes(host_memory.bytes_of(3, STATE))[:length]])


def test_what_a_snapshot_cannot_hold_is_named() -> None:
    """The message says where the value is, and what to do."""
    with pytest.raises(TypeError, match=r"state\.a\[1\] is a set\. Give it a state_dict"):
        host_memory.layout_of({"a": [1, {2}]})
    with pytest.raises(TypeError, match=r"A name in state\.a is a dtype\."):
        host_memory.layout_of({"a": {torch.float32: 1}})


def test_the_newest_whole_snapshot_is_read(tmp_path: Path) -> None:
    """Two turns: while one is written, or when its writer dies, the other stands; another worker reads both."""
    memory = SharedMemory(str(tmp_path), "state-0")
    memory.store(1, {"weight": torch.tensor([1.0])})
    memory.store(2, {"weight": torch.tensor([2.0])})
    third = memory.store(3, {"weight": torch.tensor([3.0])})

    assert SharedMemory(str(tmp_path), "state-0").newest() == (3, {"weight": torch.tensor([3.0])})
    third[:8] = bytes(8)  # as a writer leaves it that is killed in the copy
    warnings: list[str] = []
    assert SharedMemory(str(tmp_path), "state-0", warnings.append).newest() == (2, {"weight": torch.tensor([2.0])})
    assert warnings == [f"The snapshot in {tmp_path}/state-0.0 is skipped: its writer ended before it was whole."]


def test_a_new_worker_does_not_overwrite_the_newest(tmp_path: Path) -> None:
    """It is ended in its first copy: what the worker before had kept stands."""
    SharedMemory(str(tmp_path), "state-0").store(1, {"weight": torch.tensor([1.0])})
    second = SharedMemory(str(tmp_path), "state-0").store(2, {"weight": torch.tensor([2.0])})
    second[:8] = bytes(8)

    assert SharedMemory(str(tmp_path), "state-0").newest() == (1, {"weight": torch.tensor([1.0])})


def test_a_node_without_snapshots_has_none(tmp_path: Path) -> None:
    """The memory of a fresh node gives None."""
    assert SharedMemory(str(tmp_path), "state-0").newest() is None


def test_a_state_that_grows_gets_more_room(tmp_path: Path) -> None:
    """Optimizers have no state before their first step."""
    memory = SharedMemory(str(tmp_path), "state-0")
    for step in range(1, 5):
        memory.store(step, {"weight": torch.full((step * 1000,), float(step))})
    newest = memory.newest()

    assert newest is not None
    assert newest[0] == 4
    assert torch.equal(newest[1]["weight"], torch.full((4000,), 4.0))


def test_a_copy_is_whole_or_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a writer that lives: one that overtakes the reader between its two looks leaves None and no mixture."""
    memory = SharedMemory(str(tmp_path), "generators-1")
    memory.store(1, {"numbers": torch.full((4000,), 1.0)})
    memory.store(2, {"numbers": torch.full((4000,), 2.0)})

    assert_same(SharedMemory(str(tmp_path), "generators-1").copy_at(1), {"numbers": torch.full((4000,), 1.0)})
    assert SharedMemory(str(tmp_path), "generators-1").copy_at(3) is None

    look = Path.read_bytes

    def overtaken(path: Path) -> bytes:
        before = look(path)
        memory.store(3, {"numbers": torch.full((4000,), 3.0)})
        return before[:500] + look(path)[500:]

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", overtaken)
        assert SharedMemory(str(tmp_path), "generators-1").copy_at(1) is None


def test_both_turns_must_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the memory limit the kernel would kill the process: nothing is written, and the error has the sizes."""
    monkeypatch.setattr(memory_room, "bytes_left", lambda: 3 << 20)
    memory = SharedMemory(str(tmp_path), "state")
    memory.store(1, {"weight": torch.zeros(1 << 18)})
    memory.store(2, {"weight": torch.zeros(1 << 18)})
    monkeypatch.setattr(memory_room, "bytes_left", lambda: 0)
    memory.store(3, {"weight": torch.zeros(1 << 18)})  # in the room that it has

    with pytest.raises(OSError, match=r"two copies need 2\.0 MiB, and the memory limit leaves 0\.0 MiB") as raised:
        SharedMemory(str(tmp_path), "other").store(1, {"weight": torch.zeros(1 << 18)})
    assert raised.value.errno == errno.ENOMEM
    assert not list(tmp_path.glob("other*"))


def limited(folder: Path, limit: int) -> Callable[[], int]:
    """A memory limit that counts what the files of a folder have allocated, as the kernel does."""
    return lambda: limit - sum(file.stat().st_blocks * 512 for file in folder.iterdir())


def test_the_second_turn_is_reserved_with_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another worker of the node finds no room in what the first one has yet to allocate."""
    monkeypatch.setattr(memory_room, "bytes_left", limited(tmp_path, 7 << 19))
    first = SharedMemory(str(tmp_path), "state")
    first.store(1, {"weight": torch.zeros(1 << 18)})

    with pytest.raises(OSError, match=r"two copies need 2\.0 MiB, and the memory limit leaves 1\.5 MiB"):
        SharedMemory(str(tmp_path), "generators-1").store(1, {"weight": torch.zeros(1 << 18)})
    first.store(2, {"weight": torch.zeros(1 << 18)})
    assert {step for step, _ in first.whole()} == {1, 2}


def test_of_two_workers_that_ask_at_once_one_gets_the_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a worker's before another one asks how much is left, although neither has allocated any."""
    left, asked = limited(tmp_path, 7 << 19), threading.Barrier(2)

    def bytes_left() -> int:
        found = left()
        with contextlib.suppress(threading.BrokenBarrierError):
            asked.wait(0.5)
        return found

    monkeypatch.setattr(memory_room, "bytes_left", bytes_left)

    def store(name: str) -> bool:
        try:
            SharedMemory(str(tmp_path), name).store(1, {"weight": torch.zeros(1 << 18)})
        except OSError:
            return False
        return True

    with ThreadPoolExecutor() as threads:
        assert sorted(threads.map(store, ("first", "second"))) == [False, True]
    assert left() >= 0


def test_a_turn_that_was_never_written_is_no_damage(tmp_path: Path) -> None:
    """A worker that ended after its first snapshot leaves the room for the second: no line speaks of it."""
    SharedMemory(str(tmp_path), "state").store(1, {"weight": torch.tensor([1.0])})
    warnings: list[str] = []

    assert SharedMemory(str(tmp_path), "state", warnings.append).newest() == (1, {"weight": torch.tensor([1.0])})
    assert warnings == []


def test_room_that_was_claimed_is_allocated_to_its_end(tmp_path: Path) -> None:
    """Also for a smaller state: one that grows again would else end the worker at a full memory."""
    memory = SharedMemory(str(tmp_path), "state")
    memory.store(1, {"weight": torch.zeros(1 << 18)})
    memory.store(2, {"weight": torch.zeros(1)})

    for file in tmp_path.iterdir():
        assert file.stat().st_blocks * 512 >= file.stat().st_size > 1 << 20
