"""The kernel's view of processes: their groups and states, and how a process is started.

Thin functions over ``/proc``, ``fork`` and ``prctl``, without decisions.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import os
import re
import resource
import signal
from collections.abc import Callable, Iterator
from typing import Final, NoReturn

from . import signals

_PF_EXITING: Final = 0x4
"""Among a task's flags in ``/proc/PID/stat`` (linux/sched.h)."""
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_ACCELERATOR: Final = re.compile(
    r"/dev/(nvidia\d+|kfd|dri/renderD\d+|accel/?\w*\d+|neuron\d+|davinci\d+|vfio/\d+|hl\d+)"
)
"""Files of NVIDIA, AMD, Intel, TPU, Neuron, Ascend and Gaudi devices, without files that only manage devices."""


@dataclasses.dataclass(frozen=True)
class Process:
    """One line of the process table."""

    pid: int
    parent: int
    group: int
    session: int
    state: str
    """One letter: R running, S sleeping, D uninterruptible, T stopped, Z zombie."""
    cpu_seconds: float = 0.0
    """CPU time used so far, in user and kernel mode."""
    started: int = 0
    """Clock ticks from the machine's start to the process's: together with the pid they identify a process, since the
    kernel reuses pids."""
    is_ending: bool = False
    """Whether the process is on its way out: it runs no code of its own, and its environment cannot be read."""

    @property
    def identity(self) -> tuple[int, int]:
        """Pid and start time: unlike the pid alone, no two processes share both."""
        return self.pid, self.started


def scan(root: str = "/proc") -> tuple[Process, ...]:
    """Every process that is visible to this process."""
    return tuple(_read_all(root))


def read(pid: int, root: str = "/proc") -> Process | None:
    """One process, or None when the process is gone."""
    try:
        with open(f"{root}/{pid}/stat", encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError:
        return None
    state, parent, group, session, *rest = text[text.rindex(")") + 2 :].split()
    ticks = int(rest[7]) + int(rest[8])
    seconds = ticks / os.sysconf("SC_CLK_TCK")
    is_ending = bool(int(rest[2]) & _PF_EXITING)
    return Process(pid, int(parent), int(group), int(session), state, seconds, int(rest[15]), is_ending)


def environ(pid: int, root: str = "/proc") -> frozenset[bytes]:
    """``NAME=value`` of every variable that a process was executed with; empty where that cannot be read."""
    try:
        with open(f"{root}/{pid}/environ", "rb") as file:
            return frozenset(file.read().split(b"\0"))
    except OSError:
        return frozenset()


def holds_accelerator(pid: int, root: str = "/proc") -> bool:
    """Whether a process has the device file of an accelerator open."""
    try:
        names = os.listdir(f"{root}/{pid}/fd")
    except OSError:
        return False
    return any(_ACCELERATOR.fullmatch(_link(f"{root}/{pid}/fd/{name}")) for name in names)


def catches(pid: int, number: int, root: str = "/proc") -> bool:
    """Whether the process has a handler for a signal."""
    try:
        with open(f"{root}/{pid}/status", encoding="utf-8", errors="replace") as file:
            masks = [line.split()[1] for line in file if line.startswith("SigCgt:")]
    except OSError:
        return False
    return bool(masks) and bool(int(masks[0], 16) >> (number - 1) & 1)


def resident_megabytes(pid: int, root: str = "/proc") -> int:
    """Memory of a process in MB, shared pages counted by share; 0 when the process is gone."""
    try:
        with open(f"{root}/{pid}/smaps_rollup", encoding="utf-8") as file:
            sizes = [int(line.split()[1]) for line in file if line.startswith("Pss:")]
    except OSError:
        return 0
    return sum(sizes) // 1000


def become_subreaper() -> None:
    """Adopt every orphan below this process, as PID 1 does.

    Raises:
        OSError: the kernel refused.
    """
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends; exit now if the parent has ended already."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)


def fork(child: Callable[[], object]) -> int:
    """Run ``child`` in a new process and session; the process dies with this one. Returns its pid."""
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        signals.restore_defaults()
        die_with_parent(parent)
        child()
    except SystemExit as end:
        os._exit(end.code if isinstance(end.code, int) else 0)
    except BaseException as error:  # noqa: BLE001  the child must never return into its parent's code
        with contextlib.suppress(OSError):
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
        os._exit(1)
    os._exit(0)


def start(argv: tuple[str, ...], env: dict[str, str], stdout: str | None, stderr: str | None) -> int:
    """Start a program in a new session; returns its pid.

    Raises:
        OSError: a log file cannot be opened or the program cannot be executed.
    """
    reader, writer = os.pipe2(os.O_CLOEXEC)

    def child() -> NoReturn:
        try:
            redirect(stdout, stderr)
            os.execvpe(argv[0], argv, env)
        except OSError as error:
            os.write(writer, f"{error.errno}:{error.filename or argv[0]}".encode())
            os._exit(127)

    pid = fork(child)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        failure = pipe.read().decode()
    if failure:
        os.waitpid(pid, 0)
        number, _, name = failure.partition(":")
        raise OSError(int(number), os.strerror(int(number)), name)
    return pid


def redirect(stdout: str | None, stderr: str | None) -> None:
    """Point this process's streams at files, appending; None leaves a stream alone."""
    for target, path in ((1, stdout), (2, stderr)):
        if path is not None:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.dup2(descriptor, target)
            os.close(descriptor)


def send(pid: int, number: int) -> None:
    """Signal one process, if it still exists."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def send_to_main_thread(pid: int, number: int) -> None:
    """Signal the main thread of one process, so that this thread runs the handler before anything else.

    A signal to a stopped process as a whole is taken by any of its threads, and the others run on meanwhile.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "tgkill"):
        libc.tgkill(pid, pid, number)
    else:
        send(pid, number)


def without_core(pid: int) -> None:
    """Keep an abort of this process from writing a core file: a file for each rank would fill the disk."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _read_all(root: str) -> Iterator[Process]:
    for name in os.listdir(root):
        if name.isdecimal() and (process := read(int(name), root)) is not None:
            yield process


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
