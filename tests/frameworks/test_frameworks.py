"""Scripts written for other launchers, with real packages and unmodified, under torchrun and under ours."""

from __future__ import annotations

import os
import shutil
import signal

import pytest

from tests.frameworks.conftest import STEPS, App, Command, resumed

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(1800)]

COMMANDS = {
    "transformers": ("hf_trainer.py",),
    "accelerate": ("accelerate_loop.py",),
    "lightning": ("lightning_fit.py",),
    "imagenet": ("imagenet_style.py",),
    "fsdp2": ("fsdp2_dcp.py",),
    "loader by fork": ("ddp_loop.py", "--start-method", "fork"),
    "loader by spawn": ("ddp_loop.py", "--start-method", "spawn"),
    "loader by forkserver": ("ddp_loop.py", "--start-method", "forkserver"),
    "compile": ("ddp_loop.py", "--compile"),
    "multiprocessing": ("ddp_loop.py", "--augment-process"),
}
TORCHRUN = "torch.distributed.run"
ELASTICRUN = "elastic_infra.launcher"
CONTROL = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""Without it torchrun's own restart can fail: workers meet by keys of the last attempt, which its store still has."""


@pytest.fixture(params=COMMANDS)
def command(request: pytest.FixtureRequest) -> Command:
    """A script and its arguments."""
    script: Command = COMMANDS[request.param]
    if "--compile" in script and shutil.which(os.environ.get("CXX", "g++")) is None:
        pytest.skip("torch.compile needs a C++ compiler")
    return script


@pytest.mark.parametrize("launcher", [TORCHRUN, ELASTICRUN], ids=["torchrun", "elasticrun"])
def test_a_killed_worker_costs_a_restart(launcher: str, command: Command, app: App) -> None:
    """Two workers on one node: one is killed, both are started again, go on from the checkpoint, and finish."""
    storage = app.storage
    job = app.launch(launcher, command, **CONTROL)
    job.wait_for(lambda: storage.trains(2), "training")
    old = storage.everyone()
    os.kill(storage.trainers(2)[1], signal.SIGKILL)
    job.wait_for(lambda: storage.trains(2, old), "training after the restart")
    storage.speed_up()

    assert job.wait() == 0, job.output
    assert f"finished at step {STEPS}" in job.output
    assert len(resumed(job.output)) == 1, job.output


def test_a_job_lives_through_its_faults(command: Command, app: App) -> None:
    """Two nodes; a third joins, one is lost and comes back, a worker is killed: the script trains on and finishes."""
    storage = app.storage
    job = app.run(command)
    job.wait_for(lambda: storage.trains(2), "training")
    for fault in ("scale 3", "kill node 1", "kill worker 0.0"):
        old = storage.everyone()
        job.type(fault)
        job.wait_for(lambda old=old: storage.trains(3, old), f"training after {fault!r}")  # type: ignore[misc]
    storage.speed_up()

    assert job.wait() == 0, job.output
    assert f"finished at step {STEPS}" in job.output
    assert len(resumed(job.output)) >= 3, job.output


@pytest.mark.parametrize("framework", ["transformers", "lightning"])
def test_nodes_of_four_workers(framework: str, app: App) -> None:
    """Two nodes; one of the eight workers is killed, and a third node joins: the script trains on and finishes."""
    storage = app.storage
    job = app.run(COMMANDS[framework], workers=4)
    job.wait_for(lambda: storage.trains(8), "training")
    for fault, world in (("kill worker 1.2", 8), ("scale 3", 12)):
        old = storage.everyone()
        job.type(fault)
        job.wait_for(lambda old=old, world=world: storage.trains(world, old), f"training after {fault!r}")  # type: ignore[misc]
    storage.speed_up()

    assert job.wait() == 0, job.output
    assert f"finished at step {STEPS}" in job.output
    assert len(resumed(job.output)) == 2, job.output
