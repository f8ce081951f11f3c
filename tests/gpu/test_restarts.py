"""What a restart finds on a GPU, and what becomes of a job on NCCL when nodes come."""

from __future__ import annotations

import json
import pathlib
import sys
from collections.abc import Iterator

import pytest

from tests.gpu import device as devices
from tests.gpu.conftest import QUICK, Start
from tests.launcher.launched import ROOT, Launched
from tests.launcher.scenarios.elastic_jobs import assert_as_undisturbed

pytestmark = [pytest.mark.gpu, pytest.mark.launcher, pytest.mark.timeout(600)]

SCRIPTS = pathlib.Path(__file__).parent / "scripts"
JOURNALS = ROOT / "tests" / "launcher" / "scripts"
HELD = 2**30
MODULES = {
    "cuda": {
        "asks": "import torch\nHAS = torch.cuda.is_available()\n",
        "opens": "import torch\nHELD = torch.zeros(1, device='cuda')\n",
    },
    "cpu": {
        "asks": "import socket\nHAS = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n",
        "opens": "import socket\nHELD = socket.socket()\n",
    },
}
"""What touches the device as it is imported; on the CPU an open socket is what a fork cannot share."""


@pytest.fixture
def restarted(device: devices.Kind, tmp_path: pathlib.Path) -> Iterator[Launched]:
    """A job of one worker, which held memory of its device when it was killed and forked anew."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    installed = tmp_path / "lib" / version / "site-packages"  # only what is installed is loaded before a fork
    installed.mkdir(parents=True)
    for name, source in MODULES[device].items():
        (installed / f"{name}.py").write_text(source)
    launch = Launched(
        tmp_path,
        *("--nproc-per-node", "1", "--max-restarts", "1"),
        *(str(SCRIPTS / "context.py"), device, str(HELD)),
        environ={
            "ELASTIC_INFRA_EVENTS": str(tmp_path / "events"),
            "PYTHONUSERBASE": str(tmp_path),
            "PYTHONPATH": f"{ROOT}:{JOURNALS}:{installed}",
            "OMP_NUM_THREADS": "1",
        },
    )
    assert launch.wait() == 0, launch.output
    yield launch
    launch.end()


def test_no_worker_is_forked_from_a_process_with_a_context(restarted: Launched, tmp_path: pathlib.Path) -> None:
    """Modules that touch the device are left to the workers, by name, so that a forked worker can use the device."""
    found = restarted.journal("found")
    starts = [json.loads(line) for line in (tmp_path / "events").read_text().splitlines()]

    assert [line["total"] for line in found] == [8.0, 8.0]
    assert {line["is_bad_fork"] for line in found} == {False}
    assert [line["parent_devices"] for line in found] == [[], []]
    assert [event["warm"] for event in starts if event["event"] == "worker_started"][-1] is True
    left = restarted.output.partition("Warm start leaves to every worker's own import: ")[2].partition("\n")[0]
    assert all(name in left for name in MODULES["cuda"]), restarted.output


@pytest.mark.skipif(devices.chosen() == "cpu", reason="the CPU's memory changes with every other process")
def test_the_memory_of_a_killed_worker_is_free_for_the_next(restarted: Launched) -> None:
    """The next worker finds as much as the first one did, up to a quarter of what the first one held."""
    before, after = (line["free"] for line in restarted.journal("found"))

    assert before - restarted.journal("holds")[0]["free"] > HELD // 2
    assert before - after < HELD // 4


@pytest.mark.parametrize("backend", devices.BACKENDS[devices.chosen()])
def test_growth_moves_workers_or_restarts_them_and_says_why_once(start: Start, backend: str) -> None:
    """One node becomes two. Every sample counts once, and the weights are those of a run without any change."""
    job = start(1, largest=2, backend=backend)
    first = job.journal()[-1]["pid"]
    job.start_node(*QUICK)
    lines = job.wait_for_world(2)
    moved = any(line["pid"] == first and line["world"] == 2 for line in lines)
    (job.folder / "hurry").touch()

    assert [node.wait(300) for node in job.nodes] == [0, 0], job.logs()
    assert_as_undisturbed(job)
    assert {line["restarts"] for line in job.journal()} == {0}
    reasons = job.said("cannot be rebuilt in place without experimental=True. Workers restart when nodes come or go.")
    assert reasons == (0 if moved else len({line["generation"] for line in lines})), "rank 0 gives it once a generation"
