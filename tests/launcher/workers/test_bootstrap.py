"""What runs first in a worker leaves the program as the interpreter itself would run it."""

from __future__ import annotations

import concurrent.futures
import importlib.util
import json
import os
import pathlib
import socket
import subprocess
import sys
import time
import types
import zipfile

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


ENDS = """
import atexit, sys, threading, time
{imports}
class Owned:
    def __del__(self):
        print("taken apart")
owned = Owned()
atexit.register(lambda: print("exit function"))
threading.Thread(target=lambda: (time.sleep(0.2), print("thread"))).start()
print("script")
{end}
"""


@pytest.mark.launcher
@pytest.mark.parametrize("end", ["", "sys.exit()", "sys.exit(0)"])
def test_what_torch_trained_ends_without_taking_python_apart(script: pathlib.Path, end: str) -> None:
    """Threads and exit functions of a success had their turn; torch's modules, and what else is global, stay whole."""
    pytest.importorskip("torch")
    script.write_text(ENDS.format(imports="import torch", end=end))
    done = run("script", script)

    assert (done.returncode, done.stdout.split("\n")) == (0, ["script", "thread", "exit function", ""])


@pytest.mark.launcher
@pytest.mark.parametrize(
    ("imports", "end", "environ", "code"),
    [
        ("import json", "", {}, 0),
        ("import torch", "sys.exit(3)", {}, 3),
        ("import torch", "raise ValueError", {}, 1),
        ("import torch", "", {"CUDA_INJECTION64_PATH": "/profiler.so"}, 0),
    ],
    ids=["no torch", "another exit code", "failure", "a profiler"],
)
def test_other_ends_are_the_interpreters(
    script: pathlib.Path, imports: str, end: str, environ: dict[str, str], code: int
) -> None:
    """What failed, has no torch, or holds a tool that reports at the C library's exit, ends as under python itself."""
    pytest.importorskip("torch")
    script.write_text(ENDS.format(imports=imports, end=end))
    done = run("script", script, **environ)

    assert (done.returncode, done.stdout.split("\n")) == (
        code,
        ["script", "thread", "exit function", "taken apart", ""],
    )


@pytest.mark.launcher
def test_output_that_cannot_be_flushed_ends_as_under_python(script: pathlib.Path) -> None:
    """Lost output is never a success."""
    pytest.importorskip("torch")
    script.write_text("import sys, torch\nsys.stdout = open('/dev/full', 'w')\nprint('lost')\n")

    assert run("script", script).returncode == 120


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


def test_imports_are_named_and_searches_are_not(script: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """What was imported is recorded for the fork server; what was only looked for is not."""
    names = tmp_path / "names"
    script.write_text("import importlib.util, colorsys\nimportlib.util.find_spec('turtle')\n")
    run("script", script, ELASTIC_INFRA_MODULES=str(names))

    assert "colorsys" in names.read_text().split()
    assert "turtle" not in names.read_text().split()


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
    theirs = (progress.WORDS, progress.OPTIMIZED_AT, progress.FAILED_AT)
    assert (bootstrap.SLOT_WORDS, bootstrap.OPTIMIZED_AT, bootstrap.FAILED_AT) == theirs


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
