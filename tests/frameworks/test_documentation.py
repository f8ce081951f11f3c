"""What `docs/frameworks.md` says: its code is the code that is tried, and each of its warnings is true."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.frameworks.conftest import SCRIPTS, App, resumed
from tests.frameworks.storage import Storage
from tests.frameworks.test_frameworks import ELASTICRUN

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(1800)]

AHEAD = 1
"""Batches that a framework's loader reads before they are needed."""
PAGE = SCRIPTS.parents[2] / "docs" / "frameworks.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.split("\n")[0].strip())
def test_its_code_is_what_runs_here(block: str) -> None:
    """Each block stands in a script, to the letter."""
    assert any(block in path.read_text() for path in SCRIPTS.glob("*.py"))


def test_trainer_cannot_resume_from_nothing(tmp_path: Path) -> None:
    """`resume_from_checkpoint=True` without a checkpoint is an error."""
    code = (
        "from transformers import *\n"
        "model = GPT2LMHeadModel(GPT2Config(vocab_size=8, n_positions=4, n_embd=8, n_layer=1, n_head=1))\n"
        "arguments = TrainingArguments(output_dir='out', use_cpu=True, report_to='none', max_steps=1)\n"
        "Trainer(model=model, args=arguments, train_dataset=[1]).train(resume_from_checkpoint=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "ValueError: No valid checkpoint found" in done.stderr


def test_trainer_takes_a_checkpoint_that_is_not_complete(tmp_path: Path) -> None:
    """`get_last_checkpoint` names the folder that a killed writer left; `latest` names the one before."""
    for step in (5, 10):
        (tmp_path / f"checkpoint-{step}").mkdir()
    (tmp_path / "checkpoint-5" / "trainer_state.json").write_text("{}")
    code = (
        "import sys\n"
        "from transformers.trainer_utils import get_last_checkpoint\n"
        "from elastic_infra.training.hf import latest\n"
        "print(get_last_checkpoint(sys.argv[1]), latest(sys.argv[1]))"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, cwd=SCRIPTS.parents[2], capture_output=True, text=True, check=True)

    assert done.stdout.split() == [str(tmp_path / "checkpoint-10"), str(tmp_path / "checkpoint-5")]


def test_lightning_refuses_another_number_of_nodes(tmp_path: Path, storage: Storage) -> None:
    """`num_nodes` must be the number that the launcher started."""
    elastic = {"TORCHELASTIC_RUN_ID": "job", "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "GROUP_RANK": "0"}
    wrong = {"LOCAL_WORLD_SIZE": "1", "GROUP_WORLD_SIZE": "2", "STORAGE": str(storage.folder)}
    command = [sys.executable, str(SCRIPTS / "lightning_fit.py"), "--output", str(tmp_path), "--steps", "1"]
    environ = {**os.environ, **elastic, **wrong}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "does not match the world size" in done.stderr


def last_step(app: App, world: int) -> int:
    """The last step for which a group of this size read its data: each step takes four rows of each worker."""
    reads = [read for read in app.storage.reads() if read["world"] == world and read["rank"] == 0]
    return len(reads) // 4


def grow(app: App, *command: str) -> str:
    """Two nodes train, a third joins, the job ends; what was printed."""
    job = app.run(command)
    job.wait_for(lambda: app.storage.trains(2), "training")
    old = app.storage.everyone()
    job.type("scale 3")
    job.wait_for(lambda: app.storage.trains(3, old), "training with three nodes")
    app.storage.speed_up()
    assert job.wait() == 0, job.output
    return job.output


def test_jit_checkpoint_saves_when_a_node_joins(app: App) -> None:
    """Each worker saves 3 s after SIGTERM, though no checkpoint was due: at most the step it was in is lost."""
    output = grow(app, "hf_trainer.py", "--jit-checkpoint", "--save-every", "1000")

    assert last_step(app, world=2) - resumed(output)[0] in {0, AHEAD, AHEAD + 1}, output


def test_one_run_in_weights_and_biases(app: App) -> None:
    """A worker is killed and all are started again: both starts write to one run."""
    job = app.launch(ELASTICRUN, ("ddp_loop.py", "--wandb"), WANDB_MODE="offline")
    job.wait_for(lambda: app.storage.trains(2), "training")
    old = app.storage.everyone()
    os.kill(app.storage.trainers(2)[1], signal.SIGKILL)
    job.wait_for(lambda: app.storage.trains(2, old), "training after the restart")
    app.storage.speed_up()

    assert job.wait() == 0, job.output
    run = (app.folder / "output" / "wandb-id").read_text()
    starts = list((app.folder / "output" / "wandb").glob(f"offline-run-*-{run}"))
    assert len(starts) == 2, job.output
