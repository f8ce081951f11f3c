"""A group's facts as command lines and environments; that they are torchrun's the parity scenarios compare."""

from __future__ import annotations

import pytest

from elastic_infra.launcher.command_line import options, plan
from elastic_infra.launcher.ipc import WorkerSpec
from elastic_infra.launcher.protocol.actions import StartWorkers
from elastic_infra.launcher.settings import SECRETS, LauncherSettings, env_name
from elastic_infra.launcher.workers import specs
from elastic_infra.launcher.workers.logs import Destination

START = StartWorkers(
    generation=4,
    attempt=3,
    restart_count=1,
    first_rank=2,
    local_world_size=2,
    world_size=6,
    group_rank=1,
    group_world_size=3,
    master_address="10.0.0.1",
    master_port=4000,
    cause=None,
)
TARGETS = tuple(Destination(rank, None, None, frozenset(), f"error-{rank}") for rank in range(2))
FILES = specs.Files(TARGETS, "/run/progress", "python", "bootstrap.py", modules="/run/modules")


def launch(*words: str) -> plan.Plan:
    """What a command line means."""
    given = options.parse([*words], {})
    resolved = plan.resolve(given, LauncherSettings(), {}, nproc_per_node=2, new_run_id="job")
    assert isinstance(resolved, plan.Plan)
    return resolved


def workers(*words: str, environ: dict[str, str] | None = None) -> tuple[WorkerSpec, ...]:
    """The workers of a node with that command line."""
    return specs.plan(START, launch(*words), LauncherSettings(), environ or {}, FILES)


def test_ranks_follow_the_nodes_place() -> None:
    """Global ranks begin where those of the nodes before end."""
    first, second = (worker.env for worker in workers("train.py"))

    assert [(env["RANK"], env["LOCAL_RANK"], env["ROLE_RANK"]) for env in (first, second)] == [
        ("2", "0", "2"),
        ("3", "1", "3"),
    ]
    assert (first["WORLD_SIZE"], first["LOCAL_WORLD_SIZE"], first["GROUP_RANK"]) == ("6", "2", "1")
    assert (first["MASTER_ADDR"], first["MASTER_PORT"]) == ("10.0.0.1", "4000")
    assert (first[specs.GENERATION], first[specs.ATTEMPT], first["TORCHELASTIC_RESTART_COUNT"]) == ("4", "3", "1")


def test_each_worker_has_its_own_files() -> None:
    """A slot of the progress memory, a file for its error, and one for the modules that it imports."""
    first, second = (worker.env for worker in workers("train.py"))

    assert first["ELASTIC_INFRA_PROGRESS"] == "0:/run/progress"
    assert (first["TORCHELASTIC_ERROR_FILE"], second["TORCHELASTIC_ERROR_FILE"]) == ("error-0", "error-1")
    assert (first[specs.MODULES], second[specs.MODULES]) == ("/run/modules/0", "/run/modules/1")


@pytest.mark.parametrize("field", SECRETS)
def test_secrets_stay_with_the_launcher(field: str) -> None:
    """A script has no use for them; all other variables reach the workers."""
    environ = {env_name(field): "secret", "DATASET": "/data"}
    (first, _) = workers("train.py", environ=environ)

    assert first.env["DATASET"] == "/data"
    assert "secret" not in first.env.values()


@pytest.mark.parametrize(
    ("words", "argv"),
    [
        (("train.py", "--lr", "1"), ("python", "-u", "bootstrap.py", "script", "train.py", "--lr", "1")),
        (("--module", "pkg.train"), ("python", "-u", "bootstrap.py", "module", "pkg.train")),
        (("--no-python", "train", "r${local_rank}", "$HOME"), ("train", "r1", "$HOME")),
    ],
)
def test_what_a_worker_executes(words: tuple[str, ...], argv: tuple[str, ...]) -> None:
    """Scripts run under the bootstrap, programs as they are; only the local rank is filled in."""
    assert workers(*words)[1].argv == argv


def test_one_device_for_each_worker() -> None:
    """With --virtual-local-rank each worker sees its own accelerator, as the only one."""
    (_, second) = workers("--virtual-local-rank", "train.py", environ={"CUDA_VISIBLE_DEVICES": "5, 7"})

    assert (second.env["CUDA_VISIBLE_DEVICES"], second.env["LOCAL_RANK"]) == ("7", "0")


@pytest.mark.parametrize(
    ("words", "warm", "may"),
    [(("train.py",), True, True), (("train.py",), False, False), (("--no-python", "train"), True, False)],
)
def test_only_python_is_forked(words: tuple[str, ...], warm: bool, may: bool) -> None:
    """And only where the user has not turned it off."""
    assert specs.may_fork(launch(*words), LauncherSettings(warm_start=warm)) == may
