"""RunDir defaults fill gaps and never override."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_infra.launcher.defaults import runtime_defaults
from elastic_infra.launcher.settings import LauncherSettings

EVERY_SETTING = LauncherSettings(
    omp_num_threads=4,
    nccl_async_error_handling=2,
    nccl_heartbeat_timeout_seconds=300,
    nccl_enable_monitoring=False,
)
NAMES = (
    "OMP_NUM_THREADS",
    "PYTHONUNBUFFERED",
    "PYTHONFAULTHANDLER",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING",
    "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC",
    "TORCH_NCCL_ENABLE_MONITORING",
)


def test_one_worker_and_no_settings() -> None:
    """A single worker keeps its OpenMP threads, and unset NCCL settings stay torch's own."""
    expected = {"PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "3"}

    assert expected == runtime_defaults(LauncherSettings(), {}, nproc_per_node=1)


def test_several_workers_share_the_cores() -> None:
    """With more than one worker OMP_NUM_THREADS is 1, as torchrun sets it."""
    assert runtime_defaults(LauncherSettings(), {}, nproc_per_node=2)["OMP_NUM_THREADS"] == "1"


@pytest.mark.parametrize("nproc_per_node", [1, 8])
def test_every_setting_is_written(nproc_per_node: int) -> None:
    """Each setting reaches its variable, booleans as 0 and 1."""
    expected = {
        "OMP_NUM_THREADS": "4",
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "2",
        "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "300",
        "TORCH_NCCL_ENABLE_MONITORING": "0",
    }

    assert expected == runtime_defaults(EVERY_SETTING, {}, nproc_per_node=nproc_per_node)


def test_the_old_name_counts_as_chosen() -> None:
    """Torch still reads NCCL_ASYNC_ERROR_HANDLING, so a user who set it is not overruled."""
    missing = runtime_defaults(EVERY_SETTING, {"NCCL_ASYNC_ERROR_HANDLING": "1"}, nproc_per_node=2)

    assert "TORCH_NCCL_ASYNC_ERROR_HANDLING" not in missing


@given(environ=st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["", "0", "17"])))
def test_nothing_is_overridden(environ: dict[str, str]) -> None:
    """Only absent variables are returned, and together with them none is absent any more."""
    missing = runtime_defaults(EVERY_SETTING, environ, nproc_per_node=2)

    assert missing.keys().isdisjoint(environ)
    assert set(NAMES) == missing.keys() | environ.keys()
