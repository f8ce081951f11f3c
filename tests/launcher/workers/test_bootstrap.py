"""What runs first in a worker leaves the program as the interpreter itself would run it."""

from __future__ import annotations

import bz2
import concurrent.futures
import gzip
import importlib.util
import json
import lzma
import os
import pathlib
import py_compile
import shelve
import signal
import socket
import subprocess
import sys
import time
import types
import zipfile
from collections.abc import Callable, Iterator

import pytest

from elastic_infra.launcher.workers import bootstrap, progress
from tests.ports import free_port

BOOTSTRAP = pathlib.Path(__file__).parents[3] / "elastic_infra" / "launcher" / "workers" / "bootstrap.py"


def run(kind: str, target: pathlib.Path | str, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-u", str(BOOTSTRAP), kind, str(target), *arguments],
        env={**os.environ, "RANK": "3", **environ},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def script(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "train.py"


def test_a_failure_is_shown_and_left_behind(script: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """The traceback begins in the program, the exit code is 1, and the error file is one that torch reads."""
    script.write_text("def go():\n    raise ValueError('no data')\ngo()\n")
    error_file = tmp_path / "error.json"
    done = run("script", script, TORCHELASTIC_ERROR_FILE=str(error_file))
    message = json.loads(error_file.read_text())["message"]

    assert done.returncode == 1
    assert "bootstrap.py" not in done.stderr
    assert done.stderr.splitlines()[-1] == "ValueError: no data"
    assert message["message"] == "ValueError: no data"
    assert "in go" in message["extraInfo"]["py_callstack"]


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("import sys; sys.exit('no data')", "SystemExit: no data (train.py:1: import sys; sys.exit('no data'))"),
        ("assert 5 % 2 == 0", "AssertionError (train.py:1: assert 5 % 2 == 0)"),
        ("assert False, 'uneven'", "AssertionError: uneven (train.py:1: assert False, 'uneven')"),
    ],
)
def test_ends_without_an_exception_of_their_own(
    script: pathlib.Path, tmp_path: pathlib.Path, statement: str, said: str
) -> None:
    """An exit with a text, and an assertion, are left with their text, place and source line."""
    script = script.with_name("train.py")
    script.write_text(statement)
    error_file = tmp_path / "error.json"
    done = run("script", script, TORCHELASTIC_ERROR_FILE=str(error_file))

    assert done.returncode == 1
    assert json.loads(error_file.read_text())["message"]["message"] == said


@pytest.mark.parametrize(("statement", "code"), [("raise SystemExit(5)", 5), ("import sys; sys.exit()", 0)])
def test_exit_codes_pass_through(script: pathlib.Path, statement: str, code: int) -> None:
    """A program's own exit is its own."""
    script.write_text(statement)

    assert run("script", script).returncode == code


def test_spawned_children_find_main(script: pathlib.Path) -> None:
    """Loaders that are spawned import the script by its path, as under the interpreter."""
    script.write_text(
        "import multiprocessing as mp\n"
        "def double(n):\n    return 2 * n\n"
        "if __name__ == '__main__':\n"
        "    with mp.get_context('spawn').Pool(1) as pool:\n        print(pool.map(double, [21]))\n"
    )

    assert run("script", script).stdout == "[42]\n"


def test_globals_live_until_the_end(script: pathlib.Path) -> None:
    """Functions registered with atexit still see the program's names."""
    script.write_text("import atexit\nNAME = 'kept'\natexit.register(lambda: print(NAME))\n")

    assert run("script", script).stdout == "kept\n"


@pytest.fixture
def told(tmp_path: pathlib.Path) -> Iterator[dict[str, str]]:
    """The environment of a worker whose ``Progress.step`` says stop; a small stand-in plays torch."""
    package = tmp_path / "path" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    memory = progress.Memory.create(str(tmp_path / "memory"), 1)
    memory.set_stop(1, agreed=True)
    yield {**memory.variable(0), "PYTHONPATH": os.pathsep.join([str(package.parent), str(BOOTSTRAP.parents[3])])}
    memory.close()


STOP = "from elastic_infra.training import Progress\nassert Progress().step(1)\n"
ENDS = """
import atexit, sys, threading, time
{imports}
class Owned:
    def __del__(self):
        print("taken apart")
Owned.__module__ = "torch"  # what a program's own class does when its objects go has its turn in a quick end, too
owned = Owned()
atexit.register(lambda: print("exit function"))
threading.Thread(target=lambda: (time.sleep(0.2), print("thread"))).start()
print("script")
{end}
"""


QUICK_END = ["script", "thread", "exit function", ""]


@pytest.mark.parametrize("end", ["", "sys.exit()", "sys.exit(0)"])
def test_a_planned_stop_ends_without_taking_python_apart(script: pathlib.Path, told: dict[str, str], end: str) -> None:
    """Threads and exit functions had their turn; torch's modules, and what else is global, stay whole."""
    script.write_text(STOP + ENDS.format(imports="import torch", end=end))
    done = run("script", script, **told)

    assert (done.returncode, done.stdout.split("\n")) == (0, QUICK_END)


FINALIZERS = """
import sys, torch
class Writer:
    __slots__ = ("file", "word")
    def __init__(self, word):
        self.file, self.word = open(sys.argv[1], "a"), word
    def __del__(self):
        self.file.write(self.word)
gone, kept, failing = Writer("gone "), Writer("kept"), Writer(1)
del gone
"""


@pytest.mark.parametrize("end", ["planned stop", "failure"])
def test_what_an_object_does_when_it_goes_is_done_once(
    script: pathlib.Path, tmp_path: pathlib.Path, told: dict[str, str], end: str
) -> None:
    """Before the file is closed that it writes to, and with the interpreter's words where that fails."""
    script.write_text({"planned stop": STOP}.get(end, "") + FINALIZERS + {"failure": FAILURE}.get(end, ""))
    done = run("script", script, str(tmp_path / "written"), **told)

    assert done.returncode == (end == "failure")
    assert (tmp_path / "written").read_text() == "gone kept"
    assert done.stderr.count("TypeError: write() argument must be str, not int") == 1


INHERITS = """
import atexit, gc, sys, torch
sys.path.insert(0, sys.argv[1])
import bootstrap
exec(open(sys.argv[2]).read())  # what a module does that the fork server loads
inherited = bootstrap.Inherited()
inherited.freeze()
del failing
bootstrap.end_quickly(inherited, object(), 3)
"""


def test_a_forked_worker_s_end_is_that_of_what_it_inherited_too(
    script: pathlib.Path, tmp_path: pathlib.Path, told: dict[str, str]
) -> None:
    """What a module has made before the fork is finished and closed, unless it has gone since."""
    (module := tmp_path / "module.py").write_text(FINALIZERS.replace("sys.argv[1]", "sys.argv[3]"))
    script.write_text(INHERITS)
    arguments = (script, BOOTSTRAP.parent, module, tmp_path / "written")
    done = subprocess.run(
        [sys.executable, *arguments], env={**os.environ, **told}, capture_output=True, text=True, check=False
    )

    assert done.returncode == 3, done.stderr
    assert (tmp_path / "written").read_text() == "gone kept"
    assert done.stderr.count("TypeError") == 1


@pytest.mark.launcher
def test_nothing_of_torch_is_in_the_way_of_a_quick_end(script: pathlib.Path, told: dict[str, str]) -> None:
    """With the real one, and all that an optimizer loads."""
    pytest.importorskip("torch")
    del told["PYTHONPATH"]
    script.write_text(STOP + ENDS.format(imports="import torch, torch._dynamo, torch.distributed", end=""))
    done = run("script", script, **told)

    assert (done.returncode, done.stdout.split("\n")) == (0, QUICK_END)


FAILURE = "raise ValueError('no data')"


def test_a_failure_ends_without_taking_python_apart(script: pathlib.Path, told: dict[str, str]) -> None:
    """Its peers wait for the end of the process; the exception is shown once, before exit functions have their turn."""
    script.write_text(ENDS.format(imports="import torch", end=FAILURE))
    done = run("script", script, **told)

    assert (done.returncode, done.stdout.split("\n")) == (1, QUICK_END)
    assert done.stderr.count("ValueError: no data") == 1


@pytest.mark.parametrize("hook", ["None", "lambda *_: 1 / 0", "lambda *_: sys.exit(5)"])
def test_a_hook_that_fails_is_told_of_as_under_python(script: pathlib.Path, told: dict[str, str], hook: str) -> None:
    """What the program has made of exceptions is its own."""
    script.write_text(f"import sys, torch\nsys.excepthook = {hook}\n{FAILURE}\n")
    done, pythons = run("script", script, **told), [sys.executable, str(script)]
    expected = subprocess.run(pythons, env={**os.environ, **told}, capture_output=True, text=True, check=False)

    assert done.returncode == expected.returncode
    assert done.stderr.splitlines()[-1:] == expected.stderr.splitlines()[-1:]


BLOCKS = "import os\nblocks = open(os.pipe()[1], 'wb', 1 << 20)\nblocks.write(bytes(1 << 19))\n"
"""A pipe that is not read from takes no more than 64 KB."""
H5PY = "sys.modules['h5py'] = types.ModuleType('h5py')"
"""Files of HDF5 are closed as C exits."""
PROFILER = {"CUDA_INJECTION64_PATH": "/profiler.so"}
OTHER_ENDS = {
    "not told": (ENDS.format(imports="import torch", end=""), {}, 0),
    "no torch": (STOP + ENDS.format(imports="", end=""), {}, 0),
    "another exit code": (STOP + ENDS.format(imports="import torch", end="sys.exit(3)"), {}, 3),
    "failure without torch": (ENDS.format(imports="", end=FAILURE), {}, 1),
    "failure under a profiler": (ENDS.format(imports="import torch", end=FAILURE), PROFILER, 1),
    "interrupt": (ENDS.format(imports="import torch", end="raise KeyboardInterrupt"), {}, -signal.SIGINT),
    "h5py": (STOP + ENDS.format(imports=f"import torch, types\n{H5PY}", end=""), {}, 0),
    "a profiler": (STOP + ENDS.format(imports="import torch", end=""), PROFILER, 0),
    "closing takes too long": (STOP + ENDS.format(imports="import torch", end=BLOCKS), {}, 0),
}


@pytest.mark.parametrize("case", OTHER_ENDS)
def test_other_ends_are_the_interpreters(script: pathlib.Path, told: dict[str, str], case: str) -> None:
    """What neither failed nor was told to stop, has no torch, or may lose something, ends as under python itself."""
    source, environ, code = OTHER_ENDS[case]
    script.write_text(source)
    done = run("script", script, **told, **environ)

    assert (done.returncode, done.stdout.split("\n")) == (
        code,
        ["script", "thread", "exit function", "taken apart", ""],
    )


ENDS_WITH_WORK_UNDER_WAY = """
import builtins, os, pathlib, sys, time
import torch
import torch.distributed as dist
ending = pathlib.Path(sys.argv[1])
class Slow:
    def __del__(self):
        ending.touch()
        time.sleep(2)
Slow.__module__ = "torch"
dist.init_process_group("gloo")
one = torch.ones(1)
dist.barrier()
if dist.get_rank() == 0:
    builtins.slow = Slow()  # goes when the interpreter no longer lets other threads in
    dist.all_reduce(one, async_op=True).get_future().then(lambda _: None)
else:
    while not ending.exists():
        time.sleep(0.01)
    dist.all_reduce(one)
    time.sleep(2)
"""


@pytest.mark.launcher
def test_a_thread_of_gloo_does_not_abort_a_worker_that_has_done_its_work(
    script: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """It wants the interpreter, which is being taken apart, for the callback of a collective that ends only now."""
    pytest.importorskip("torch")
    script.write_text(ENDS_WITH_WORK_UNDER_WAY)
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    with concurrent.futures.ThreadPoolExecutor() as pool:
        ranks = [pool.submit(run, "script", script, str(tmp_path / "ending"), RANK=rank, **meeting) for rank in "01"]

    assert [(rank.result().returncode, rank.result().stderr) for rank in ranks] == [(0, "")] * 2


LEFT_OPEN = """
import bz2, gzip, io, itertools, lzma, os, shelve, sys, tempfile, zipfile, torch
os.chdir(sys.argv[1])
kept = []
packers = {"gz": lambda file: gzip.GzipFile(fileobj=file, mode="wb"), "bz2": lambda file: bz2.BZ2File(file, "wb"),
           "xz": lambda file: lzma.LZMAFile(file, "wb")}
stacks = [(), *((each,) for each in packers), *itertools.product(packers, repeat=2)]
for buffering, kind, packed in itertools.product((0, -1), ("text", "bytes"), stacks):
    file = open("-".join([str(buffering * -1), kind, *packed]), "wb", buffering)
    for packer in packed:
        file = packers[packer](file)
    if kind == "text":
        file = io.TextIOWrapper(file)
    file.write("kept" if kind == "text" else b"kept")
    kept.append(file)
archive = zipfile.ZipFile("archive.zip", "w")
archive.writestr("name", "kept")
shelf = shelve.open("shelf", writeback=True)
shelf["name"] = ["ke"]
shelf["name"].append("pt")
temporary = tempfile.NamedTemporaryFile("w", dir=".", prefix="temporary")
temporary.write("kept")
print("printed")
"""


@pytest.mark.parametrize("end", ["end", "planned stop", "failure"])
def test_files_left_open_are_whole(
    script: pathlib.Path, tmp_path: pathlib.Path, told: dict[str, str], end: str
) -> None:
    """Whatever lies on whatever: what a program has written and not closed is on disk, as under python itself."""
    script.write_text({"planned stop": STOP}.get(end, "") + LEFT_OPEN + {"failure": FAILURE}.get(end, ""))
    folder = tmp_path / "output"
    folder.mkdir()
    done = run("script", script, str(folder), **told)
    unpack: dict[str, Callable[[bytes], bytes]] = {"gz": gzip.decompress, "bz2": bz2.decompress, "xz": lzma.decompress}
    stacks = sorted(folder.glob("*-*"))

    assert (done.returncode, done.stdout) == (end == "failure", "printed\n")
    assert done.stderr.splitlines()[-1:] == ["ValueError: no data"] * (end == "failure")
    assert len(stacks) == 2 * 2 * 13
    for path in stacks:
        content = path.read_bytes()
        for packer in path.name.split("-")[2:]:
            content = unpack[packer](content)
        assert content == b"kept", path.name
    assert zipfile.ZipFile(folder / "archive.zip").read("name") == b"kept"
    with shelve.open(str(folder / "shelf"), "r") as shelf:
        assert shelf["name"] == ["ke", "pt"]
    assert not list(folder.glob("temporary*"))


def test_hdf5_files_left_open_are_whole(script: pathlib.Path, tmp_path: pathlib.Path, told: dict[str, str]) -> None:
    """Also where only a dataset of the file is still held."""
    h5py = pytest.importorskip("h5py")
    script.write_text(f"{STOP}import sys, h5py, torch\nkept = h5py.File(sys.argv[1], 'w').create_dataset('n', (9,))\n")
    done = run("script", script, str(tmp_path / "data.h5"), **told)

    assert done.returncode == 0, done.stderr
    assert h5py.File(tmp_path / "data.h5")["n"].shape == (9,)


@pytest.mark.parametrize(
    ("first", "last"), [("", ""), (STOP, ""), ("", FAILURE)], ids=["end", "planned stop", "failure"]
)
def test_output_that_cannot_be_flushed_ends_as_under_python(
    script: pathlib.Path, told: dict[str, str], first: str, last: str
) -> None:
    """Lost output is never a success."""
    script.write_text(f"{first}import sys, torch\nsys.stdout = open('/dev/full', 'w')\nprint('lost')\n{last}\n")

    assert run("script", script, **told).returncode == 120


def test_folders_and_archives(tmp_path: pathlib.Path) -> None:
    """A folder or an archive runs its __main__ with itself first on the path."""
    source = "import sys, beside\nprint(beside.X, __name__, sys.argv[1:])\n"
    folder = tmp_path / "app"
    folder.mkdir()
    (folder / "__main__.py").write_text(source)
    (folder / "beside.py").write_text("X = 1\n")
    archive = tmp_path / "app.pyz"
    with zipfile.ZipFile(archive, "w") as file:
        file.write(folder / "__main__.py", "__main__.py")
        file.write(folder / "beside.py", "beside.py")

    for target in (folder, archive):
        assert run("script", target, "--a").stdout == "1 __main__ ['--a']\n"


def test_title(script: pathlib.Path) -> None:
    """The process is named after script and rank, within the kernel's 15 bytes."""
    script.write_text("print(open('/proc/self/comm').read().strip())\n")

    assert run("script", script).stdout == "train:3\n"
    assert run("script", script, RANK="1234567").stdout == "train:1234567\n"


def test_stacks_on_demand(script: pathlib.Path) -> None:
    """The dump signal writes the stacks and the program goes on."""
    script.write_text(
        "import os, signal\ndef here():\n    os.kill(os.getpid(), signal.SIGRTMIN + 7)\nhere()\nprint('alive')\n"
    )
    done = run("script", script)

    assert "in here" in done.stderr
    assert done.stdout == "alive\n"


@pytest.mark.launcher
def test_collective_timeout_in_both_places(script: pathlib.Path) -> None:
    """Torch's default timeouts are the user's in both modules that hold them, for gloo and for NCCL."""
    pytest.importorskip("torch")
    script.write_text(
        "import sys\nassert 'torch' not in sys.modules\n"
        "import torch.distributed as dist\n"
        "for module in (dist.constants, dist.distributed_c10d):\n"
        "    for name in ('default_pg_timeout', 'default_pg_nccl_timeout'):\n"
        "        value = getattr(module, name)\n"
        "        print(value and value.total_seconds())\n"
    )
    done = run("script", script, ELASTIC_INFRA_NCCL_COLLECTIVE_TIMEOUT_SECONDS="77")

    assert set(done.stdout.split()) <= {"77.0", "None"}
    assert done.stdout.split().count("77.0") >= 2


def test_imports_are_recorded_and_searches_are_not(script: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Each import with its origin, and with what the program had changed before; what was only looked for is not."""
    path = tmp_path / "modules"
    script.write_text(
        "import importlib.util, os, sys, warnings\nos.environ['MODE'] = 'fast'\ndel os.environ['GONE']\n"
        "import colorsys\nsys.path.append('extra')\nwarnings.simplefilter('ignore')\n"
        "import cmd\nimportlib.util.find_spec('turtle')\n"
    )
    run("script", script, ELASTIC_INFRA_MODULES=str(path), GONE="here")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    found = {name: rest for name, *rest in lines}

    assert found["colorsys"][0] == importlib.util.find_spec("colorsys").origin  # type: ignore[union-attr]
    assert found["colorsys"][1]["environ"] == {"MODE": "fast", "GONE": None}
    assert "extra" not in found["colorsys"][1]["path"]
    assert found["cmd"][1]["path"][-1] == "extra"
    assert found["cmd"][1]["filters"][0] == ["ignore", None, "builtins", "Warning", None, 0]
    assert "turtle" not in found


def test_an_entry_of_the_path_that_is_no_text_is_passed_over(script: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Python ignores such entries, and the record of imports fails no import because of them."""
    path = tmp_path / "modules"
    script.write_text("import pathlib, sys\nsys.path += [pathlib.Path('x'), b'y', 'z']\nimport colorsys\n")
    done = run("script", script, ELASTIC_INFRA_MODULES=str(path))
    (line,) = [found for found in map(json.loads, path.read_text().splitlines()) if found[0] == "colorsys"]

    assert (done.returncode, done.stderr) == (0, "")
    assert line[2]["path"][-1] == "z"


def test_a_forked_child_records_nothing(script: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """What a loader's process imports says nothing of what the worker does."""
    path = tmp_path / "modules"
    script.write_text("import os\nif os.fork() == 0:\n    import colorsys\n    os._exit(0)\nos.wait()\n")
    run("script", script, ELASTIC_INFRA_MODULES=str(path))

    assert "colorsys" not in path.read_text()


@pytest.mark.parametrize("name", ["train.pyc", "train"])
def test_bytecode_runs(script: pathlib.Path, name: str) -> None:
    """As under the interpreter, which tells bytecode by its name or its first bytes."""
    script.write_text("import sys\nprint(__name__, sys.argv[1:], sys.path[0])\n")
    compiled = script.with_name(name)
    py_compile.compile(str(script), str(compiled), doraise=True)
    usual = subprocess.run([sys.executable, str(compiled), "--a"], capture_output=True, text=True, check=True)

    assert run("script", compiled, "--a").stdout == usual.stdout == f"__main__ ['--a'] {script.parent}\n"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.11 has PYTHONSAFEPATH")
@pytest.mark.parametrize("kind", ["script", "module"])
def test_a_safe_path_is_left_alone(script: pathlib.Path, tmp_path: pathlib.Path, kind: str) -> None:
    """The first entry of PYTHONPATH stays first, and no folder is put before it."""
    script.write_text("import sys\nprint(sys.path[0])\n")
    target = str(script) if kind == "script" else script.stem
    environ = {"PYTHONSAFEPATH": "1", "PYTHONPATH": f"{tmp_path}{os.pathsep}/second"}

    assert run(kind, target, **environ).stdout == f"{tmp_path}\n"


def test_builtins_are_the_module(script: pathlib.Path) -> None:
    """As in every ``__main__``; in a module that is imported they are its dictionary."""
    script.write_text("print(type(__builtins__).__name__)\n")

    assert run("script", script).stdout == "module\n"


def test_a_rank_connects_once_the_first_one_listens() -> None:
    """Torch, which looks again only half a second after it found no listener, is not asked before there is one."""
    port = free_port()
    module = types.ModuleType("rendezvous")

    def connects(host: str, port: int, _rank: int) -> bool:
        with socket.socket() as client:
            return client.connect_ex((host, port)) == 0

    setattr(module, bootstrap.MAKE_STORE, connects)
    bootstrap.make_store_patient(module)
    make = getattr(module, bootstrap.MAKE_STORE)
    assert not make("127.0.0.1", port, 0)
    with socket.socket() as listener, concurrent.futures.ThreadPoolExecutor() as pool:
        listener.bind(("127.0.0.1", port))
        answer = pool.submit(make, "127.0.0.1", port, 1)
        assert not concurrent.futures.wait([answer], timeout=0.2).done
        listener.listen()

        assert answer.result(timeout=60)


@pytest.mark.parametrize(("host", "port"), [("no.such.host.invalid", 1), ("127.0.0.1", -1), (None, None)])
def test_what_cannot_be_reached_is_left_to_torch(host: str | None, port: int | None) -> None:
    """Whatever is wrong, torch's own call says it."""
    module = types.ModuleType("rendezvous")
    setattr(module, bootstrap.MAKE_STORE, lambda *arguments: arguments)
    bootstrap.make_store_patient(module)

    assert getattr(module, bootstrap.MAKE_STORE)(host, port, 1) == (host, port, 1)


def test_a_group_forms_though_its_first_rank_is_late(script: pathlib.Path) -> None:
    """With real torch: both ranks join, and no rank prints a word about the connection that only looked."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("needs torch")
    script.write_text(
        "import sys\nimport torch\nimport torch.distributed as dist\n"
        "print('ready', flush=True)\nsys.stdin.readline()\n"
        "dist.init_process_group('gloo')\ntotal = torch.ones(1)\ndist.all_reduce(total)\nprint(int(total))\n"
        "dist.barrier()\ndist.destroy_process_group()\n"
    )
    common = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    first, second = (
        subprocess.Popen(
            [sys.executable, "-u", str(BOOTSTRAP), "script", str(script)],
            env={**common, "RANK": str(rank)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in (0, 1)
    )
    for rank in (first, second):
        assert rank.stdout is not None
        assert rank.stdout.readline() == "ready\n"
    assert second.stdin is not None
    second.stdin.write("go\n")
    second.stdin.flush()

    assert [first.communicate("go\n")[0], second.communicate()[0]] == ["2\n", "2\n"]


STEPS = """
import sys
import torch
w = torch.nn.Parameter(torch.zeros(1))
optimizer = torch.optim.SGD([w], lr=0.1)
for _ in range(2):
    w.sum().backward()
    optimizer.step()
    print(open(sys.argv[1], "rb").read().hex())
"""


def test_first_step_of_the_optimizer_is_noted(script: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """A script that reports nothing is seen to step, once and in its own slot; no step is reported for it."""
    script.write_text(STEPS)
    memory = progress.Memory.create(str(tmp_path / "memory"), 2)
    begun = time.monotonic()
    done = run("script", script, memory.path, **memory.variable(1))
    other, own = memory.read()

    assert done.returncode == 0, done.stderr
    assert len(set(done.stdout.split())) == 1
    assert own.optimized_at is not None
    assert begun < own.optimized_at < time.monotonic()
    assert (own.step, own.reports, other.optimized_at) == (None, 0, None)
    memory.close()


def test_slots_are_where_the_agent_reads_them() -> None:
    """The file that runs in workers imports nothing of ours, so it spells the layout again."""
    assert bootstrap.PROGRESS == progress.VARIABLE
    theirs = (progress.WORDS, progress.STOPPED, progress.OPTIMIZED_AT, progress.FAILED_AT)
    assert theirs == (bootstrap.SLOT_WORDS, bootstrap.STOPPED, bootstrap.OPTIMIZED_AT, bootstrap.FAILED_AT)


@pytest.mark.parametrize(
    ("text", "fails"), [("raise ValueError", True), ("import sys; sys.exit(3)", True), ("", False)]
)
def test_failure_is_noted_before_the_process_ends(
    script: pathlib.Path, tmp_path: pathlib.Path, text: str, fails: bool
) -> None:
    """The agent learns of an exception at once; functions registered with atexit may run for long after it."""
    script.write_text(f"import atexit, time; atexit.register(time.sleep, 0.5)\n{text}\n")
    memory = progress.Memory.create(str(tmp_path / "memory"), 1)
    done = run("script", script, **memory.variable(0))
    (slot,) = memory.read()

    assert (done.returncode != 0, slot.failed_at is not None) == (fails, fails)
    assert slot.failed_at is None or slot.failed_at < time.monotonic() - 0.5
    memory.close()


def test_program_without_torch_stays_without(script: pathlib.Path) -> None:
    """The hook waits for the program's own import."""
    script.write_text("import sys; print('torch' in sys.modules)")

    assert run("script", script, ELASTIC_INFRA_PROGRESS="0:/nowhere").stdout == "False\n"
