"""Time budgets: each follows from the fields that it names."""

from __future__ import annotations

from typing import Any

import pytest

from elastic_infra.config import JobConfig
from elastic_infra.config.docs import field_docs
from elastic_infra.config.time_budgets import Budget, budgets
from tests.jobs import elastic, job


def named(config: JobConfig) -> dict[str, Budget]:
    """The job's budgets by name."""
    return {budget.name: budget for budget in budgets(config)}


@pytest.mark.parametrize(
    ("fields", "name", "seconds"),
    [
        ({}, "start", 120),
        ({"runtime": {"startup_wait_seconds": 0}}, "start", 5),
        ({"elastic": {"rdzv_configs": {"join_timeout": 60}}}, "join", 60),
        ({}, "crash", 0),
        ({}, "drain", 30),
        ({"runtime": {"failure_grace_seconds": 7}}, "drain", 7),
        ({}, "hang", 600),
        ({"runtime": {"hang_timeout_seconds": 45}}, "hang", 45),
        ({"runtime": {"hang_timeout_seconds": "off"}}, "hang", None),
        ({}, "silent_hang", 1800 + 300),
        ({"resources": {"gpu": 1}}, "silent_hang", 600 + 300),
        ({}, "lost_node", 5),
        ({}, "replaced_node", 60),
        ({}, "lost_store", 120),
        ({"runtime": {"shutdown_grace_seconds": 100}}, "stop", 100),
        ({"elastic": {"max_restarts": 0}}, "worst_case", 2100),
        ({"runtime": {"nccl_collective_timeout_sec": 100, "nccl_heartbeat_timeout_sec": 20}}, "worst_case", 4 * 120),
    ],
)
def test_budget_follows_from_the_config(fields: dict[str, Any], name: str, seconds: float | None) -> None:
    """The bound is what the formula says."""
    assert named(elastic(**fields))[name].seconds == seconds


def test_single_pod_has_no_peers_to_wait_for() -> None:
    """One node neither meets nor loses others."""
    assert named(job()).keys() == {"crash", "drain", "hang", "silent_hang", "stop", "worst_case"}


def test_fields_exist() -> None:
    """A budget names only fields that a user can set."""
    for budget in budgets(elastic()):
        for path in budget.fields:
            part: Any = elastic()
            *parents, field = path.split(".")
            for parent in parents:
                part = getattr(part, parent)
            assert field in field_docs(type(part)), path
