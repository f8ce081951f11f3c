"""The fork server: a process that has imported what workers import, and forks them.

Runs from a copy beside the bootstrap's, started by the supervisor with what all workers find in their environment, and
so speaks plain JSON: the package with the launcher's codec is not there to import, nor must workers find it imported.
It keeps one thread and opens no accelerator, so forking it is safe. Imports happen in a child: one that leaves a
thread, a socket, an accelerator device, a signal handler or another ``sys.path`` behind, reads a variable that differs
between workers, or loads a module of the script's own is thrown away, and the next child leaves that module out. The
first clean child takes over from its parent, which only waits for it from then on. In this way the fork server also
learns, while it serves, what workers turned out to import.

Every import finds what it would find in the worker: the changes that the program had made to variables, to the path
and to the filters of warnings are made first. What imports change themselves, and print, every worker gets.
Garbage is not collected before the workers run, so that imports are quicker and pages stay shared, as the ``gc``
module's documentation advises for processes that fork.
Workers are forked twice, so that the supervisor adopts and reaps them, and wait for its word before they run.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import dataclasses
import functools
import gc
import importlib
import importlib.machinery
import importlib.util
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
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from . import bootstrap
else:  # by its place: with PYTHONSAFEPATH this folder is not on the path
    PLACE = os.path.abspath(__file__).replace("fork_server", "bootstrap")
    SPEC = importlib.util.spec_from_file_location("elastic_infra_bootstrap", PLACE)
    bootstrap = importlib.util.module_from_spec(SPEC)
    SPEC.loader.exec_module(bootstrap)

Job = dict[str, Any]
"""One worker, as the supervisor asks for it (``ipc.WorkerSpec`` as JSON)."""

BASE = ("torch", "torch.distributed")
LIBRARY = "elastic_infra.training"
BLAS_THREADS = "OPENBLAS_NUM_THREADS"
"""With this at 1, importing NumPy leaves one thread; OpenMP and MKL start theirs when they first compute."""
ARROW_ALLOCATOR = "JE_ARROW_MALLOC_CONF"
NO_THREAD = "background_thread:false"
"""With this, importing pyarrow leaves one thread: https://jemalloc.net/jemalloc.3.html#opt.background_thread"""
IMPORT_SECONDS = 300.0
MOST_TRIALS = 20
DEVICES = re.compile(r"/dev/(nvidia|kfd|dri|dxg|accel|davinci|habanalabs|vfio)")
OPENBLAS_SETTERS = [
    f"{prefix}openblas_set_num_threads{suffix}" for prefix in ("", "scipy_") for suffix in ("", "64_", "_64")
]
LONGEST = 1 << 22
LEFT_OUT = "(each worker has its own)"
BLIND = {"__new__", "__getattribute__", "encode", "maketrans"}
"""Methods of a text with which a process is given it."""


@dataclasses.dataclass(frozen=True)
class Task:
    """What the supervisor says at the start."""

    socket: int
    supervisor: int
    """Pid of the supervisor."""
    kind: str
    target: str
    """The program, as the bootstrap takes it."""
    declared: list[str]
    """Modules that the program imports before it does anything else."""
    folder: str
    """Where every worker of this node records what it imports, in a file named after its local rank."""
    differing: list[str]
    """Variables that differ between workers, or that only workers have."""


@dataclasses.dataclass(frozen=True)
class Import:
    """A module that workers import, and what they had changed before."""

    name: str
    origin: str = ""
    environ: Mapping[str, str | None] = dataclasses.field(default_factory=dict)
    path: Sequence[str] | None = None
    """None: as at the start."""
    filters: Sequence[Any] | None = None


@dataclasses.dataclass
class Effects:
    """What the imports so far have changed and printed: every worker gets it, as from its own import."""

    environ: dict[str, str | None] = dataclasses.field(default_factory=dict)
    filters: list[Any] = dataclasses.field(default_factory=list)
    output: list[tuple[int, bytes]] = dataclasses.field(default_factory=list)


# ------------------------------------------------------------------------------------------------ what to load


def recorded(folder: str) -> tuple[list[Import], set[str]]:
    """What all workers have imported, in the order of the first, and what only some or each otherwise."""
    ranks = []
    for name in sorted(os.listdir(folder), key=lambda name: (len(name), name)):
        with open(os.path.join(folder, name), encoding="utf-8", errors="surrogateescape") as file:
            ranks.append(read_records(line for line in file if line.endswith("\n")))
    names = {name for rank in ranks for name in rank}
    alike = [found for found in (ranks[0].values() if ranks else ()) if all(r.get(found.name) == found for r in ranks)]
    return alike, names - {found.name for found in alike}


def read_records(lines: Iterable[str]) -> dict[str, Import]:
    """One worker's imports; the first record of a name counts."""
    found: dict[str, Import] = {}
    changes: dict[str, Any] = {}
    for line in lines:
        try:
            name, origin, *rest = json.loads(line)
        except ValueError:  # a disk was full: what comes after it may lack its changes
            break
        changes = rest[0] if rest else changes
        found.setdefault(name, Import(name, origin, **changes))
    return found


def may_load(found: Import) -> bool:
    """Whether a module may be loaded here: torch and this library, which may lie anywhere, and what is installed."""
    if found.name in sys.modules:
        return False
    return (
        is_torchs(found.name)
        or is_of_library(found.name)
        or (is_installed(found.origin) if found.origin else is_found_installed(found.name))
    )


def is_torchs(name: str) -> bool:
    """Whether it is torch or a part of it."""
    return name.partition(".")[0] == "torch"


def is_of_library(name: str) -> bool:
    """Whether it is the library for scripts: in a pod it is mounted as sources, which each worker would compile."""
    return name == LIBRARY or name.startswith(f"{LIBRARY}.")


def is_installed(place: str) -> bool:
    """Whether a file lies under site-packages: never the script's own tree."""
    return any(place.startswith(folder + os.sep) for folder in installed_folders())


@functools.lru_cache(maxsize=1)
def installed_folders() -> frozenset[str]:
    """Where packages are installed."""
    folders = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()}
    return frozenset({*folders, site.getusersitepackages()})


def is_found_installed(name: str) -> bool:
    """Whether the module's top package would be found under site-packages."""
    try:
        spec = importlib.machinery.PathFinder.find_spec(name.partition(".")[0])
    except (ImportError, ValueError):
        return False
    return spec is not None and is_installed(bootstrap.origin(spec))


# ------------------------------------------------------------------------------------------------ one import


class OwnName(str):
    """The name of a worker's own variable, as a module meets it that walks through all variables."""

    __slots__ = ("__weakref__",)


def looking(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of ``str`` that notes the look first."""

    def look(value: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401  as the method has it
        value.note()
        return method(value, *arguments, **named)

    return look


OwnValue: Any = type(
    "OwnValue",
    (str,),
    {name: looking(method) for name, method in vars(str).items() if callable(method) and name not in BLIND}
    | {"__radd__": looking(lambda value, left: left + str.__str__(value))}
    | {f"__{kind.__name__}__": looking(lambda value, kind=kind: kind(str.__str__(value))) for kind in (int, float)},
)
"""What such a variable holds, its text left out. Every look at it is noted, but not that it is handed to a process."""


@dataclasses.dataclass
class Watch:
    """What an import does with variables of a worker's own."""

    differing: frozenset[str]
    read: str = ""
    """The variable that it asked for by name, or whose value it looked at."""
    given: list[weakref.ref[str]] = dataclasses.field(default_factory=list)
    """Names and values that it met among all variables."""

    def note(self, name: str) -> None:
        """The import reads this variable."""
        self.read = name

    def name(self, name: str) -> str:
        """A name for an import that walks through all variables."""
        met = OwnName(name)
        self.given.append(weakref.ref(met))
        return met

    def value(self, name: str) -> str:
        """A value for an import that walks through all variables."""
        met: str = OwnValue(LEFT_OUT)
        met.note = functools.partial(self.note, str(name))  # type: ignore[attr-defined]  # made above
        self.given.append(weakref.ref(met))
        return met

    def trace(self) -> str:
        """Why the import is left to each worker; empty where it is alike for all."""
        if self.read:
            return f"reads {self.read}"
        if self._is_kept():
            gc.collect()  # what only an error's frames still hold is not kept
        return "keeps all variables" if self._is_kept() else ""

    def _is_kept(self) -> bool:
        return any(met() is not None for met in self.given)


class WatchedEnviron(os._Environ):  # type: ignore[type-arg]  # noqa: SLF001  the class of os.environ
    """``os.environ`` while a module is imported; see ``watching``."""

    watch: Watch

    def __getitem__(self, name: str) -> str:
        if isinstance(name, OwnName):
            return self.watch.value(name)
        if name in self.watch.differing:
            self.watch.note(name)
        return super().__getitem__(name)  # type: ignore[no-any-return]

    def __iter__(self) -> Iterator[str]:
        yield from map(self.watch.name, sorted(self.watch.differing))
        yield from (name for name in super().__iter__() if name not in self.watch.differing)


@contextlib.contextmanager
def watching(differing: frozenset[str]) -> Iterator[Watch]:
    """Have it noted whether variables of a worker's own are read.

    A module that looks for variables of its own among all of them, or hands all to a process, meets a worker's as well
    and reads none: tqdm does the one, ``ctypes.util.find_library`` the other. To keep them counts as to read them.
    """
    WatchedEnviron.watch = watch = Watch(differing)
    os.environ.__class__ = WatchedEnviron
    try:
        yield watch
    finally:
        os.environ.__class__ = os._Environ  # noqa: SLF001  the class of os.environ


def set_environ(environ: Mapping[str, str]) -> None:
    """Make these the variables of the process."""
    for name in os.environ.keys() - environ.keys():
        del os.environ[name]
    for name, value in environ.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


def changed(environ: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """Variables after changes; None removes."""
    merged = {**environ, **changes}
    return {name: value for name, value in merged.items() if value is not None}


def with_one_thread(environ: Mapping[str, str]) -> dict[str, str]:
    """Variables with which imports start no threads that the fork server could not fork with."""
    allocator = ",".join(filter(None, [environ.get(ARROW_ALLOCATOR), NO_THREAD]))
    return {BLAS_THREADS: "1", **environ, ARROW_ALLOCATOR: allocator}


def set_filters(filters: Sequence[Any]) -> None:
    """Make these the filters of warnings."""
    warnings.resetwarnings()
    warnings.filters.extend(filters)  # type: ignore[attr-defined]  # a list, whatever its type says


class NotLoadedWarning(Warning):
    """Stands for a category of a module that is not loaded here, so that nothing can warn with it."""


def read_filters(written: Sequence[Any]) -> list[Any]:
    """Filters as ``bootstrap.written`` left them; one whose category is not loaded keeps its place and matches nothing.

    Raises:
        AttributeError: a category is not where its name says.
    """

    def pattern(found: Any) -> Any:  # noqa: ANN401  an expression with flags, a text or None
        return re.compile(*found) if isinstance(found, list) else found

    filters = []
    for action, message, module, name, where, line in written:
        is_loaded = module in sys.modules
        category = functools.reduce(getattr, name.split("."), sys.modules[module]) if is_loaded else NotLoadedWarning
        filters.append((action, pattern(message), category, pattern(where), line))
    return filters


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
        "a changed sys.path": list(sys.path),
    }


def own_module(names: Iterable[str], folders: Iterable[str]) -> str:
    """Of these modules, one that lies directly in one of these folders, or in a package there."""
    roots = {os.path.realpath(folder) for folder in folders}
    for name in names:
        place = getattr(sys.modules.get(name.partition(".")[0]), "__file__", None) or ""
        folder = os.path.dirname(place)
        top = os.path.dirname(folder) if os.path.basename(place) == "__init__.py" else folder
        if place and os.path.realpath(top) in roots:
            return name
    return ""


class Start:
    """The state of the process in which every worker begins."""

    def __init__(self, task: Task) -> None:
        self.environ = dict(os.environ)
        self.differing = frozenset(task.differing)
        self.cold_path = list(sys.path)
        """What the bootstrap finds."""
        bootstrap.put_first_on_path(task.kind, task.target)
        self.path = list(sys.path)
        self.filters = list(warnings.filters)

    def own_folders(self, path: Sequence[str]) -> list[str]:
        """Folders on the path that the launcher's own does not have: the script's, and what the program added."""
        return [folder for folder in path if folder not in self.cold_path]


def load(found: Import, start: Start, effects: Effects) -> str:
    """Import one module as a worker would; returns the trace that it left, or why it cannot be loaded here."""
    try:
        filters = [*effects.filters, *start.filters] if found.filters is None else read_filters(found.filters)
    except AttributeError:
        return "a category of warnings that is not where its name says"
    set_environ(with_one_thread(changed(changed(start.environ, effects.environ), found.environ)))
    sys.path[:] = start.path if found.path is None else found.path
    set_filters(filters)
    before, names, environ = traces(), set(sys.modules), dict(os.environ)
    with watching(start.differing) as watch, contextlib.suppress(BaseException):  # its program may catch the same error
        importlib.import_module(found.name)
    made = bootstrap.changes(environ, os.environ)
    effects.environ |= made
    effects.filters[:0] = [each for each in warnings.filters if each not in filters and each not in effects.filters]
    after = traces()
    own = own_module(set(sys.modules) - names, start.own_folders(before["a changed sys.path"]))
    if own:
        return f"it imports {own}, the program's own"
    if watch.trace():
        return watch.trace()
    if made.keys() & start.differing:
        return f"sets {', '.join(sorted(made.keys() & start.differing))}"
    if made.keys() & found.environ.keys():
        return f"changes {', '.join(made.keys() & found.environ.keys())}, as the program does"
    return next((trace for trace, value in after.items() if value != before[trace]), "")


# ------------------------------------------------------------------------------------------------ trials


def try_all(todo: Sequence[Import], start: Start, effects: Effects, journal: int) -> bool:
    """In a child: import all, each name written to the journal first; whether that left nothing behind."""
    streams = {target: (os.dup(target), temporary_file()) for target in (1, 2)}
    for target, (_, captured) in streams.items():
        os.dup2(captured, target)
    trace = ""
    for found in todo:
        if found.name not in sys.modules:
            os.write(journal, found.name.encode() + b"\n")
            trace = load(found, start, effects)
        if trace:
            break
    os.write(journal, json.dumps({"trace": trace}).encode())
    ctypes.CDLL(None).fflush(None)
    for target, (kept, captured) in streams.items():
        os.dup2(kept, target)
        effects.output.append((target, os.pread(captured, LONGEST, 0)))
        os.close(kept)
        os.close(captured)
    set_environ(changed(start.environ, effects.environ))
    sys.path[:] = start.path
    set_filters([*effects.filters, *start.filters])
    return not trace


def temporary_file() -> int:
    """A file without a name, beside this one."""
    path = f"{os.path.abspath(__file__)}.{os.getpid()}"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    os.unlink(path)
    return descriptor


class Trial:
    """A child that imports, seen from its parent."""

    def __init__(self, pid: int, reader: int) -> None:
        self.pid = pid
        self.reader = reader
        self._text = b""
        self._deadline = time.monotonic() + IMPORT_SECONDS

    def read(self) -> tuple[str, str] | None:
        """The outcome: ("", "") once all is imported, the module that failed and why, or None so far."""
        data = b""
        if select.select([self.reader], [], [], 0)[0]:
            data = os.read(self.reader, 65536)
            self._text += data
        elif time.monotonic() < self._deadline:
            return None
        *names, last = self._text.decode().split("\n")
        if last.endswith("}"):
            trace = json.loads(last)["trace"]
            return (names[-1], trace) if trace else ("", "")
        if data:
            return None
        return (names[-1] if names else "torch"), "a crash or an endless import"


class Server:
    """Forks workers, and children that import more modules and take over."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._connection = socket.socket(fileno=task.socket)
        self._connection.set_inheritable(False)
        self._start = Start(task)
        self._effects = Effects()
        self._batches: list[list[Import]] = []
        self._trial: Trial | None = None
        self._trials = 0
        self._dropped: list[str] = []
        self._left_out: set[str] = set()
        self._loaded = 0
        self.inherited = bootstrap.Inherited()

    def prepare(self) -> None:
        """Begin with torch, in a separate process: leaving a module out later then costs no second import of it."""
        records, differing = recorded(self._task.folder)
        if "torch" in differing:
            self._fail("torch (workers import it under different variables, paths or filters of warnings)")
        known = {found.name: found for found in records}
        self._batches = [[known.get(name, Import(name)) for name in BASE]]
        self._batches.append([*records, *(Import(name) for name in self._task.declared if name not in known)])

    def run(self) -> Job:
        """Serve until the supervisor is gone; returns in the workers only, with what each is to run."""
        self._begin()
        while True:
            trial = self._trial
            connection = self._connection.fileno()
            awaited = [connection, trial.reader] if trial else [connection]
            ready = select.select(awaited, [], [], 1.0 if trial else None)[0]
            if trial is not None:
                self._follow(trial)
            if connection in ready:
                job = self._answer()
                if job is not None:
                    return job

    def _begin(self) -> None:
        """Have a child import the next batch, in which process this returns once it is clean; or say what is ready."""
        while self._batches:
            todo = [each for each in self._batches[0] if self._is_wanted(each)]
            if not todo or self._trials >= MOST_TRIALS:
                self._batches.pop(0)
                self._trials = 0
                continue
            self._trials += 1
            reader, writer = os.pipe()
            child = os.fork()
            if child:
                os.close(writer)
                self._trial = Trial(child, reader)
                return
            os.close(reader)
            ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
            if not try_all(todo, self._start, self._effects, writer):
                os._exit(0)
            os.close(writer)
            self._trial = None
            self._loaded += len(todo)
            self._batches.pop(0)
            self._trials = 0
        self._tell()

    def _is_wanted(self, found: Import) -> bool:
        parts = found.name.split(".")
        outside = any(".".join(parts[:number]) in self._left_out for number in range(1, len(parts) + 1))
        return not outside and may_load(found)

    def _follow(self, trial: Trial) -> None:
        outcome = trial.read()
        if outcome is None:
            return
        os.close(trial.reader)
        self._trial = None
        name, trace = outcome
        if not name:  # the child has taken over
            self._connection.close()
            os.waitpid(trial.pid, 0)
            os._exit(0)
        os.kill(trial.pid, signal.SIGKILL)
        os.waitpid(trial.pid, 0)
        self._left_out.add(name)
        self._dropped.append(f"{name} ({trace})")
        if name == "torch":
            self._fail(", ".join(self._dropped))
        self._begin()

    def _fail(self, reason: str) -> NoReturn:
        self._connection.sendall(json.dumps({"failed": reason}).encode())
        os._exit(0)

    def _tell(self) -> None:
        self.inherited.freeze()
        with open("/proc/self/statm", encoding="ascii") as file:
            size = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1_000_000
        message = {"ready": self._loaded, "dropped": self._dropped, "megabytes": size}
        self._connection.sendall(json.dumps(message).encode())

    def _answer(self) -> Job | None:
        data, descriptors = receive(self._connection)
        if not data:
            os._exit(0)
        job: Job = json.loads(data)
        if "load" in job:
            self._batches.append(recorded(self._task.folder)[0])
            if self._trial is None:
                self._begin()
            return None
        return self._fork(job, descriptors[0])

    def _fork(self, job: Job, go: int) -> Job | None:
        middle = os.fork()
        if middle:
            os.waitpid(middle, 0)
            os.close(go)
            return None
        worker = os.fork()
        if worker:
            self._connection.sendall(json.dumps({"request": job["request"], "pid": worker}).encode())
            os._exit(0)
        become_worker(job, go, self._task.supervisor)
        self._connection.close()
        if self._trial is not None:
            os.close(self._trial.reader)
        set_environ(with_effects(job["env"], self._start.environ, self._effects.environ))
        sys.path[:] = self._start.cold_path
        for target, text in self._effects.output:
            os.write(target, text)
        restore_threads()
        gc.enable()
        reseed()
        return job


def with_effects(
    given: Mapping[str, str], start: Mapping[str, str], effects: Mapping[str, str | None]
) -> dict[str, str]:
    """A worker's own environment with what its imports would change: where it finds what they found."""
    return changed(given, {name: value for name, value in effects.items() if given.get(name) == start.get(name)})


def restore_threads() -> None:
    """Give OpenBLAS the threads that it would have chosen when it was loaded.

    Source: https://github.com/OpenMathLib/OpenBLAS#setting-the-number-of-threads-using-environment-variables
    """
    if not IS_FORCED:
        return
    cpus = len(os.sched_getaffinity(0))
    wanted = next((os.environ[name] for name in ("GOTO_NUM_THREADS", "OMP_NUM_THREADS") if name in os.environ), "")
    number = min(int(wanted), cpus) if wanted.isdecimal() and int(wanted) else cpus
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
        libraries = mapped(file, "openblas")
    for path in libraries:
        with contextlib.suppress(OSError):  # replaced since, by an installation
            library = ctypes.CDLL(path)
            for setter in OPENBLAS_SETTERS:
                if hasattr(library, setter):
                    getattr(library, setter)(number)


def mapped(maps: Iterable[str], word: str) -> set[str]:
    """The files whose name holds the word, of a process's memory map; a path may have spaces.

    Source: https://man7.org/linux/man-pages/man5/proc_pid_maps.5.html
    """
    paths = (line.rstrip("\n").split(maxsplit=5)[5:] for line in maps)
    return {path for found in paths for path in found if path.startswith("/") and word in os.path.basename(path)}


def reseed() -> None:
    """Forked ranks would draw identical numbers."""
    random.seed()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.seed()


def receive(connection: socket.socket) -> tuple[bytes, list[int]]:
    """One request and the pipe on which its worker waits."""
    descriptors = array.array("i")
    data, ancillary, _, _ = connection.recvmsg(LONGEST, socket.CMSG_SPACE(descriptors.itemsize))
    for _, _, payload in ancillary:
        descriptors.frombytes(payload)
    return data, list(descriptors)


def become_worker(job: Job, go: int, supervisor: int) -> None:
    """Detach from the fork server: enter a new session, with the supervisor as parent and the worker's streams."""
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


def main() -> tuple[Job, bootstrap.Inherited]:
    """Serve; what it returns is run as the user's program."""
    task = Task(**json.loads(sys.argv[1]))
    server = Server(task)
    server.prepare()
    return server.run(), server.inherited


IS_FORCED = BLAS_THREADS not in os.environ

if __name__ == "__main__":
    gc.disable()
    JOB, INHERITED = main()
    KIND, TARGET, *ARGUMENTS = JOB["argv"][3:]
    bootstrap.prepare(os.environ)
    bootstrap.set_title(TARGET, os.environ)
    bootstrap.run_to_the_end(KIND, TARGET, ARGUMENTS, INHERITED)
