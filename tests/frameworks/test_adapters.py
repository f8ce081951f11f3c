"""What the adapters promise: a clean stop step, one global batch for any number of workers, and few repeated steps."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest
from torch.utils.data import DistributedSampler

from tests.frameworks.conftest import STEPS, App, resumed
from tests.frameworks.test_frameworks import ELASTICRUN

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(1800)]

SCRIPTS = {
    "transformers": ("hf_elastic.py",),
    "lightning": ("lightning_elastic.py",),
    "pytorch_lightning": ("lightning_elastic.py", "pytorch_lightning"),
    "accelerate": ("accelerate_elastic.py",),
}
KEEP_THEIR_PLACE = {"transformers", "accelerate"}
"""Lightning begins the data anew in the middle of an epoch."""
BATCH = 12
ROWS = 100_000
SAVE_EVERY = 5


@pytest.fixture(params=SCRIPTS)
def package(request: pytest.FixtureRequest) -> str:
    """A framework whose adapter a script uses."""
    name: str = request.param
    return name


def rows(reads: list[dict[str, Any]], world: int) -> list[int]:
    """The samples that the workers of a group of this size have read."""
    return [read["index"] for read in reads if read["world"] == world]


def test_a_node_joins_at_a_clean_step_and_the_batch_stays(package: str, app: App) -> None:
    """All workers stop at one step, save there though no checkpoint was due, and go on with the same batch."""
    job = app.run((*SCRIPTS[package], "--save-every", "1000"))
    job.wait_for(lambda: app.storage.trains(2), "training")
    old = app.storage.everyone()
    job.type("scale 3")
    job.wait_for(lambda: app.storage.trains(3, old), "training with three nodes")
    app.storage.speed_up()

    assert job.wait() == 0, job.output
    assert f"finished at step {STEPS}" in job.output
    [stop] = set(resumed(job.output))
    reads = app.storage.reads()
    before, after = rows(reads, 2), rows(reads, 3)
    assert BATCH * stop <= len(before) <= BATCH * (stop + 1), job.output
    assert BATCH * (STEPS - stop) <= len(after) <= BATCH * (STEPS - stop + 1), job.output
    assert len(set(before)) == len(before), "two workers had one sample"
    assert len(set(after)) == len(after), "two workers had one sample"
    if package not in KEEP_THEIR_PLACE:
        order = list(DistributedSampler(range(ROWS), num_replicas=1, rank=0))
        assert set(order[: BATCH * stop]) <= set(before), "samples were left out for nodes that are not there"
    else:
        assert len({*before, *after}) >= BATCH * STEPS, "samples were trained on twice"


def test_a_killed_worker_repeats_no_more_than_the_steps_since_the_checkpoint(package: str, app: App) -> None:
    """Two workers on one node, one is killed: both go on from the newest whole checkpoint."""
    storage, events = app.storage, app.folder / "events"
    job = app.launch(ELASTICRUN, SCRIPTS[package], ELASTIC_INFRA_EVENTS=str(events))
    job.wait_for(lambda: storage.trains(2), "training")
    old = storage.everyone()
    os.kill(storage.trainers(2)[1], signal.SIGKILL)
    job.wait_for(lambda: storage.trains(2, old), "training after the restart")
    storage.speed_up()

    assert job.wait() == 0, job.output
    assert f"finished at step {STEPS}" in job.output
    read = len(rows(storage.reads(), 2))
    ahead = 2 * BATCH  # a broken step, and what was read for a step that never came
    assert BATCH * STEPS <= read <= BATCH * (STEPS + SAVE_EVERY) + ahead, job.output
    lines = [json.loads(line) for line in events.read_text().splitlines()]
    fresh, again = (line for line in lines if line["event"] == "state_restored")
    assert (fresh["step"], fresh["source"], fresh["steps_lost"]) == (0, "nothing", 0)
    assert (again["step"], again["source"]) == (
        max(resumed(job.output), default=0),
        "disk" if again["step"] else "nothing",
    )
    assert again["steps_lost"] <= SAVE_EVERY


def test_scripts_with_adapters_run_under_torchrun(package: str, app: App) -> None:
    """Outside the launcher the adapters change nothing, and the number of workers still keeps the batch."""
    app.storage.speed_up()
    job = app.launch("torch.distributed.run", SCRIPTS[package])

    assert job.wait() == 0, job.output
    assert f"finished at step {STEPS}" in job.output
    assert BATCH * STEPS <= len(rows(app.storage.reads(), 2)) <= BATCH * (STEPS + 1)
