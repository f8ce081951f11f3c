"""A job's file for another workload object: what goes, what stays, and what cannot be had."""

from __future__ import annotations

import pytest

from elastic_infra.config import ConfigError
from elastic_infra.config.migration import migrated

BASE = "image: i\nscript: s\nelastic: {nnodes: '2:4'}\n"


@pytest.mark.parametrize(
    ("rest", "left", "removed"),
    [
        ("", "target: job\n", []),
        ("run_policy:\n  clean_pod_policy: All\n", "target: job\n", ["run_policy.clean_pod_policy"]),
        (
            "run_policy:\n  clean_pod_policy: All\n  ttl_seconds_after_finished: 60\n",
            "run_policy:\n  ttl_seconds_after_finished: 60\ntarget: job\n",
            ["run_policy.clean_pod_policy"],
        ),
        (
            "autoscaling:\n  metrics: [{type: cpu, target: '80'}]\nresources: {cpu: '1'}\n",
            "resources: {cpu: '1'}\ntarget: job\n",
            ["autoscaling"],
        ),
        ("wait_for: running\n", "target: job\n", ["wait_for"]),
        ("target: pytorchjob # now\n", "target: job # now\n", []),
    ],
)
def test_what_the_target_refuses_goes(rest: str, left: str, removed: list[str]) -> None:
    """Everything else stays as it is written."""
    found = migrated(BASE + rest, "job")

    assert found.text == BASE + left
    assert [fault.path for fault in found.removed] == removed
    assert (found.config.kind, found.config.elastic.max_nodes) == ("Job", 4)


def test_a_train_job_loses_what_moves_its_size() -> None:
    """Its number of nodes is the maximum for its whole life, and Trainer deletes no job."""
    file = "image: i\nscript: s\nelastic: {nnodes: '2:4', initial_nodes: 3}\n"
    found = migrated(file + "run_policy: {ttl_seconds_after_finished: 60}\n", "trainjob")

    assert found.text == "image: i\nscript: s\nelastic: {nnodes: '2:4'}\ntarget: trainjob\n"
    assert (found.config.kind, found.config.initial_nodes) == ("TrainJob", 4)
    assert [fault.path for fault in found.removed] == [
        "elastic.initial_nodes",
        "run_policy.ttl_seconds_after_finished",
    ]


def test_a_key_that_another_needs_goes_with_it() -> None:
    """The endpoint is of no use without the backend that the target refuses."""
    file = "image: i\nscript: s\nelastic: {nnodes: '2:4', rdzv_backend: etcd, rdzv_endpoint: 'e:1'}\n"
    found = migrated(file, "job")

    assert found.text == "image: i\nscript: s\nelastic: {nnodes: '2:4'}\ntarget: job\n"
    assert [fault.path for fault in found.removed] == ["elastic.rdzv_backend", "elastic.rdzv_endpoint"]


def test_the_reason_is_told_without_the_advice_that_has_been_taken() -> None:
    """`Remove it` is what the command did."""
    (fault,) = migrated(BASE + "run_policy: {clean_pod_policy: All}\n", "job").removed

    assert fault.reason == "is for the training operator, and target 'job' has none."


@pytest.mark.parametrize("text", [BASE + "script: t\n", BASE + "shell: t\n", "image: i\n"])
def test_a_file_that_is_not_valid_is_refused(text: str) -> None:
    """Its own faults come first."""
    with pytest.raises(ConfigError):
        migrated(text, "job")
