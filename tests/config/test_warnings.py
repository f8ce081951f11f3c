"""What is allowed but likely to surprise is said once, with its reason and the way out."""

from __future__ import annotations

from typing import Any, Final

import pytest

from elastic_infra.config import warnings
from tests import jobs

Fields = dict[str, Any]

QUIET: Final[Fields] = {"storage": {"checkpoint": {"claim": "mine"}}, "resources": {"cpu": 4, "memory": "8Gi"}}
RDMA: Final[Fields] = {"resources": {**QUIET["resources"], "rdma": {"resource": "rdma/hca_shared_devices_a"}}}
PARTIAL: Final[Fields] = {"queue": "gpu", "kueue": {"mode": "partial"}}
RANGE: Final[Fields] = {"elastic": {"nnodes": "2:4"}}
ETCD: Final[Fields] = {"nnodes": 2, "rdzv_backend": "etcd-v2", "rdzv_endpoint": "etcd:2379"}
OPEN: Final[Fields] = {"security": {"network_policy": False}}
GANG: Final = "run_policy.scheduling_policy.min_available"

CASES: Final[tuple[tuple[str, Fields, str, Fields], ...]] = (
    ("run_policy.ttl_seconds_after_finished", {"run_policy": {"ttl_seconds_after_finished": 60}}, "train again", {}),
    (
        "run_policy.ttl_seconds_after_finished",
        {**RANGE, "run_policy": {"ttl_seconds_after_finished": 60}},
        "A job that has failed stays",
        {**RANGE},
    ),
    (
        "run_policy.active_deadline_seconds",
        {**RANGE, "run_policy": {"active_deadline_seconds": 60}},
        "expect it late",
        {"run_policy": {"active_deadline_seconds": 60}},
    ),
    (
        "run_policy.backoff_limit",
        {**RANGE, "run_policy": {"restart_policy": "OnFailure", "backoff_limit": 3}},
        "(3) counts container restarts of all pods together; below the maximum of nodes (4)",
        {**RANGE, "run_policy": {"restart_policy": "OnFailure", "backoff_limit": 4}},
    ),
    (
        "run_policy.backoff_limit",
        {**RANGE, "run_policy": {"restart_policy": "OnFailure", "backoff_limit": 0}},
        "(0)",
        {**RANGE, "run_policy": {"restart_policy": "OnFailure", "backoff_limit": -1}},
    ),
    (
        "run_policy.backoff_limit",
        {**RANGE, "run_policy": {"backoff_limit": 40}},
        "none is under restart_policy 'ExitCode'",
        {**RANGE, "run_policy": {}},
    ),
    (
        "run_policy.clean_pod_policy",
        {**RANGE, "run_policy": {"clean_pod_policy": "None"}},
        "GPUs",
        {**RANGE, "run_policy": {"clean_pod_policy": "All"}},
    ),
    ("shared_memory", {"resources": {}}, "/dev/shm may fill", {"resources": {}, "shared_memory": {"size": "1Gi"}}),
    ("shared_memory", {"resources": {"cpu": 1}}, "resources.memory", {"resources": {}, "shared_memory": False}),
    *(
        (path, broken, "(0.1Gi) is no whole number of bytes: Kubernetes warns of it. Write 107374183.", fine)
        for path, broken, fine in (
            ("resources.memory", {"resources": {"memory": "0.1Gi"}}, {"resources": {"memory": "107374183"}}),
            (
                "resources.ephemeral_storage",
                {"resources": {**QUIET["resources"], "ephemeral_storage": "0.1Gi"}},
                {"resources": {**QUIET["resources"], "ephemeral_storage": "0.5Gi"}},
            ),
            (
                "rendezvous.resources.memory",
                {**RANGE, "rendezvous": {"resources": {"memory": "0.1Gi"}}},
                {**RANGE, "rendezvous": {"resources": {"cpu": "100m"}}},
            ),
            (
                "storage.checkpoint.size",
                {"storage": {"checkpoint": {"size": "0.1Gi"}}},
                {"storage": {"checkpoint": {"size": "0.5Gi"}}},
            ),
        )
    ),
    (
        "rendezvous.resources.memory",
        {"elastic": {"nnodes": "2:10000"}},
        (
            "(256Mi) may be too little for 10000 nodes. A store that is ended for want of memory comes back empty, and "
            "all nodes connect anew. Set 641Mi."
        ),
        {"elastic": {"nnodes": "2:10000"}, "rendezvous": {"resources": {"memory": "641Mi"}}},
    ),
    (
        "rendezvous.node_selector",
        {**RANGE, "placement": {"node_selector": {"kubernetes.io/arch": "arm64"}}},
        "of another architecture it does not start. Give it that of placement.node_selector.",
        {
            **RANGE,
            "placement": {"node_selector": {"kubernetes.io/arch": "arm64"}},
            "rendezvous": {"node_selector": {"kubernetes.io/arch": "arm64"}},
        },
    ),
    ("resources.rdma", {**RDMA, "security": {"profile": "baseline", "run_as_user": 0}}, "or 'privileged'.", {}),
    ("resources.rdma", {**RDMA, "security": {"profile": "baseline"}}, "User 1000 gains nothing by it", {}),
    ("storage.checkpoint", {"storage": {}}, "step 0", {}),
    (
        "storage.checkpoint.access_mode",
        {**RANGE, "storage": {"checkpoint": {"size": "1Gi", "access_mode": "ReadWriteOnce"}}},
        "'ReadWriteMany'",
        {"storage": {"checkpoint": {"size": "1Gi", "access_mode": "ReadWriteOnce"}}},
    ),
    (
        "env.PYTHONUNBUFFERED",
        {**RANGE, "env": {"PYTHONUNBUFFERED": "0"}},
        "set to 1 by the training operator",
        {**RANGE, "env": {"PYTHONUNBUFFERED": 1}},
    ),
    (
        "placement.queue",
        {**RANGE, "target": "job", "placement": {"queue": "gpu"}},
        "suspends it when that changes",
        {"elastic": {"nnodes": "2:4", "initial_nodes": 2}, "target": "job", "placement": {"queue": "gpu"}},
    ),
    (
        "placement.queue",
        {**RANGE, "target": "job", "placement": {"queue": "gpu"}},
        "or placement.kueue.mode",
        {**RANGE, "target": "job", "placement": {"queue": "gpu", "kueue": {"mode": "elastic"}}},
    ),
    (
        "placement.kueue.mode",
        {"elastic": {"nnodes": "2:4", "node_unit": 2}, "target": "job", "placement": PARTIAL},
        "hold quota and wait",
        {**RANGE, "target": "job", "placement": PARTIAL},
    ),
    (
        "placement.queue",
        {**RANGE, "target": "trainjob", "placement": {"queue": "gpu"}},
        "waits for quota for 4 nodes, though it can train with 2",
        {"elastic": {"nnodes": 4}, "target": "trainjob", "placement": {"queue": "gpu"}},
    ),
    (
        "run_policy.backoff_limit",
        {**RANGE, "target": "job", "run_policy": {"backoff_limit": 3}},
        "(3) counts failed pods of all nodes together",
        {**RANGE, "target": "job", "run_policy": {"backoff_limit": 4}},
    ),
    ("placement.queue", {**RANGE, "placement": {"queue": "gpu"}}, "kueue#12606", {"placement": {"queue": "gpu"}}),
    (
        "elastic.rdzv_backend",
        {"elastic": {"nnodes": 2, "rdzv_backend": "etcd", "rdzv_endpoint": "etcd:1"}},
        "RendezvousClosedError",
        {"elastic": {"nnodes": 2}},
    ),
    (
        GANG,
        {**RANGE, "run_policy": {"scheduling_policy": {"min_available": 3}}},
        "(3) is above the minimum of nodes (2)",
        {**RANGE, "run_policy": {"scheduling_policy": {"min_available": 2}}},
    ),
    (
        "autoscaling.metrics[0]",
        {
            **RANGE,
            "autoscaling": {"metrics": [{"type": "cpu", "target": 80}]},
            "resources": {**QUIET["resources"], "gpu": 1},
        },
        "says little about work on GPUs",
        {**RANGE, "autoscaling": {"metrics": [{"type": "cpu", "target": 80}]}},
    ),
    (
        "placement.priority_class",
        {**RANGE, "autoscaling": {"policy": "capacity"}, "placement": {"priority_class": "high"}},
        "preemptionPolicy: Never",
        {**RANGE, "autoscaling": {"policy": "capacity"}},
    ),
    (
        "security.network_policy",
        {"overlays": {"pod": {"spec": {"hostNetwork": True}}}},
        "makes no NetworkPolicy for a job on the host's network",
        {"security": {"network_policy": False}, "overlays": {"pod": {"spec": {"hostNetwork": True}}}},
    ),
    *(
        (
            "overlays.pod.spec.dnsPolicy",
            {**wide, **OPEN, "overlays": {"pod": {"spec": {"hostNetwork": True, **policy}}}},
            "Set ClusterFirstWithHostNet",
            {**wide, **OPEN, "overlays": {"pod": {"spec": {"hostNetwork": True, "dnsPolicy": instead}}}},
        )
        for wide, policy, instead in (
            (RANGE, {}, "ClusterFirstWithHostNet"),
            (RANGE, {"dnsPolicy": "ClusterFirst"}, "None"),
            ({"elastic": {"nnodes": 2}, "target": "job"}, {"dnsPolicy": "Default"}, "ClusterFirstWithHostNet"),
        )
    ),
)

every_case = pytest.mark.parametrize(
    ("path", "fields", "says", "instead"), CASES, ids=[f"{i}-{c[0]}" for i, c in enumerate(CASES)]
)


@every_case
def test_a_surprise_is_warned_about(path: str, fields: Fields, says: str, instead: Fields) -> None:
    """Exactly this warning, and none when the config is changed as it says."""
    (warning,) = warnings(jobs.job(**{**QUIET, **fields}))

    assert (warning.path, says in warning.reason, warning.reason[-1]) == (path, True, ".")
    assert warnings(jobs.job(**{**QUIET, **instead})) == ()


def test_torchruns_exit_code_is_no_verdict() -> None:
    """On etcd `ExitCode` is warned of, beside what etcd itself is warned of; with the launcher it is the default."""
    etcd = warnings(jobs.job(**QUIET, elastic=ETCD, run_policy={"restart_policy": "ExitCode"}))

    assert [warning.path for warning in etcd] == ["run_policy.restart_policy", "elastic.rdzv_backend"]
    assert "exits with 1 for any failure" in etcd[0].reason
    assert warnings(jobs.job(**QUIET, **RANGE, run_policy={"restart_policy": "ExitCode"})) == ()


def test_a_plain_config_is_quiet() -> None:
    """With memory and a checkpoint there is nothing to say."""
    assert warnings(jobs.job(**QUIET)) == ()
    assert warnings(jobs.job(**QUIET, **RANGE)) == ()
