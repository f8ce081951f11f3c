"""The look at a cluster node before training: what it finds, what it says, and the code with which it ends."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from elastic_infra.launcher import health
from elastic_infra.launcher.exit_codes import RETRY

ROOT = Path(__file__).parents[2]


def check(*arguments: object, path: str = "", **environ: str) -> tuple[int, str]:
    """Exit code and output of the program, with modules searched in `path` first."""
    done = subprocess.run(
        [sys.executable, "-m", "elastic_infra.launcher.health", *map(str, arguments)],
        env={**os.environ, "ELASTIC_INFRA_CLUSTER_NODE": "gpu-7", **environ, "PYTHONPATH": f"{path}:{ROOT}"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, (done.stdout + done.stderr).strip()


def torch(folder: Path, text: str) -> str:
    """A folder with another torch, in place of GPUs."""
    (folder / "torch.py").write_text(text)
    return str(folder)


def test_a_fit_node_is_named_too(tmp_path: Path) -> None:
    """Nothing is left in the folder."""
    assert check(tmp_path, "--disk", 1) == (0, "health: cluster node gpu-7 is fit to train.")
    assert [*tmp_path.iterdir()] == []


def test_too_little_room_is_named_with_what_is_asked_for(tmp_path: Path) -> None:
    """The code is one after which the pod is made anew."""
    code, said = check(tmp_path, "--disk", 2**60)

    assert code == RETRY
    assert said.startswith(f"health: cluster node gpu-7 is not fit to train: {tmp_path} has ")
    assert said.endswith("and 1.07e+09 GiB are asked for.")


def test_a_folder_that_refuses_writes_is_named_with_the_reason(tmp_path: Path) -> None:
    """Every fault of the node is in the one line."""
    code, said = check(tmp_path / "none", "/proc/version")

    assert code == RETRY
    assert (
        "none cannot be written: No such file or directory; /proc/version cannot be written: Not a directory." in said
    )


SEVEN = """
class cuda:
    @staticmethod
    def device_count(): return 7
class ones:
    def __init__(self, *_, device): assert device.startswith("cuda:")
    def sum(self): return self
    def item(self): return 1.0
"""


def test_a_missing_gpu_is_counted(tmp_path: Path) -> None:
    """The number that torch can use counts, not what a driver lists."""
    path = torch(tmp_path, SEVEN)

    assert check("--gpus", 7, path=path) == (0, "health: cluster node gpu-7 is fit to train.")
    assert check("--gpus", 8, path=path) == (
        RETRY,
        "health: cluster node gpu-7 is not fit to train: it shows 7 of 8 GPUs.",
    )


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("raise RuntimeError('CUDA error: uncorrectable ECC error')", "RuntimeError: CUDA error: uncorrectable ECC"),
        ("raise ImportError('libcuda.so.1: no such file')", "ImportError: libcuda.so.1"),
        ("import os; os.kill(os.getpid(), 11)", "it said nothing"),
    ],
)
def test_a_gpu_that_does_not_compute_is_told_in_its_own_words(tmp_path: Path, program: str, said: str) -> None:
    """The last line, of which a pod's status has room; a crash of the driver ends only the child."""
    code, output = check("--gpus", 1, path=torch(tmp_path, program))

    assert code == RETRY
    assert f"its GPUs do not compute: {said}" in output


CUDAS = """CUDA error: invalid device ordinal
CUDA kernel errors might be asynchronously reported at some other API call.
Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions."""
"""An error as torch has it."""


def test_the_advice_below_an_error_is_left_out(tmp_path: Path) -> None:
    """The error's own line says what is wrong, whatever follows it."""
    warning = "import atexit; atexit.register(print, 'a warning at the end', flush=True)"
    code, said = check("--gpus", 1, path=torch(tmp_path, f"{warning}; raise RuntimeError({CUDAS!r})"))

    assert code == RETRY
    assert said.endswith("its GPUs do not compute: RuntimeError: CUDA error: invalid device ordinal.")


@pytest.mark.launcher
def test_an_error_in_a_group_is_told_without_the_rank_before_each_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a group was made, torch writes the rank in front of each line."""
    program = health.LOOPBACK.replace("dist.destroy_process_group()", f"raise RuntimeError({CUDAS!r})")
    monkeypatch.setattr(health, "LOOPBACK", program)

    assert [*health.loopback_faults(1)] == [
        "GPU 0 cannot add up with the others: RuntimeError: CUDA error: invalid device ordinal"
    ]


def test_a_driver_that_hangs_is_a_fault_after_the_timeout(tmp_path: Path) -> None:
    """Nothing of the check outlives it."""
    path = torch(tmp_path, "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(1000)")
    program = f"import os; os.chdir({str(tmp_path)!r})\n" + (tmp_path / "torch.py").read_text()
    torch(tmp_path, program)
    began = time.monotonic()

    code, said = check("--gpus", 1, "--timeout", 2, path=path)

    assert (code, time.monotonic() - began < 60) == (RETRY, True)
    assert said.endswith("is not fit to train: the check did not end within 2 s.")
    assert ended(int((tmp_path / "pid").read_text()))


def ended(pid: int) -> bool:
    """Whether a process is gone, or waits for nobody but its parent."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            if "State:\tZ" in Path(f"/proc/{pid}/status").read_text():
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.launcher
def test_processes_add_up_over_the_loopback() -> None:
    """The very program that runs with NCCL on GPUs, here with gloo."""
    assert [*health.loopback_faults(2)] == []


def test_a_broken_link_ends_all_processes_and_names_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others would wait for the broken one for as long as NCCL does."""
    monkeypatch.setattr(
        health, "LOOPBACK", "import os, time; os.environ['RANK'] == '1' and exit('NCCL error: remote'); time.sleep(99)"
    )
    began = time.monotonic()

    assert [*health.loopback_faults(3)] == ["GPU 1 cannot add up with the others: NCCL error: remote"]
    assert time.monotonic() - began < 30


def test_output_beyond_a_pipes_room_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """NCCL_DEBUG=INFO writes a lot."""
    monkeypatch.setattr(health, "LOOPBACK", "print('x' * 10_000_000)")

    assert [*health.loopback_faults(1)] == []
