"""What stays of a node's workers when they enter another generation with their processes."""

from __future__ import annotations

import itertools
import math
import pathlib
import sys
import time
from dataclasses import replace

import pytest

from elastic_infra.launcher import ipc, processes, run_dir
from elastic_infra.launcher.agent import worker_group
from elastic_infra.launcher.command_line import options, plan
from elastic_infra.launcher.protocol.actions import StartWorkers
from elastic_infra.launcher.settings import LauncherSettings
from elastic_infra.launcher.workers import bootstrap, progress
from elastic_infra.training.progress import Progress

FIRST = StartWorkers(
    generation=1,
    attempt=0,
    restart_count=0,
    first_rank=2,
    local_world_size=2,
    world_size=4,
    group_rank=1,
    group_world_size=2,
    master_address="127.0.0.1",
    master_port=1000,
    cause=None,
)
SECOND = replace(FIRST, generation=2, first_rank=0, world_size=2, group_rank=0, group_world_size=1, master_port=2000)


@pytest.fixture
def group(tmp_path: pathlib.Path) -> worker_group.WorkerGroup:
    """The workers of a node, with log files."""
    given = options.parse(["--log-dir", str(tmp_path), "--redirects", "3", "train.py"], {})
    settings = LauncherSettings(hang_timeout_seconds=2.0)
    launch = plan.resolve(given, settings, {}, nproc_per_node=2, new_run_id="job")
    assert isinstance(launch, plan.Plan)
    (tmp_path / "run").mkdir()
    files = run_dir.RunDir(str(tmp_path / "run"), str(tmp_path / "logs"), sys.executable, lock=-1)
    return worker_group.WorkerGroup(launch, settings, {}, files)


def test_workers_that_are_moved_keep_logs_progress_memory_and_number(group: worker_group.WorkerGroup) -> None:
    """The worker that is started in place of an ended one has all three in common with the other."""
    started = group.start(FIRST)
    moved = group.move(SECOND, kept=(1,))
    before, (after,) = started.workers[0], moved.workers

    assert (started.spawn, moved.spawn, group.spawn) == (1, 1, 1)
    assert after.local_rank == 0
    assert (after.stdout, after.stderr) == (before.stdout, before.stderr)
    assert pathlib.Path(str(after.stdout)).parts[-3:-1] == ("generation_1", "0")
    assert {name: after.env[name] for name in (progress.VARIABLE, "TORCHELASTIC_ERROR_FILE")} == {
        name: before.env[name] for name in (progress.VARIABLE, "TORCHELASTIC_ERROR_FILE")
    }
    assert (before.env["RANK"], after.env["RANK"], after.env["MASTER_PORT"]) == ("2", "0", "2000")
    assert {rank: place.environ["RANK"] for rank, place in group.enters().items()} == {0: "0", 1: "1"}


def test_a_start_of_all_workers_has_other_logs_another_memory_and_the_next_number(
    group: worker_group.WorkerGroup,
) -> None:
    """What the supervisor says of the old ones is then known to be late."""
    before, after = group.start(FIRST).workers[0], group.start(SECOND)

    assert (after.spawn, after.workers[0].stdout == before.stdout) == (2, False)
    assert after.workers[0].env[progress.VARIABLE] != before.env[progress.VARIABLE]


def test_the_end_of_a_replaced_worker_is_of_the_generation_in_which_it_ended(group: worker_group.WorkerGroup) -> None:
    """Ends and errors of the generation before are forgotten in a move: a later failure is not put down to them."""
    group.start(FIRST)
    group.failure(ipc.WorkerEnded(1, 0, 10, 1, 0.0))
    assert group.root_cause()
    group.move(SECOND, kept=(1,))

    assert group.root_cause() == {}
    failure = group.failure(ipc.WorkerEnded(1, 1, 11, 1, 0.0))
    assert (failure.rank, failure.generation) == (1, 2)


def test_hang_rules_rest_until_the_first_step_after_a_move(
    group: worker_group.WorkerGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last step before is long ago, and the generation in which it was counts no more."""
    seconds = itertools.count()
    monkeypatch.setattr(processes, "read", lambda pid: processes.Process(pid, 1, 1, 1, "S", float(next(seconds))))
    worker, begin = Progress(group.start(FIRST).workers[0].env), time.monotonic()
    group.started(ipc.WorkerStarted(1, 0, 10, warm=False))
    worker.step(5)
    before = [group.look_for_hangs(begin + after) for after in (1, 4)]
    group.move(SECOND, kept=(0,))
    moved = [group.look_for_hangs(begin + after) for after in (5, 7, 9)]
    worker.step(6)
    after = group.look_for_hangs(begin + 10)

    assert [verdict and verdict.kind for verdict in (*before, *moved, after)] == [None, "hang", *[None] * 3, "hang"]


def test_a_worker_in_the_place_of_another_is_in_no_phase_and_has_not_failed(group: worker_group.WorkerGroup) -> None:
    """One was killed in the middle of a phase, or ended by an exception; the other has its slot of the memory."""
    env = group.start(FIRST).workers[0].env
    with Progress(env).phase("load", timeout=60):
        bootstrap.note_moment(env[progress.VARIABLE], bootstrap.FAILED_AT)
        before = group.read()[0]
        group.move(SECOND, kept=(1,))
        after = group.read()[0]

    assert (before.phase_until is None, before.failed_at is None) == (False, False)
    assert (after.phase_until, after.failed_at) == (None, None)


def test_a_worker_that_is_moved_in_the_middle_of_a_phase_stays_in_it(group: worker_group.WorkerGroup) -> None:
    """It ends the phase itself."""
    worker = Progress(group.start(FIRST).workers[0].env)
    with worker.phase("load"):
        group.move(SECOND, kept=(0,))
        inside = group.read()[0].phase_until

    assert (inside, group.read()[0].phase_until) == (math.inf, None)
