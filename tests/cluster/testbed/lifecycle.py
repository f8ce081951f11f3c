"""Brings a testbed up, takes it down and says how it is, seen from outside.

A testbed is one process (`unshare`), its namespaces and one folder. What `up` finds half dead it clears away.
"""

from __future__ import annotations

import os
import secrets
import select
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from tests.cluster.testbed import cgroups, programs, sandbox, state
from tests.cluster.testbed.component import run
from tests.cluster.testbed.layout import Testbed

REPOSITORY = Path(__file__).resolve().parents[3]
START_SECONDS = 240
STOP_SECONDS = 30
HOLDER = "holder"
"""File with the process id and start time of the process that holds the testbed."""


FIRST_WORKER = "gw0"
"""Of pytest-xdist, as it calls them."""


class BedError(Exception):
    """The testbed cannot be brought up or taken down; the message says why and what to do."""


class MachineError(BedError):
    """This machine lacks what a testbed needs."""


def own_folder(root: Path, worker: str) -> Path:
    """The testbed's folder of one of pytest-xdist's workers; the first has the one that was asked for."""
    return root if worker == FIRST_WORKER else root.with_name(f"{root.name}-{worker}")


def folders(root: Path) -> list[Path]:
    """The folder that was asked for, and those of further workers that are there."""
    return [root, *sorted(root.parent.glob(own_folder(root, "gw*").name))]


def up(root: Path, say: Callable[[str], None]) -> Testbed:
    """Returns a running testbed: the one that is there, else a new one.

    Raises:
        BedError: something is missing or a part did not start.
    """
    current = state.read(root) if holder(root) else None
    if current and current.is_whole:
        say(f"The cluster in {root} is up already.")
        return Testbed.read(root)
    down(root, say)
    _check_machine(root)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        testbed = _lay_out(root, listener.getsockname()[1])
        _launch(root, listener.fileno())
    _await_ready(root, say)
    return testbed


def down(root: Path, say: Callable[[str], None]) -> None:
    """Ends every process of the testbed and removes what it left; a testbed that is not there is no error."""
    if not root.exists():
        return
    pid = holder(root)
    if pid is not None:
        say(f"Stopping the cluster in {root}.")
        _end(pid)
    _remove(root)


def status(root: Path) -> tuple[str, bool]:
    """A table of the parts, and whether the testbed is whole."""
    if holder(root) is None:
        return (f"No cluster in {root}." if not root.exists() else f"The cluster in {root} is dead."), False
    current = state.read(root) or state.State("starting")
    lines = [f"The cluster in {root} is {current.phase} ({current.seconds} s to start)."]
    lines += [_line(part) for part in current.parts]
    lines.append(f"KUBECONFIG={Testbed.read(root).kubeconfig}")
    return "\n".join(lines), current.is_whole


def holder(root: Path) -> int | None:
    """The living process that holds the testbed; None when it is gone or its id belongs to another process now."""
    try:
        pid, start = (root / HOLDER).read_text().split()
    except (FileNotFoundError, ValueError):
        return None
    return int(pid) if _start_time(int(pid)) == start else None


def first_process(root: Path) -> int | None:
    """The supervisor's process id outside the testbed: the door to its namespaces."""
    pid = holder(root)
    return next(_children(pid), None) if pid else None


def send(root: Path, part: str, number: signal.Signals) -> None:
    """Sends a signal to the process of one part of a running testbed; tests stop and continue parts this way."""
    current = state.read(root)
    pids = {p.name: p.pid for p in current.parts} if current else {}
    inside(root, "kill", f"-{number.value}", str(pids[part]))


def inside(root: Path, *command: str) -> str:
    """Runs a command in the namespaces of a running testbed and returns its output."""
    return run("nsenter", "--target", str(first_process(root)), "--mount", "--net", "--pid", *command)


def _line(part: state.Part) -> str:
    life = "runs" if part.exit is None else f"ended with {part.exit}"
    return f"  {part.name:20} {life if part.pid else 'done':12} ready after {part.seconds:4.1f} s"


def _check_machine(root: Path) -> None:
    if sys.platform != "linux" or os.geteuid() != 0:
        message = "The cluster needs root on Linux. Use --kubeconfig to test on a cluster of your own."
        raise MachineError(message)
    covered = [folder for folder in sandbox.HIDDEN.values() if root.is_relative_to(folder)]
    if covered:
        message = f"The cluster covers {covered[0]} and cannot live there. Choose another --dir."
        raise BedError(message)


def _lay_out(root: Path, port: int) -> Testbed:
    prefixes = (sys.base_prefix, sys.prefix)
    try:
        found, crd = programs.find(), programs.operator_crd()
    except programs.MissingProgramError as error:
        raise MachineError(str(error)) from error
    testbed = Testbed(
        root=str(root),
        port=port,
        programs=found,
        token=secrets.token_hex(16),
        python=tuple(dict.fromkeys(prefix for prefix in prefixes if not Path(prefix).is_relative_to("/usr"))),
        operator_crd=crd,
    )
    root.mkdir(mode=0o755, parents=True)
    testbed.path("logs").mkdir()
    testbed.path("volumes").mkdir()
    testbed.write()
    return testbed


def _launch(root: Path, listener: int) -> None:
    supervisor = (sys.executable, "-m", "tests.cluster.testbed.supervisor", str(root), str(listener))
    log = str(root / "logs" / "supervisor.log")
    os.set_inheritable(listener, True)  # noqa: FBT003  # the call takes no name
    pid = os.posix_spawnp(
        sandbox.UNSHARE[0],
        (*sandbox.UNSHARE, *supervisor),
        {**os.environ, "PYTHONPATH": str(REPOSITORY)},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    (root / HOLDER).write_text(f"{pid} {_start_time(pid)}")


def _await_ready(root: Path, say: Callable[[str], None]) -> None:
    deadline = time.monotonic() + START_SECONDS
    told = 0
    while time.monotonic() < deadline:
        current = state.read(root) or state.State("starting")
        for part in current.parts[told:]:
            say(f"  {part.name} ready after {part.seconds} s")
        told = len(current.parts)
        if current.phase == "ready":
            say(f"The cluster is up after {current.seconds} s.")
            return
        if current.phase == "failed" or holder(root) is None:
            break
        time.sleep(0.2)
    current = state.read(root) or state.State("failed")
    log = root / "logs" / "supervisor.log"
    cause = current.error or f"the supervisor ended:\n{log.read_text()[-2000:]}"
    message = f"The cluster in {root} did not start: {cause}\nIts folder is kept until `down`."
    raise BedError(message)


def _end(pid: int) -> None:
    """Kills the first process inside, with which the kernel ends all others, and waits for that."""
    for victim in (*_children(pid), pid):
        try:
            descriptor = os.pidfd_open(victim)
        except ProcessLookupError:
            continue
        try:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            ended, _, _ = select.select([descriptor], [], [], STOP_SECONDS)
        finally:
            os.close(descriptor)
        if not ended:
            message = f"Process {victim} of the cluster does not end."
            raise BedError(message)


def _remove(root: Path) -> None:
    """Deletes the folder, never through a mount: the testbed mounts this machine's own files."""
    mount_points = (line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines())
    if any(point.startswith(f"{root}/") for point in mount_points):
        message = f"Something is still mounted under {root}. Unmount it, then try again."
        raise BedError(message)
    with suppress(FileNotFoundError):
        cgroups.remove(Testbed.read(root).cgroup)
    shutil.rmtree(root)
    if not _is_mounted_anywhere(sandbox.CERTIFICATES):
        with suppress(OSError):
            sandbox.CERTIFICATES.rmdir()


def _is_mounted_anywhere(point: Path) -> bool:
    """Whether a process of another testbed has something there; removing the folder would unmount it."""
    for mounts in Path("/proc").glob("[0-9]*/mountinfo"):
        with suppress(OSError):
            if f" {point} " in mounts.read_text():
                return True
    return False


def _children(pid: int) -> Iterator[int]:
    with suppress(FileNotFoundError):
        yield from map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())


def _start_time(pid: int) -> str | None:
    """The kernel's start time of a process, which tells it from a later one with the same id."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(")")[2].split()
    return fields[19] if fields[0] != "Z" else None
