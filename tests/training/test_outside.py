"""What a loop changes outside of its steps is told once, and what belongs there is not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.optim.optimizer import _global_optimizer_post_hooks as hooks

from elastic_infra.training import Elastic, ElasticState, Snapshots

SNAPSHOTS = Snapshots(memory_steps=1, durable_steps=3)


class Job:
    """A small training; each test decides what stands where."""

    def __init__(self, folder: Path) -> None:
        self.model = torch.nn.Linear(1, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 2)
        self.state = ElasticState(folder, model=self.model, optimizer=self.optimizer, scheduler=self.scheduler)
        self.elastic = Elastic(self.state, snapshots=SNAPSHOTS)

    def backward(self) -> None:
        """Gradients for a step."""
        self.model(torch.ones(1, 1)).sum().backward()


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """A job whose folder is empty."""
    return Job(tmp_path)


def test_a_step_that_is_whole_gives_no_warning(job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nor does a restore, which moves the scheduler between two steps."""
    for each, until in ((job, 3), (Job(tmp_path), 6)):
        for _ in each.elastic.steps(until):
            with each.elastic.step():
                each.backward()
                each.optimizer.step()
                each.scheduler.step()
    resumed = Job(tmp_path)
    assert list(resumed.elastic.steps(until=6)) == []
    assert resumed.scheduler.last_epoch == 6

    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("stepped", ["optimizer", "scheduler"])
def test_what_steps_outside_is_told_once(job: Job, stepped: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With what to write; each later step of the kind is the same news."""
    for _ in job.elastic.steps(until=4):
        with job.elastic.step():
            job.backward()
            if stepped == "scheduler":
                job.optimizer.step()
        getattr(job, stepped).step()

    (line,) = capsys.readouterr().err.splitlines()
    named = {"optimizer": "SGD made a step outside", "scheduler": "StepLR made a step outside"}[stepped]
    assert f"{named} of `with elastic.step():`, after step 1. " in line
    assert "Put the whole step inside the block, or use elastic.run(train_step)." in line


def test_other_ranks_do_not_repeat_the_warning(
    job: Job, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All ranks run the same script."""
    monkeypatch.setenv("RANK", "3")
    for _ in job.elastic.steps(until=1):
        with job.elastic.step():
            job.backward()
        job.optimizer.step()

    assert capsys.readouterr().err == ""


def test_training_that_is_not_the_loop_s_gives_no_warning(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    """Another model between two steps, and this model before and after the loop."""
    other = torch.nn.Parameter(torch.ones(1))
    other.grad = torch.ones(1)
    before = len(hooks)
    job.optimizer.step()
    for _ in job.elastic.steps(until=2):
        with job.elastic.step():
            job.backward()
            job.optimizer.step()
        assert len(hooks) == before + 1
        torch.optim.SGD([other], lr=0.1).step()
    job.optimizer.step()

    assert len(hooks) == before
    assert capsys.readouterr().err == ""
