"""Torch's function API on our launcher, with real workers."""

from __future__ import annotations

import pytest

from elastic_infra.launcher import api
from tests.launcher import functions

pytestmark = [pytest.mark.launcher, pytest.mark.timeout(600)]


def test_results_by_rank() -> None:
    """The function runs in every worker and its results come back by global rank."""
    assert api.elastic_launch(functions.config(), functions.double)(21) == {0: ("0", 42), 1: ("1", 42)}


def test_torchs_own_config() -> None:
    """Torch's LaunchConfig works as it is, and the failure is torch's, with the root cause's rank and message."""
    launcher = pytest.importorskip("torch.distributed.launcher.api")
    errors = pytest.importorskip("torch.distributed.elastic.multiprocessing.errors")
    theirs = launcher.LaunchConfig(
        min_nodes=1, max_nodes=1, nproc_per_node=2, run_id="mine", rdzv_backend="c10d", rdzv_endpoint="localhost:0",
        max_restarts=0,
    )  # fmt: skip

    with pytest.raises(errors.ChildFailedError, match="the reason") as raised:
        api.elastic_launch(theirs, functions.fail_on_rank_1)("the reason")
    assert raised.value.get_first_failure()[0] == 1
