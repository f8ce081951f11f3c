"""A state as one flat run of bytes, in shared memory or in a file: a header, then every tensor's bytes.

The snapshot in a node's shared memory and the one on disk have the same layout, so that a snapshot is copied between
them as it is. Training waits only while the tensors are copied into the memory, which is made once and reused.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import io
import mmap
import os
import pickle
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import torch

from . import memory_room
from .copying import copy_all

MAGIC: Final = b"EISNAP01"
_PREFIX_BYTES: Final = 32
"""Magic, length of the header, checksum of the header, and a word that stays zero."""
_ALIGNMENT: Final = 64
"""Tensors begin at multiples of a cache line, so that numbers of any type can be read in place."""
_TENSOR: Final = "__tensor__"
_BLOCK_BYTES: Final = 512
"""The unit of ``st_blocks``, whatever the file system's own is."""
_PLAIN: Final[tuple[Any, ...]] = (bool, int, float, complex, str, bytes)
"""The types of numbers and text that a header may have: its parser makes no others."""

Tree = Any
"""Dictionaries, lists, tuples, numbers, text, None and tensors, nested as state_dicts are."""


class DamagedError(ValueError):
    """The bytes are no whole snapshot; the message says what is wrong with them."""


@dataclasses.dataclass(frozen=True)
class Place:
    """The place of one tensor in a snapshot."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    offset: int
    """Offset in bytes from the end of the header's padding."""
    size: int
    """Bytes."""


@dataclasses.dataclass(frozen=True)
class Layout:
    """A state taken apart: its structure, the place of each tensor, and the tensors themselves."""

    structure: Tree
    """The state with a reference in place of each tensor."""
    places: tuple[Place, ...]
    tensors: tuple[torch.Tensor, ...]
    names: tuple[str, ...]
    """Where each tensor is in the state."""
    size: int
    """Bytes of all tensors with their alignment."""


@dataclasses.dataclass(frozen=True)
class Copy:
    """A tensor of a state, and its room in a snapshot."""

    name: str
    source: torch.Tensor
    target: torch.Tensor


@dataclasses.dataclass(frozen=True)
class Draft:
    """A snapshot that is not whole: its tensors are still to be copied."""

    copies: tuple[Copy, ...]
    publish: Callable[[], memoryview]
    """Called once all is copied: the snapshot is whole then. Returns its bytes."""


def layout_of(state: Tree) -> Layout:
    """Take a state apart, without a copy.

    Raises:
        TypeError: a member has values that a snapshot cannot hold (neither numbers, text, tensors nor collections).
    """
    found: list[tuple[str, torch.Tensor]] = []
    structure = _without_tensors(state, found, "state")
    names, tensors = tuple(name for name, _ in found), tuple(tensor for _, tensor in found)
    places, offset = [], 0
    for tensor in tensors:
        size = tensor.numel() * tensor.element_size()
        places.append(Place(tensor.dtype, tuple(tensor.shape), offset, size))
        offset = _aligned(offset + size)
    return Layout(structure, tuple(places), tensors, names, offset)


def write(layout: Layout, target: memoryview, header: bytes) -> int:
    """Copy a state into ``target``; returns the number of bytes written, which ``needed`` gives in advance."""
    copy_all((copy.target, copy.source) for copy in copies_of(layout, target, header))
    return publish(layout, target, header)


def copies_of(layout: Layout, target: memoryview, header: bytes) -> Iterator[Copy]:
    """What is to be copied into ``target`` before it is published."""
    begin = _aligned(_PREFIX_BYTES + len(header))
    for name, place, tensor in zip(layout.names, layout.places, layout.tensors, strict=True):
        if place.size:
            room = torch.frombuffer(target, dtype=torch.uint8, count=place.size, offset=begin + place.offset)
            yield Copy(name, tensor.detach(), room.view(place.dtype).view(place.shape))


def publish(layout: Layout, target: memoryview, header: bytes) -> int:
    """Make a snapshot whole whose tensors are copied; returns the number of its bytes."""
    target[_PREFIX_BYTES : _PREFIX_BYTES + len(header)] = header
    target[8:16] = len(header).to_bytes(8, "little")
    target[16:24] = zlib.crc32(header).to_bytes(8, "little")
    target[24:32] = bytes(8)
    target[:8] = MAGIC
    return needed(layout, header)


def header_of(layout: Layout) -> bytes:
    """The structure and the places, in a format whose parser runs no code."""
    places = [[str(place.dtype).removeprefix("torch."), list(place.shape), place.offset, place.size]
              for place in layout.places]  # fmt: skip
    buffer = io.BytesIO()
    torch.save({"structure": layout.structure, "places": places, "size": layout.size}, buffer)
    return buffer.getvalue()


def needed(layout: Layout, header: bytes) -> int:
    """Bytes that ``write`` fills."""
    return _aligned(_PREFIX_BYTES + len(header)) + layout.size


def bytes_of(step: int, state: Tree) -> memoryview:
    """The snapshot of a step in memory of its own.

    Raises:
        TypeError: the state has values that a snapshot cannot hold.
    """
    layout = layout_of({"step": step, "state": state})
    header = header_of(layout)
    room = memoryview(bytearray(needed(layout, header)))
    write(layout, room, header)
    return room


def read(source: memoryview | mmap.mmap) -> Tree:
    """The state in ``source``, whose tensors share its memory.

    Raises:
        DamagedError: the bytes are no whole snapshot.
    """
    view = memoryview(source)
    prefix = bytes(view[:_PREFIX_BYTES])
    length = _header_bytes(prefix)
    given = _parsed(prefix, bytes(view[_PREFIX_BYTES : _PREFIX_BYTES + length]))
    begin = _aligned(_PREFIX_BYTES + length)
    if len(view) < begin + given["size"]:
        message = f"{begin + given['size']} bytes are expected and {len(view)} are there"
        raise DamagedError(message)
    tensors = [_tensor(view, begin, *place) for place in given["places"]]
    return _with_tensors(given["structure"], tensors)


def state_of(part: Iterable[bytes] | None) -> Tree:
    """The state in the bytes that ``bytes_of`` has made, each tensor in memory of its own.

    So it is in memory once while it is read, and what is not used any more does not stay because something else is.

    Args:
        part: the bytes of a rank's part of a snapshot, in pieces of any length; None where the snapshot has none.

    Raises:
        DamagedError: there are none, or they are no whole snapshot.
    """
    if part is None:
        message = "the part of a rank is missing"
        raise DamagedError(message)
    pieces = _Pieces(part)
    prefix = b"".join(pieces.take(_PREFIX_BYTES))
    given = _parsed(prefix, b"".join(pieces.take(_header_bytes(prefix))))
    begin, tensors = _aligned(pieces.taken), []
    for dtype, shape, offset, size in given["places"]:
        pieces.skip_to(begin + offset)
        room, at = memoryview(bytearray(size)), 0
        for view in pieces.take(size):
            room[at : at + len(view)] = view
            at += len(view)
        tensors.append(_tensor(room, 0, dtype, shape, 0, size))
    pieces.skip_to(begin + given["size"])
    pieces.end()
    return _with_tensors(given["structure"], tensors)["state"]


class _Pieces:
    """Bytes that come in pieces, and are taken in other lengths."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self.taken = 0
        """Number of bytes that were taken or skipped."""
        self._pieces = iter(pieces)
        self._rest = memoryview(b"")
        """What is left of the last piece."""

    def take(self, size: int) -> Iterator[memoryview]:
        """The next bytes, so many in all.

        Raises:
            DamagedError: there are fewer.
        """
        end = self.taken + size
        while self.taken < end:
            self._rest = self._rest or memoryview(next(self._pieces, b""))
            if not self._rest:
                message = f"it ends after {self.taken} bytes"
                raise DamagedError(message)
            view = self._rest[: end - self.taken]
            self._rest = self._rest[len(view) :]
            self.taken += len(view)
            yield view

    def skip_to(self, position: int) -> None:
        """Take all bytes before a position; raises as ``take`` does."""
        for _ in self.take(position - self.taken):
            pass

    def end(self) -> None:
        """Let the pieces come to their end, where a checksum that is wrong is told."""
        for _ in self._pieces:
            pass


def empty(header: bytes) -> Tree:
    """A state of the header's form with uninitialised tensors.

    Raises:
        DamagedError: it is no header.
    """
    given = _unpacked(header)
    tensors = [torch.empty(shape, dtype=getattr(torch, dtype)) for dtype, shape, _, _ in given["places"]]
    return _with_tensors(given["structure"], tensors)


def _header_bytes(prefix: bytes) -> int:
    """The length of a snapshot's header, by its first bytes."""
    if len(prefix) == _PREFIX_BYTES and prefix[:8] == bytes(8):
        message = "its writer ended before it was whole"
        raise DamagedError(message)
    if len(prefix) < _PREFIX_BYTES or prefix[:8] != MAGIC:
        message = "it does not begin as a snapshot does"
        raise DamagedError(message)
    return int.from_bytes(prefix[8:16], "little")


def _parsed(prefix: bytes, header: bytes) -> Tree:
    """What a snapshot's header says."""
    if len(header) != _header_bytes(prefix) or zlib.crc32(header) != int.from_bytes(prefix[16:24], "little"):
        message = "its header is damaged"
        raise DamagedError(message)
    return _unpacked(header)


def _unpacked(header: bytes) -> Any:  # noqa: ANN401  what ``header_of`` has packed
    try:
        return torch.load(io.BytesIO(header), weights_only=True)
    except (pickle.UnpicklingError, RuntimeError) as error:
        message = "its header has other values than numbers, text and collections"
        raise DamagedError(message) from error


def _tensor(view: memoryview, begin: int, dtype: str, shape: list[int], offset: int, size: int) -> torch.Tensor:
    kind: torch.dtype = getattr(torch, dtype)
    if not size:
        return torch.empty(shape, dtype=kind)
    flat = torch.frombuffer(view, dtype=torch.uint8, count=size, offset=begin + offset)
    return flat.view(kind).view(shape)


def _without_tensors(value: Tree, found: list[tuple[str, torch.Tensor]], path: str) -> Tree:
    if isinstance(value, torch.Tensor):
        if type(value) not in {torch.Tensor, torch.nn.Parameter, torch.nn.Buffer}:
            message = f"{path} is a {type(value).__name__}. A snapshot holds plain tensors, and members' DTensors."
            raise TypeError(message)
        found.append((path, value))
        return {_TENSOR: len(found) - 1}
    if isinstance(value, Mapping):
        return {_key(name, path): _without_tensors(item, found, f"{path}.{name}") for name, item in value.items()}
    if isinstance(value, list | tuple):
        items = [_without_tensors(item, found, f"{path}[{index}]") for index, item in enumerate(value)]
        return items if isinstance(value, list) else tuple(items)
    return _plain(value, path)


def _key(name: Tree, path: str) -> Tree:
    if isinstance(name, tuple):
        return tuple(_key(item, path) for item in name)
    return _plain(name, f"A name in {path}")


def _plain(value: Tree, path: str) -> Tree:
    """A number or text as one of Python's own types, which NumPy's numbers and members of an IntEnum are not."""
    if type(value).__module__ == "numpy" and hasattr(value, "item") and not getattr(value, "shape", ()):
        value = value.item()
    if value is None or type(value) in _PLAIN:
        return value
    for base in _PLAIN:
        if isinstance(value, base):
            return base(*base.__getnewargs__(value))
    message = f"{path} is a {type(value).__name__}. Give it a state_dict, or keep it out of the state."
    raise TypeError(message)


def _with_tensors(value: Tree, tensors: list[torch.Tensor]) -> Tree:
    if isinstance(value, dict):
        if value.keys() == {_TENSOR}:
            return tensors[value[_TENSOR]]
        return {name: _with_tensors(item, tensors) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_with_tensors(item, tensors) for item in value)
    return value


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGNMENT) * _ALIGNMENT


class SharedMemory:
    """Two snapshots under one name in the node's memory, written in turn, so that one is always whole.

    The files outlive the worker, and the next worker on this node reads them. They are removed with the launcher's
    folder.

    Args:
        folder: the folder of the files.
        name: their name without the turn.
        warn: takes a line for each snapshot that is skipped because it is not whole; None: no lines.
    """

    def __init__(self, folder: str, name: str, warn: Callable[[str], None] | None = None) -> None:
        self._warn = warn
        self._paths = tuple(str(Path(folder) / f"{name}.{turn}") for turn in (0, 1))
        self._maps: list[mmap.mmap | None] = [None, None]
        self._turn: int | None = None
        """Which of the two holds the last snapshot; None before the first snapshot of this process."""

    def store(self, step: int, state: Tree) -> memoryview:
        """Copy a state in; returns the bytes of the snapshot, valid until the second ``store`` after this one.

        Raises:
            OSError: the memory has no space left.
            TypeError: the state has values that a snapshot cannot hold.
        """
        draft = self.draft(step, state)
        copy_all((copy.target, copy.source) for copy in draft.copies)
        return draft.publish()

    def draft(self, step: int, state: Tree) -> Draft:
        """Begin a snapshot, which is whole once the caller has copied its tensors and published it.

        One that is not published leaves its room to the next one, so that the newest whole snapshot stays.

        Raises:
            OSError: the memory has no space left.
            TypeError: the state has values that a snapshot cannot hold.
        """
        layout = layout_of({"step": step, "state": state})
        header = header_of(layout)
        size = needed(layout, header)
        turn = self._next_turn()
        room = memoryview(self._room(turn, size))
        room[:8] = bytes(8)  # the snapshot is not whole while it is written

        def finish() -> memoryview:
            written = publish(layout, room, header)
            self._turn = turn
            return room[:written]

        return Draft(tuple(copies_of(layout, room, header)), finish)

    def receive(self, size: int) -> tuple[memoryview, Callable[[], None]]:
        """Room for the bytes of a snapshot from elsewhere, and what makes it whole once all but its magic is there.

        Raises:
            OSError: the memory has no space left.
        """
        turn = self._next_turn()
        room = memoryview(self._room(turn, size))[:size]
        room[: len(MAGIC)] = bytes(len(MAGIC))

        def finish() -> None:
            room[: len(MAGIC)] = MAGIC
            self._turn = turn

        return room, finish

    def spare(self, is_used: Callable[[int, Tree], bool]) -> None:
        """Have the next snapshot overwrite another one than that from which training goes on.

        Args:
            is_used: whether training goes on from a snapshot with this step and state.
        """
        for turn in (0, 1):
            snapshot = self._read(turn)
            if snapshot is not None and is_used(*snapshot):
                self._turn = turn

    def newest(self) -> tuple[int, Tree] | None:
        """The step and the state of the newest whole snapshot under this name; None without one."""
        return max(self.whole(), key=lambda snapshot: snapshot[0], default=None)

    def copy_at(self, step: int) -> Tree | None:
        """A copy of the state of a step, for a reader while the writer lives.

        None where the memory does not hold the step, or the writer overtook the copying: it takes the magic away before
        it changes anything else, and the headers of two steps differ.
        """
        for path in self._paths:
            with contextlib.suppress(OSError, DamagedError):
                copy = Path(path).read_bytes()
                given = read(memoryview(bytearray(copy)))
                if given["step"] == step and _prefix_of(path) == copy[:_PREFIX_BYTES]:
                    return given["state"]
        return None

    def whole(self) -> list[tuple[int, Tree]]:
        """Step and state of each whole snapshot under this name."""
        return [snapshot for turn in (0, 1) if (snapshot := self._read(turn))]

    def _next_turn(self) -> int:
        return (self._newest_turn() if self._turn is None else self._turn) ^ 1

    def _newest_turn(self) -> int:
        """Which of the two a former worker wrote last, so that this worker begins with the other one."""
        found = [(snapshot[0], turn) for turn in (0, 1) if (snapshot := self._read(turn))]
        return max(found)[1] if found else 1

    def _read(self, turn: int) -> tuple[int, Tree] | None:
        try:
            return _read_file(self._paths[turn])
        except DamagedError as error:
            if self._warn is not None:
                self._warn(f"The snapshot in {self._paths[turn]} is skipped: {error}.")
            return None

    def _room(self, turn: int, size: int) -> mmap.mmap:
        kept = self._maps[turn]
        if kept is not None and len(kept) >= size:
            return kept
        self._claim(size)
        descriptor = os.open(self._paths[turn], os.O_RDWR | os.O_CLOEXEC)
        try:
            length = os.fstat(descriptor).st_size
            # With a full memory this call fails, and not the copy with SIGBUS.
            os.posix_fallocate(descriptor, 0, length)
            self._maps[turn] = made = mmap.mmap(descriptor, length)
        finally:
            os.close(descriptor)
        return made

    def _claim(self, size: int) -> None:
        """Make both files so long: from then on their room counts as taken, although allocating it takes seconds more.

        The workers of a node store at the same time, and would all find the same room free.

        Raises:
            OSError: not both turns fit, so that a snapshot that cannot have a successor takes no room.
        """
        folder = Path(self._paths[0]).parent
        with _locked(folder):
            own = {path: _extent_of(path) for path in self._paths}
            missing = sum(max(0, max(size, length) - allocated) for length, allocated in own.values())
            others = (_extent_of(path) for path in folder.iterdir() if str(path) not in own)
            # Before the room is asked for: what is allocated in between counts twice, and not never.
            claimed = sum(max(0, length - allocated) for length, allocated in others)
            volume = os.statvfs(folder)
            rooms = {str(folder): volume.f_bavail * volume.f_frsize, "the memory limit": memory_room.bytes_left()}
            for name, room in rooms.items():
                if room is not None and room < claimed + missing:
                    left = _in_mib(max(0, room - claimed))
                    message = f"two copies need {_in_mib(missing)}, and {name} leaves {left}"
                    raise OSError(errno.ENOMEM, message)
            for path, (length, _) in own.items():
                Path(path).touch(0o600)
                os.truncate(path, max(size, length))


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Be the only thread and process that is in such a block for this folder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # a process that was forked meanwhile has the descriptor open
        os.close(descriptor)


def _extent_of(path: str | Path) -> tuple[int, int]:
    """Bytes of a file, and how many of them are allocated; none of a file that is not there."""
    try:
        found = Path(path).stat()
    except FileNotFoundError:
        return 0, 0
    return found.st_size, found.st_blocks * _BLOCK_BYTES


def _in_mib(size: int) -> str:
    return f"{size / 2**20:,.1f} MiB"


def _prefix_of(path: str) -> bytes:
    with Path(path).open("rb") as file:
        return file.read(_PREFIX_BYTES)


def _read_file(path: str) -> tuple[int, Tree] | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        # Not asked of the mapping, which would allocate what was only claimed, and end the worker at a full memory.
        if not any(os.pread(descriptor, _PREFIX_BYTES, 0)):  # no snapshot was ever whole in it
            return None
        mapped = mmap.mmap(descriptor, 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    given = read(mapped)
    return given["step"], given["state"]


def tensors_in(state: Tree) -> Iterator[torch.Tensor]:
    """Every tensor of a state, in the order of the layout."""
    yield from layout_of(state).tensors
