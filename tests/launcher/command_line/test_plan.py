"""What a command line means."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from elastic_infra.launcher.command_line import option_values, options, plan
from elastic_infra.launcher.command_line.options import OptionsError
from elastic_infra.launcher.settings import LauncherSettings


def resolve(*arguments: str, environ: dict[str, str] | None = None) -> plan.Plan | plan.Delegated:
    given = options.parse([*arguments, "train.py"], environ or {})
    settings = LauncherSettings.from_env(environ or {})
    return plan.resolve(given, settings, environ or {}, nproc_per_node=1, new_run_id="fresh")


def planned(*arguments: str, environ: dict[str, str] | None = None) -> plan.Plan:
    resolved = resolve(*arguments, environ=environ)
    assert isinstance(resolved, plan.Plan)
    return resolved


WHO_RUNS = [
    ((), ("localhost", 0, "fresh", True)),
    (("--standalone", "--nnodes", "2", "--rdzv-id", "mine"), ("localhost", 0, "fresh", True)),
    (("--master-port", "29501"), ("localhost", 0, "none", True)),
    (("--rdzv-backend", "c10d", "--rdzv-id", "mine"), ("localhost", 29400, "mine", None)),
    (("--nnodes=1:4", "--rdzv-backend=c10d", "--rdzv-endpoint=job-0:23456"), ("job-0", 23456, "none", None)),
    (("--rdzv-backend=c10d", "--rdzv-endpoint=[::1]:5"), ("::1", 5, "none", None)),
    (("--rdzv-backend=c10d", "--rdzv-conf=is_host=false"), ("localhost", 29400, "none", False)),
]


@pytest.mark.parametrize(("arguments", "expected"), WHO_RUNS)
def test_rendezvous(arguments: tuple[str, ...], expected: tuple[object, ...]) -> None:
    """Backend, endpoint, run id and host follow torchrun's limits."""
    made = planned(*arguments)

    assert expected == (made.host, made.port, made.run_id, made.hosts_store)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--nnodes", "2", "--master-addr", "node-0"), "static on 2 nodes"),
        (("--nnodes", "1:2", "--rdzv-backend", "etcd"), "etcd on 1:2 nodes"),
        (("--nnodes", "1", "--rdzv-backend", "etcd-v2", "--rdzv-endpoint", "etcd:2379"), "etcd-v2 on 1 nodes"),
        (("--logs-specs", "mine"), "--logs-specs"),
        (("--numa-binding", "node"), "--numa-binding"),
    ],
)
def test_what_torchrun_runs(arguments: tuple[str, ...], reason: str) -> None:
    """Backends and plugins of torch's own are torchrun's to run, and the reason is said."""
    resolved = resolve(*arguments)

    assert isinstance(resolved, plan.Delegated)
    assert reason in resolved.reason


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--master-port", "29501"), ("127.0.0.1", 29501)),
        (("--master-addr", "here", "--master-port", "1"), ("here", 1)),
        (("--rdzv-endpoint", "here"), ("here", 29500)),
        ((), None),
    ],
)
def test_fixed_master(arguments: tuple[str, ...], expected: tuple[str, int] | None) -> None:
    """One node with a master port or endpoint keeps that address for its workers, as static rendezvous does."""
    assert expected == planned(*arguments).master


@pytest.mark.parametrize(
    ("arguments", "environ", "expected"),
    [
        ((), {}, 30.0),
        ((), {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "45"}, 45.0),
        ((), {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "45", "ELASTIC_INFRA_SHUTDOWN_GRACE_SECONDS": "60"}, 60.0),
        (("--shutdown-timeout", "5"), {"ELASTIC_INFRA_SHUTDOWN_GRACE_SECONDS": "60"}, 5.0),
        ((), {"PET_SHUTDOWN_TIMEOUT": "7"}, 7.0),
    ],
)
def test_grace(arguments: tuple[str, ...], environ: dict[str, str], expected: float) -> None:
    """The command line wins over our setting, and our setting over torch's older variable."""
    assert expected == planned(*arguments, environ=environ).shutdown_grace_seconds


def test_defaults_that_deviate() -> None:
    """The last call is short, and a pod's own address is what peers are told."""
    made = planned(environ={"POD_IP": "10.1.2.3"})

    assert (made.last_call_seconds, made.join_timeout_seconds, made.local_address) == (5.0, 600.0, "10.1.2.3")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--rdzv-backend", "c10d"), "--rdzv-id"),
        (("--event-log-handler", "console"), "ELASTIC_INFRA_EVENTS"),
        (("--start-method", "fork"), "--start-method"),
        (("--signals-to-handle", "SIGTERM,SIGWHAT"), "SIGWHAT"),
    ],
)
def test_warnings(arguments: tuple[str, ...], says: str) -> None:
    """What has no effect here, or is risky, is said in one line."""
    assert any(says in line for line in planned(*arguments).warnings)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--nnodes", "0"), "got 0 and 0"),
        (("--nnodes", "4:2"), "got 4 and 2"),
        (("--nnodes", "1:2:3"), "MIN:MAX"),
        (("--nnodes", "two"), "'two'"),
        (("--max-restarts", "-1"), "--max-restarts must be at least 0, it is -1"),
        (("--rdzv-backend", "c10d", "--rdzv-endpoint", "host:99999"), "below 65536"),
        (("--rdzv-conf", "timeout"), "'timeout' is not a pair"),
        (("--rdzv-conf", "join_timeout=soon"), "join_timeout must be a number"),
        (("--rdzv-backend", "c10d", "--rdzv-conf", "is_host=maybe"), "is_host"),
        (("--redirects", "7"), "--redirects"),
        (("--tee", "0:9"), "--tee"),
        (("--local-ranks-filter", "a"), "--local-ranks-filter"),
        (("--no-python", "-m"), "exclude each other"),
    ],
)
def test_bad_values(arguments: tuple[str, ...], says: str) -> None:
    """A value that cannot be used is an error that shows it and its form."""
    with pytest.raises(OptionsError) as raised:
        resolve(*arguments)

    assert says in str(raised.value)


def test_streams() -> None:
    """A number holds for all ranks, a list for the ranks it names, as torchrun reads them."""
    assert option_values.stream_map("--tee", "3") == {None: frozenset({"stdout", "stderr"})}
    assert option_values.stream_map("--tee", "0:1,2:2") == {0: frozenset({"stdout"}), 2: frozenset({"stderr"})}


def test_unreadable_script(tmp_path: Path) -> None:
    """A script that may not be read is told apart from one that is missing."""
    script = tmp_path / "train.py"
    script.touch()
    entrypoint = plan.Entrypoint("script", str(script))
    plan.check_entrypoint(entrypoint)

    with pytest.raises(OptionsError, match="cannot be read"):
        plan.check_entrypoint(entrypoint, readable=lambda _path, _mode: False)
    with pytest.raises(OptionsError, match="does not exist"):
        plan.check_entrypoint(dataclasses.replace(entrypoint, target=str(tmp_path / "no.py")))
    assert os.access(script, os.R_OK)
