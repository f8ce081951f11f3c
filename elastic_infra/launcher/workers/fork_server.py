"""The fork server: a process that has imported what workers import, and forks them.

Runs from a copy beside the bootstrap's, started by the supervisor with the workers' environment as
``python -u <copy> SOCKET SUPERVISOR MODULES``. It keeps one thread and opens no accelerator, so forking it is safe:
imports happen in a child, which is thrown away when a module leaves a thread, a socket, an accelerator device, a
signal handler or a changed environment behind; the next child leaves that module out. The first clean child serves.
Variables that an import adds are no fault: every worker gets them, as it would from its own import.
Garbage is not collected before the workers run, so that imports are quicker and pages stay shared, as the ``gc``
module's documentation advises for processes that fork.
Workers are forked twice, so that the supervisor adopts and reaps them, and wait for its word before they run.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import ctypes
import gc
import importlib
import importlib.machinery
import json
import os
import random
import re
import select
import signal
import site
import socket
import sys
import sysconfig
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import bootstrap
else:
    import elastic_infra_bootstrap as bootstrap

Job = dict[str, Any]
"""One worker, as the supervisor asks for it (``seam.WorkerSpec`` as JSON)."""

BASE = ("torch", "torch.distributed")
BLAS_THREADS = "OPENBLAS_NUM_THREADS"
"""With this at 1, importing NumPy leaves one thread; OpenMP and MKL start theirs when they first compute."""
IMPORT_SECONDS = 300.0
MOST_TRIALS = 20
DEVICES = re.compile(r"/dev/(nvidia|kfd|dri|dxg|accel|davinci|habanalabs|vfio)")
OPENBLAS_SETTERS = [
    f"{prefix}openblas_set_num_threads{suffix}" for prefix in ("", "scipy_") for suffix in ("", "64_", "_64")
]


def candidates(path: str) -> list[str]:
    """The modules that the program is known to import, torch's own and those under site-packages, in its order."""
    try:
        with open(path, encoding="utf-8") as file:
            names = list(dict.fromkeys(file.read().split()))
    except OSError:
        names = []
    return [*BASE, *(name for name in names if name not in BASE and (is_torchs(name) or is_installed(name)))]


def is_torchs(name: str) -> bool:
    """Whether it is a part of torch, which may lie anywhere."""
    return name.startswith("torch.")


def is_installed(name: str) -> bool:
    """Whether the module's top package lies under site-packages: never the script's own tree."""
    folders = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()}
    folders.add(site.getusersitepackages())
    try:
        spec = importlib.machinery.PathFinder.find_spec(name.partition(".")[0])
    except (ImportError, ValueError):
        return False
    places = [spec.origin] if spec and spec.origin else list(spec.submodule_search_locations or []) if spec else []
    return any(place.startswith(folder + os.sep) for place in places for folder in folders)


def traces() -> dict[str, Any]:
    """What an import may not change, as comparable parts."""
    opened = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if target.startswith("socket:") or DEVICES.match(target):
            opened.add(target)
    numbers = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
    return {
        "a second thread": len(os.listdir("/proc/self/task")),
        "an open device or socket": opened,
        "a signal handler": {number: signal.getsignal(number) for number in numbers},
        "a changed environment": {name: os.environ.get(name) for name in ENVIRONMENT},
    }


def import_all(names: list[str], journal: int) -> str:
    """Import in this process, each name written to the journal first; returns the first trace that one left."""
    before = traces()
    for name in names:
        os.write(journal, name.encode() + b"\n")
        with contextlib.suppress(BaseException):  # the program that imported it may have caught the same error
            importlib.import_module(name)
        after = traces()
        for trace, value in after.items():
            if value != before[trace]:
                return trace
        before = after
    return ""


def import_silently(names: list[str], journal: int) -> str:
    """``import_all``, with the output of the imports thrown away: the workers have shown it already."""
    null = os.open(os.devnull, os.O_WRONLY)
    kept = [os.dup(1), os.dup(2)]
    os.dup2(null, 1)
    os.dup2(null, 2)
    trace = import_all(names, journal)
    for target, descriptor in ((1, kept[0]), (2, kept[1])):
        os.dup2(descriptor, target)
        os.close(descriptor)
    os.close(null)
    return trace


def follow(reader: int) -> tuple[str, str] | None:
    """Wait for a child's imports: the module at which it failed and why, or None when all were clean."""
    text, deadline = b"", time.monotonic() + IMPORT_SECONDS
    while select.select([reader], [], [], max(0.0, deadline - time.monotonic()))[0]:
        data = os.read(reader, 65536)
        if not data:
            break
        text += data
    os.close(reader)
    *names, last = text.decode().split("\n")
    if last.startswith("{"):
        verdict = json.loads(last)["trace"]
        return (names[-1], verdict) if verdict else None
    return names[-1] if names else "torch", "a crash or an endless import"


def become_warm(connection: socket.socket, supervisor: int, writer: int, names: list[str], dropped: list[str]) -> Job:
    """In the child: import, and serve if that left nothing behind; returns in the workers only."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
    before = dict(os.environ)
    trace = import_silently(names, writer)
    os.write(writer, json.dumps({"trace": trace}).encode())
    if trace:
        os._exit(0)
    os.close(writer)
    added = {name: value for name, value in os.environ.items() if name not in before}
    gc.freeze()
    atexit.register(gc.unfreeze)  # in a worker's end: what is not collected, binding libraries report as leaks
    with open("/proc/self/statm", encoding="ascii") as file:
        size = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1_000_000
    connection.sendall(json.dumps({"ready": len(names), "dropped": dropped, "megabytes": size}).encode())
    return serve(connection, supervisor, added)


def restore_threads() -> None:
    """Give OpenBLAS the threads that it would have chosen when it was loaded.

    Source: https://github.com/OpenMathLib/OpenBLAS#setting-the-number-of-threads-using-environment-variables
    """
    if not IS_FORCED:
        return
    cpus = len(os.sched_getaffinity(0))
    wanted = next((os.environ[name] for name in ("GOTO_NUM_THREADS", "OMP_NUM_THREADS") if name in os.environ), "")
    number = min(int(wanted), cpus) if wanted.isdecimal() and int(wanted) else cpus
    with open("/proc/self/maps", encoding="utf-8") as file:
        libraries = {line.split()[-1] for line in file if "openblas" in line and "/" in line}
    for path in libraries:
        library = ctypes.CDLL(path)
        for setter in OPENBLAS_SETTERS:
            if hasattr(library, setter):
                getattr(library, setter)(number)


def reseed() -> None:
    """Forked ranks would draw identical numbers."""
    random.seed()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    sys.modules["torch"].default_generator.seed()


def serve(connection: socket.socket, supervisor: int, added: dict[str, str]) -> Job:
    """Fork a worker for every request; returns in the worker, with what it is to run."""
    while True:
        data, descriptors = receive(connection)
        if not data:
            os._exit(0)
        job: Job = json.loads(data)
        middle = os.fork()
        if middle == 0:
            worker = os.fork()
            if worker:
                connection.sendall(json.dumps({"request": job["request"], "pid": worker}).encode())
                os._exit(0)
            become_worker(job, descriptors[0], supervisor)
            complete_environment(job["env"], added)
            restore_threads()
            gc.enable()
            reseed()
            connection.close()
            return job
        os.waitpid(middle, 0)
        os.close(descriptors[0])


def receive(connection: socket.socket) -> tuple[bytes, list[int]]:
    """One request and the pipe on which its worker waits."""
    descriptors = array.array("i")
    data, ancillary, _, _ = connection.recvmsg(LONGEST, socket.CMSG_SPACE(descriptors.itemsize))
    for _, _, payload in ancillary:
        descriptors.frombytes(payload)
    return data, list(descriptors)


def complete_environment(given: dict[str, str], added: dict[str, str]) -> None:
    """The worker's own environment, plus what torch adds to it when it is imported."""
    os.environ.clear()
    os.environ.update({**added, **given})


def become_worker(job: Job, go: int, supervisor: int) -> None:
    """Leave the fork server behind: a session of its own, the supervisor as parent, the worker's streams."""
    os.setsid()
    while os.getppid() != supervisor:
        if os.getppid() == 1 and supervisor != 1:
            os._exit(1)
        time.sleep(0.0005)
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != supervisor or not os.read(go, 1):
        os._exit(1)
    os.close(go)
    for target, path in ((1, job["stdout"]), (2, job["stderr"])):
        if path is not None:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.dup2(descriptor, target)
            os.close(descriptor)


def main() -> Job:
    """Fork children until one imports cleanly and serves; what it returns is run as the user's program."""
    connection = socket.socket(fileno=int(sys.argv[1]))
    connection.set_inheritable(False)
    names = candidates(sys.argv[3])
    dropped: list[str] = []
    for _ in range(MOST_TRIALS):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            return become_warm(connection, int(sys.argv[2]), writer, names, dropped)
        os.close(writer)
        offender = follow(reader)
        if offender is None:
            connection.close()
            os.waitpid(child, 0)
            os._exit(0)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        name, trace = offender
        dropped.append(f"{name} ({trace})")
        names = [other for other in names if other != name and not other.startswith(name + ".")]
        if "torch" not in names:
            break
    connection.sendall(json.dumps({"failed": ", ".join(dropped)}).encode())
    os._exit(0)


LONGEST = 1 << 22
IS_FORCED = BLAS_THREADS not in os.environ
os.environ.setdefault(BLAS_THREADS, "1")
gc.disable()
ENVIRONMENT = frozenset(os.environ)
JOB = main()
if JOB is not None:
    del sys.modules["elastic_infra_bootstrap"]
    KIND, TARGET, *ARGUMENTS = JOB["argv"][3:]
    bootstrap.prepare(os.environ)
    bootstrap.set_title(TARGET, os.environ)
    bootstrap.run_to_the_end(KIND, TARGET, ARGUMENTS)
