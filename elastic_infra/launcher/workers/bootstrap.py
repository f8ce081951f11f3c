"""Runs first in every Python worker: sets per-process defaults, then runs the user's program as ``__main__``.

The file is outside any package, so that a worker needs no package on its path: the launcher copies this source
into its runtime folder and starts ``python -u <copy> script|module|run_path TARGET ARGUMENTS``. It imports only the
standard library and never torch: the collective timeout is set by a hook after the program's own import.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import ctypes
import faulthandler
import functools
import gc
import importlib.util
import io
import json
import os
import runpy
import signal
import socket
import struct
import sys
import threading
import time
import traceback
import types
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from datetime import timedelta
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader, SourcelessFileLoader
from typing import Any

PREFIX = "ELASTIC_INFRA_"
DUMP_SIGNAL = signal.SIGRTMIN + 7
"""Makes a worker write the stacks of all its threads and live on; a real-time signal, which scripts rarely use."""

IMPORT_FRAME = "_find_and_load_unlocked"
"""The frame that asks for a module during an import; ``importlib.util.find_spec`` asks from another frame."""

TIMEOUT_MODULES = ("torch.distributed.constants", "torch.distributed.distributed_c10d")
"""Both places where torch keeps the default timeout of process groups."""
TIMEOUT_NAMES = ("default_pg_timeout", "default_pg_nccl_timeout")

STORE_MODULE = "torch.distributed.rendezvous"
MAKE_STORE = "_create_c10d_store"
"""Torch's function behind ``init_process_group``, called with host, port and rank: rank 0 listens, others connect."""
LISTENER_SECONDS = 30.0
POLL_SECONDS = 0.01

HERE = os.path.dirname(os.path.abspath(__file__))
"""Holds this file and the fork server's, and nothing of the program's."""

OPTIMIZER_MODULE = "torch.optim.optimizer"
ADD_STEP_HOOK = "register_optimizer_step_post_hook"
PROGRESS = PREFIX + "PROGRESS"
"""``SLOT:PATH`` of this worker's progress memory; ``workers.progress`` has its layout."""
SLOT_WORDS, STOPPED, OPTIMIZED_AT, FAILED_AT = 16, 3, 7, 8
"""Eight-byte words of a slot; those that hold whether it was told to stop, when the optimizer first stepped, and when
the script failed."""

CLOSE_SECONDS = 2.0
"""A worker that has more to close ends as Python does."""
END_SECONDS = 600
"""Seconds until an alarm ends the process; Python takes its modules apart in less time."""

LOADED_FROM_OUTSIDE = ("LD_PRELOAD", "CUDA_INJECTION64_PATH")
"""Variables by which profilers and allocators get into a process; they may write their report as C exits."""

RUN_MODULE_AS_MAIN = runpy._run_module_as_main  # type: ignore[attr-defined]  # noqa: SLF001  what `python -m` calls


class ChangingLoader(Loader):
    """Runs a module as its own loader would, then changes it."""

    def __init__(self, loader: Loader, change: Callable[[types.ModuleType], None]) -> None:
        self._loader = loader
        self._change = change

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  whatever the loader has
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> types.ModuleType | None:
        """As the module's own loader."""
        return self._loader.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        """As the module's own loader, then the change."""
        self._loader.exec_module(module)
        self._change(module)


class Recorder:
    """Writes what is imported, from where, and under which changes that the program made: see ``record``."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._pid = os.getpid()
        self._environ = dict(os.environ)
        self._seen: tuple[dict[str, str], list[str], list[Any]] | None = None

    def record(self, name: str, spec: ModuleSpec) -> None:
        """One line: name, origin and, where they differ from the line before, the changes so far.

        Changes are those to ``os.environ`` since the start (None: removed), and all of ``sys.path`` and of the
        filters of warnings. What a forked child imports says nothing of what a worker does. An entry of ``sys.path``
        that is no text is ignored by Python, and here.
        """
        if os.getpid() != self._pid:
            return
        line: list[Any] = [name, origin(spec)]
        path = [entry for entry in sys.path if isinstance(entry, str)]
        seen = (dict(os.environ), path, list(warnings.filters))
        if seen != self._seen:
            self._seen = seen
            line.append({"environ": changes(self._environ, seen[0]), "path": seen[1], "filters": written(seen[2])})
        with contextlib.suppress(OSError):
            os.write(self._descriptor, json.dumps(line).encode() + b"\n")


def origin(spec: ModuleSpec) -> str:
    """The file or the folder of a module; empty where it has neither."""
    return spec.origin or next(iter(spec.submodule_search_locations or ()), "")


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str | None]:
    """What was set, and what was removed (None)."""
    gone: dict[str, str | None] = dict.fromkeys(before.keys() - after.keys())
    return gone | {name: value for name, value in after.items() if before.get(name) != value}


def written(filters: Sequence[Any]) -> list[list[Any]]:
    """Filters of warnings in a form that another process can read."""

    def pattern(found: Any) -> Any:  # noqa: ANN401  a compiled expression, a text or None
        return found if found is None or isinstance(found, str) else [found.pattern, found.flags]

    return [
        [action, pattern(message), category.__module__, category.__qualname__, pattern(module), line]
        for action, message, category, module, line in filters
    ]


class ImportHook(MetaPathFinder):
    """First on ``sys.meta_path``: records every import, and has a few modules changed once they are there."""

    def __init__(self, changes: Mapping[str, Callable[[types.ModuleType], None]], recorder: Recorder | None) -> None:
        self._changes = changes
        self._recorder = recorder

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        """What the finders after this one find."""
        if self._recorder is None and name not in self._changes:
            return None
        spec = next((found for found in self._others(name, path, target) if found is not None), None)
        is_import = sys._getframe(2).f_code.co_name == IMPORT_FRAME  # noqa: SLF001  no public form
        if spec is not None and self._recorder is not None and is_import:
            self._recorder.record(name, spec)
        if spec is not None and spec.loader is not None and name in self._changes:
            spec.loader = ChangingLoader(spec.loader, self._changes[name])
        return spec

    def _others(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None
    ) -> Iterator[ModuleSpec | None]:
        for finder in list(sys.meta_path):
            if finder is not self and hasattr(finder, "find_spec"):
                yield finder.find_spec(name, path, target)


def set_timeouts(module: types.ModuleType, seconds: float) -> None:
    """The default timeout of gloo and of NCCL, where this module has them."""
    for name in TIMEOUT_NAMES:
        if getattr(module, name, None) is not None:
            setattr(module, name, timedelta(seconds=seconds))


def make_store_patient(module: types.ModuleType) -> None:
    """Have every rank but the first connect as soon as the first one listens.

    Torch tries again half a second after it found no listener, and most changes of members would wait for that:
    https://github.com/pytorch/pytorch/blob/v2.6.0/torch/csrc/distributed/c10d/socket.cpp
    """
    make = getattr(module, MAKE_STORE, None)
    if make is None:
        return

    def make_when_there(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401  whatever torch's has
        host, port, rank = (*arguments, None, None, None)[:3]
        if rank:
            await_listener(host, port)
        return make(*arguments, **named)

    setattr(module, MAKE_STORE, make_when_there)


def note_first_step(module: types.ModuleType, place: str) -> None:
    """Have the first ``optimizer.step`` noted in the progress memory, for scripts that report no steps themselves.

    Args:
        module: torch's, with ``register_optimizer_step_post_hook`` (torch 2.3 and later; before, nothing is noted).
        place: ``SLOT:PATH`` of the progress memory.
    """
    add_hook = getattr(module, ADD_STEP_HOOK, None)
    if add_hook is None:
        return
    noted = False

    def note(*_: object) -> None:
        nonlocal noted
        # A step inside torch.compile is traced: writing a file would break its graph in two.
        if noted or sys.modules["torch"].compiler.is_compiling():
            return
        noted = True
        note_moment(place, OPTIMIZED_AT)

    add_hook(note)


def note_moment(place: str, word: int) -> None:
    """Write the present moment into a word of this worker's slot in the progress memory, where there is one."""
    slot, _, path = place.partition(":")
    if not slot.isdecimal():
        return
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.pwrite(descriptor, struct.pack("d", time.monotonic()), ((int(slot) + 1) * SLOT_WORDS + word) * 8)
        finally:
            os.close(descriptor)


def await_listener(host: str, port: int) -> None:
    """Return once the store listens, or for any other reason that torch can say better."""
    deadline = time.monotonic() + LISTENER_SECONDS
    try:
        addresses = [found[4][:2] for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
        while not any(listens(address) for address in addresses) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
    except (OSError, ValueError, TypeError, OverflowError):
        return


def listens(address: Any) -> bool:  # noqa: ANN401  of whatever family
    """Whether a connection is taken there.

    Raises:
        OSError: it cannot be known.
    """
    try:
        socket.create_connection(address, LISTENER_SECONDS).close()
    except ConnectionRefusedError:
        return False
    return True


def prepare(environ: MutableMapping[str, str]) -> None:
    """Apply this process's defaults: timeouts, stacks on demand, a title, the record of a failure."""
    text = environ.get(PREFIX + "NCCL_COLLECTIVE_TIMEOUT_SECONDS")
    names = environ.pop(PREFIX + "MODULES", None)
    recorder = Recorder(names) if names else None
    place = environ.get(PROGRESS, "")
    changes: dict[str, Callable[[types.ModuleType], None]] = {
        STORE_MODULE: make_store_patient,
        OPTIMIZER_MODULE: lambda module: note_first_step(module, place),
    }
    if text:
        changes |= dict.fromkeys(TIMEOUT_MODULES, lambda module: set_timeouts(module, float(text)))
    sys.meta_path.insert(0, ImportHook(changes, recorder))
    for name in changes.keys() & sys.modules.keys():
        changes[name](sys.modules[name])
    faulthandler.register(DUMP_SIGNAL, file=2, all_threads=True, chain=False)
    sys.excepthook = report_failure


def set_title(target: str, environ: MutableMapping[str, str]) -> None:
    """Name the process after script and rank, for ``top`` and ``ps``; 15 bytes are all the kernel keeps."""
    stem = os.path.splitext(os.path.basename(target.rstrip("/")))[0]
    rank = environ.get("RANK", "")
    with contextlib.suppress(OSError), open("/proc/self/comm", "w") as file:
        file.write(f"{stem[: 14 - len(rank)]}:{rank}")


def report_failure(kind: type[BaseException], error: BaseException, trace: types.TracebackType | None) -> None:
    """Print the exception without the launcher's frames, and leave it where torch's ``record`` would."""
    trace = without_launcher(trace)
    leave_error(kind, error, trace)
    sys.__excepthook__(kind, error.with_traceback(trace), trace)


def without_launcher(trace: types.TracebackType | None) -> types.TracebackType | None:
    """What the program itself did: the frames above are this file's and the fork server's."""
    while trace is not None and os.path.dirname(trace.tb_frame.f_code.co_filename) == HERE:
        trace = trace.tb_next
    return trace


def leave_error(kind: type[BaseException], error: BaseException, trace: types.TracebackType | None) -> None:
    """Leave an exception where torch's ``record`` would, unless that has one."""
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if path and not os.path.exists(path):
        stack = "".join(traceback.format_exception(kind, error, trace))
        extra = {"py_callstack": stack, "timestamp": str(int(time.time()))}
        with contextlib.suppress(OSError), open(path, "w") as file:
            json.dump({"message": {"message": one_line(kind, error, trace), "extraInfo": extra}}, file)


def one_line(kind: type[BaseException], error: BaseException, trace: types.TracebackType | None) -> str:
    """The exception; where its own text may be empty, as an assert's, with its place and source line."""
    told = f"{kind.__name__}: {error}" if str(error) else kind.__name__
    if not isinstance(error, (AssertionError, SystemExit)):
        return told
    frames = traceback.extract_tb(trace)
    return (
        f"{told} ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno}: {frames[-1].line})" if frames else told
    )


def run(kind: str, target: str, arguments: Sequence[str]) -> None:
    """Run the program in a fresh ``__main__``, as the interpreter does for its own command line."""
    main = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=builtins, __annotations__={})
    sys.modules["__main__"] = main
    sys.argv = [target, *arguments]
    put_first_on_path(kind, target)
    if kind == "module":
        RUN_MODULE_AS_MAIN(target, alter_argv=True)
    elif kind == "run_path":
        runpy.run_path(target, run_name="__main__")
    elif is_archive(target):
        RUN_MODULE_AS_MAIN("__main__", alter_argv=False)
    else:
        run_script(main, target)


def is_archive(target: str) -> bool:
    """Whether it is run by the ``__main__`` in it."""
    return os.path.isdir(target) or target.endswith((".zip", ".pyz", ".egg"))


def put_first_on_path(kind: str, target: str) -> None:
    """Put the folder first on ``sys.path`` that the interpreter would; this file's own folder makes way.

    With ``PYTHONSAFEPATH`` the interpreter has put no folder there, and puts none but that of an archive:
    https://docs.python.org/3/using/cmdline.html#cmdoption-P
    """
    is_safe = bool(getattr(sys.flags, "safe_path", False))
    if kind == "script" and is_archive(target):
        sys.path[0 : 0 if is_safe else 1] = [target]
    elif not is_safe and kind == "script":
        sys.path[0] = os.path.dirname(os.path.realpath(target))
    elif not is_safe and kind == "module":
        sys.path[0] = os.getcwd()


def run_script(main: types.ModuleType, target: str) -> None:
    """Execute a file, of source or compiled, the way ``python -u file`` does."""
    path = os.path.abspath(target)
    loader: SourceFileLoader | SourcelessFileLoader
    if is_compiled(path):
        loader = SourcelessFileLoader("__main__", path)
        code = loader.get_code("__main__")
    else:
        loader = SourceFileLoader("__main__", path)
        code = loader.source_to_code(loader.get_data(path), path)
    main.__dict__.update(__file__=path, __loader__=loader, __spec__=None, __cached__=None, __package__=None)
    exec(code, main.__dict__)  # type: ignore[arg-type]  # noqa: S102  the user's program is what runs here


def is_compiled(path: str) -> bool:
    """Whether it holds bytecode, told by its name or its first bytes as the interpreter tells it."""
    with open(path, "rb") as file:
        return path.endswith(".pyc") or file.read(2) == importlib.util.MAGIC_NUMBER[:2]


class Inherited:
    """What the end of a forked worker must know of the objects that were there before the fork.

    The fork server looks through them: a look at an object writes the object's count of references, and the first
    write to a page that processes share copies the page. With torch loaded that took each worker 0.2 s.
    """

    def __init__(self) -> None:
        self._found: list[Callable[[], Any]] = []

    def freeze(self) -> None:
        """Look through what has been made since the last time, and keep the collector from all of it."""
        objects = gc.get_objects()
        kinds = {type(each) for each in objects}
        wanted = {*filter(has_finalizer, kinds), *places_in_order(kinds)}
        self._found += [reference(each) for each in objects if type(each) in wanted]
        gc.freeze()
        atexit.unregister(gc.unfreeze)
        atexit.register(gc.unfreeze)  # in a worker's end: what is not collected, binding libraries report as leaks

    def objects(self) -> list[Any]:
        """Those that may have to be closed, or do something when they go, and still exist."""
        return [each for each in (found() for found in self._found) if each is not None]


def reference(found: object) -> Callable[[], Any]:
    """A weak reference, or, to an object that takes none, one that keeps it to the end."""
    try:
        return weakref.ref(found)
    except TypeError:
        return lambda: found


def run_to_the_end(kind: str, target: str, arguments: Sequence[str], inherited: Inherited | None = None) -> None:
    """Run the program, and end quickly where it failed or was told to stop; other ends are the interpreter's own.

    Args:
        kind: script, module or run_path.
        target: the program.
        arguments: the program's own.
        inherited: of a forked worker.
    """
    first: list[object] = []
    place = os.environ.get(PROGRESS, "")
    is_unusual = any(os.environ.get(name) for name in LOADED_FROM_OUTSIDE)
    atexit.register(park_threads_at_the_end)  # the first is the last that runs
    try:
        run(kind, target, arguments)
    except SystemExit as end:
        if end.code not in (None, 0):
            if not isinstance(end.code, int):  # the interpreter prints the text and exits 1, which says nothing here
                leave_error(SystemExit, end, without_launcher(end.__traceback__))
            note_moment(place, FAILED_AT)
            raise
    except Exception as error:
        note_moment(place, FAILED_AT)
        if not is_end_quick(is_unusual=is_unusual) or not was_printed(error):
            raise
        end_quickly(inherited or Inherited(), first, 1)
        sys.exit(1)  # as the interpreter does, which would print the exception once more
    except BaseException:
        note_moment(place, FAILED_AT)
        raise
    if is_end_quick(is_unusual=is_unusual) and was_told_to_stop(place):
        end_quickly(inherited or Inherited(), first, 0)


def is_end_quick(*, is_unusual: bool) -> bool:
    """Whether there is something to gain, and nothing in the process that wants the interpreter's own end.

    Args:
        is_unusual: a profiler or an allocator was loaded from outside.
    """
    return "torch" in sys.modules and not is_unusual and "h5py" not in sys.modules  # HDF5 closes its files as C exits


def was_printed(error: Exception) -> bool:
    """Print an exception as the interpreter does; False where that fails, which the interpreter has words for."""
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except BaseException:  # noqa: BLE001  whatever a program's own hook may raise
        return False
    return True


def was_told_to_stop(place: str) -> bool:
    """Whether ``Progress.step`` has told this worker to stop, and others train on.

    Args:
        place: ``SLOT:PATH`` of the progress memory.
    """
    slot, _, path = place.partition(":")
    with contextlib.suppress(OSError, ValueError), open(path, "rb") as file:
        file.seek(((int(slot) + 1) * SLOT_WORDS + STOPPED) * 8)
        return any(file.read(8))
    return False


def end_quickly(inherited: Inherited, first: object, code: int) -> None:
    """End the process without taking Python apart: that costs seconds of a change, and its peers wait for the end.

    What a program may count on still happens: its threads are waited for, functions registered with atexit run, and
    what it left open is closed. Returns where an object may want more than that, or where closing fails or takes too
    long: the interpreter then ends the process, and says what is lost.

    Args:
        inherited: of the objects that were there before the fork.
        first: an object that was made after it.
        code: the process's exit code.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001  what the interpreter itself calls first
    atexit.unregister(gc.unfreeze)
    atexit._run_exitfuncs()  # noqa: SLF001  and then
    objects = gc.get_objects()
    if not any(each is first for each in objects):  # the program has frozen its own objects
        gc.unfreeze()
        objects = gc.get_objects()
    close_and_exit([*inherited.objects(), *objects], code)
    gc.unfreeze()


def close_and_exit(objects: list[object], code: int) -> None:
    """Finish and close what there is among these objects, and end the process, unless that fails or takes too long.

    Args:
        objects: those that were not looked through before, and of the others those that are to be finished or closed.
        code: the process's exit code.
    """
    kinds = {type(each) for each in objects}
    closers = finalizers(objects, kinds) + closers_in_order(objects, kinds)
    objects.clear()
    thread = threading.Thread(target=call_all, args=(closers,), daemon=True)
    thread.start()
    thread.join(CLOSE_SECONDS)
    if closers:
        closers.clear()  # and with them what would keep the files from the interpreter
        return
    with contextlib.suppress(OSError, ValueError):
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        ctypes.CDLL(None).fflush(None)
        os._exit(code)


def finalizers(objects: Sequence[object], kinds: Iterable[type]) -> list[Callable[[], object]]:
    """What has the objects do what they do when they go, as the interpreter's own end does: each of them once.

    A file that such an object writes last words to is open until then.
    """
    finish = ctypes.pythonapi.PyObject_CallFinalizer
    finish.argtypes, finish.restype = [ctypes.py_object], None
    wanted = set(filter(has_finalizer, kinds))
    return [functools.partial(finish, each) for each in objects if type(each) in wanted]


def has_finalizer(kind: type) -> bool:
    """Whether objects of this class do something of their own when they go; the standard library's are closed here.

    Torch's give back memory and processes that end with this one.
    """
    owners = (base for base in kind.__mro__ if isinstance(base.__dict__.get("__del__"), types.FunctionType))
    packages = {str(owner.__module__).partition(".")[0] for owner in owners}
    return not packages <= {"torch", *sys.stdlib_module_names}


def closers_in_order(objects: Sequence[object], kinds: Iterable[type]) -> list[Callable[[], object]]:
    """What closes all that the program left open: text, compressed files and archives keep bytes back until then.

    Outer layers come first, so that a text file over a compressed one over a plain one is closed in this order.

    Args:
        objects: all of the process.
        kinds: their classes.
    """
    streams = (sys.stdin, sys.stdout, sys.stderr, sys.__stdin__, sys.__stdout__, sys.__stderr__)
    standard = {id(layer) for stream in streams for layer in layers(stream)}
    places = places_in_order(kinds)
    files: list[Any] = [each for each in objects if type(each) in places and id(each) not in standard]
    inner = {id(found) for file in files for found in referents(file)}
    files.sort(key=lambda each: (places[type(each)], id(each) in inner))
    return [file.close for file in files]


def call_all(closers: list[Callable[[], object]]) -> None:
    """Call one after the other; what has not returned stays in the list."""
    with contextlib.suppress(Exception):  # whatever it was, the interpreter's own end is the judge
        while closers:
            closers[0]()
            del closers[0]


def places_in_order(kinds: Iterable[type]) -> dict[type, int]:
    """When objects of these classes are closed; without those that need not be.

    Only what has a ``close`` is asked for its place: a question to an abstract class costs a third of a millisecond.
    """
    asked = {kind: place_in_order(kind) for kind in kinds if any("close" in base.__dict__ for base in kind.__mro__)}
    return {kind: place for kind, place in asked.items() if place is not None}


def place_in_order(kind: type) -> int | None:
    """When objects of this class are closed: archives, text, compressed, buffers, devices; None: they need not be."""
    if issubclass(kind, (loaded("zipfile", "ZipFile"), loaded("shelve", "Shelf"))):
        return 0
    if issubclass(kind, loaded("tempfile", "_TemporaryFileWrapper")):
        return 5  # takes its file away
    if not issubclass(kind, io.IOBase):
        return None
    if issubclass(kind, (io.BufferedWriter, io.BufferedRandom, io.BufferedReader)):
        return 3
    return 1 if issubclass(kind, io.TextIOBase) else 4 if issubclass(kind, io.RawIOBase) else 2


def loaded(module: str, name: str) -> Any:  # noqa: ANN401  a class, or an empty tuple of classes
    """A class of a module that the program may have imported."""
    return getattr(sys.modules.get(module), name, ())


def layers(stream: Any) -> Iterator[Any]:  # noqa: ANN401  a program may put anything there
    """A stream and what it writes through: text, buffer, device."""
    for _ in range(3):
        yield stream
        stream = getattr(stream, "buffer", None) or getattr(stream, "raw", None)


def referents(file: Any) -> Iterator[Any]:  # noqa: ANN401  any file
    """What a file refers to, also by its attributes."""
    for found in gc.get_referents(file):
        yield found
        if isinstance(found, dict):
            yield from found.values()


def park_threads_at_the_end() -> None:
    """Have a native thread wait that wants the interpreter while that is taken apart, as Python 3.14 has it.

    Before, such a thread is ended in the middle of a C++ frame, which aborts the process: a thread of gloo does that
    to a worker that has done all its work (https://github.com/pytorch/pytorch/issues/38228). C++ calls its terminate
    handler then; one that never returns keeps the thread, and the main thread ends the process. Where the main thread
    itself comes to that handler, an alarm ends the process.
    """
    if sys.version_info >= (3, 14) or "torch" not in sys.modules:
        return
    with contextlib.suppress(OSError, AttributeError):
        set_terminate = ctypes.CDLL("libstdc++.so.6")._ZSt13set_terminatePFvvE  # noqa: SLF001  std::set_terminate
        set_terminate.argtypes, set_terminate.restype = [ctypes.c_void_p], ctypes.c_void_p
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(END_SECONDS)
        set_terminate(ctypes.cast(ctypes.CDLL(None).pause, ctypes.c_void_p))


def main() -> None:
    """Entry of a worker that was started cold."""
    kind, target, *arguments = sys.argv[1:]
    prepare(os.environ)
    set_title(target, os.environ)
    run_to_the_end(kind, target, arguments)


if __name__ == "__main__":
    main()
