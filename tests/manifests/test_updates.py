"""Which changes restart a job, and what others write into it."""

from __future__ import annotations

from typing import Any

import pytest

from elastic_infra.manifests import render
from elastic_infra.manifests.updates import depends_on_novelty, foreign_paths, restart_paths, steps
from tests import jobs

WORKER = "spec.pytorchReplicaSpecs.Worker"
SIZES = {"spec.parallelism", "spec.completions"}
PARTIAL = {"placement": {"queue": "gpu", "kueue": {"mode": "partial"}}}
METRICS = {"metrics": [{"type": "pods", "name": "q", "target": 1}]}


@pytest.mark.parametrize(
    ("fields", "paths"),
    [
        ({}, {f"{WORKER}.replicas"}),
        ({"elastic": {"initial_nodes": 2}}, set()),
        ({"elastic": {"nnodes": 2}}, set()),
        ({"autoscaling": METRICS}, {f"{WORKER}.replicas"}),
        ({"autoscaling": {**METRICS, "owner": "operator"}}, {f"{WORKER}.replicas"}),
        (
            {"placement": {"queue": "gpu"}},
            {
                f"{WORKER}.replicas",
                f"{WORKER}.template.spec.nodeSelector",
                f"{WORKER}.template.spec.tolerations",
                "spec.runPolicy.suspend",
            },
        ),
        (
            {"elastic": {"nnodes": 1}, "placement": {"queue": "gpu"}},
            {"spec.template.spec.nodeSelector", "spec.template.spec.tolerations", "spec.suspend"},
        ),
        ({"elastic": {"nnodes": 1}}, set()),
        ({"target": "job"}, SIZES),
        ({"target": "job", "elastic": {"initial_nodes": 2}}, set()),
        (
            {"target": "job", "placement": {"queue": "gpu"}},
            {*SIZES, "spec.template.spec.nodeSelector", "spec.template.spec.tolerations", "spec.suspend"},
        ),
        (
            {"target": "job", "elastic": {"initial_nodes": 3}, **PARTIAL},
            {*SIZES, "spec.template.spec.nodeSelector", "spec.template.spec.tolerations", "spec.suspend"},
        ),
        ({"target": "trainjob"}, set()),
        ({"target": "trainjob", "placement": {"queue": "gpu"}}, {"spec.runtimePatches", "spec.suspend"}),
    ],
)
def test_what_others_own_is_left_to_them(fields: dict[str, Any], paths: set[str]) -> None:
    """The size unless the config sets it, what Kueue writes while a queue has the job; else nothing."""
    assert set(foreign_paths(jobs.elastic(**fields))) == paths


def test_a_job_that_is_made_anew_has_the_size_of_its_config() -> None:
    """An autoscaler's stays, which brings it into the new range by itself; but Kueue admits all of that or nothing."""
    assert foreign_paths(jobs.elastic(), is_new=True) == foreign_paths(jobs.indexed(), is_new=True) == ()
    assert foreign_paths(jobs.elastic(autoscaling=METRICS), is_new=True) == (f"{WORKER}.replicas",)
    assert SIZES.isdisjoint(foreign_paths(jobs.indexed(**PARTIAL), is_new=True))
    capacity = {"autoscaling": {"policy": "capacity"}}
    elastic = {"placement": {"queue": "gpu", "kueue": {"mode": "elastic"}}}
    assert {*foreign_paths(jobs.indexed(**capacity), is_new=True)} == SIZES
    assert SIZES.isdisjoint(foreign_paths(jobs.indexed(**capacity, **elastic), is_new=True))


@pytest.mark.parametrize("fields", [{}, {"elastic": {"nnodes": 2}}, {"target": "job"}, {"target": "trainjob"}])
def test_a_queued_job_that_is_made_anew_has_the_placement_of_its_config(fields: dict[str, Any]) -> None:
    """What Kueue wrote belongs to the job before, whose quota goes with it."""
    queued = jobs.elastic(**fields, placement={"queue": "gpu"})

    assert foreign_paths(queued, is_new=True) == ()
    assert depends_on_novelty(queued)


def _at(manifest: Any, path: str) -> object:
    for key in steps(path):
        manifest = manifest.get(key) if isinstance(manifest, dict) else None
    return manifest


def _restarts(before: Any, after: Any) -> bool:
    old, new = (jobs.objects(config)["workload"] for config in (before, after))
    return any(_at(old, path) != _at(new, path) for path in restart_paths(after))


@pytest.mark.parametrize("kind", ["pytorchjob", "job"])
@pytest.mark.parametrize(
    ("change", "restarts"),
    [
        ({"image": "other"}, True),
        ({"env": {"A": "1"}}, True),
        ({"resources": {"cpu": 2}}, True),
        ({"elastic": {"nproc_per_node": 2}}, True),
        ({"elastic": {"max_restarts": 9}}, True),
        ({"run_policy": {"rerun": "again"}}, True),
        ({"labels": {"team": "x"}}, True),
        ({"run_policy": {"managed_by": "kueue.x-k8s.io/multikueue"}}, True),
        ({"run_policy": {"backoff_limit": 7}}, False),
        ({"run_policy": {"ttl_seconds_after_finished": 7}}, False),
        ({"run_policy": {"active_deadline_seconds": 7}}, False),
        ({"run_policy": {"suspend": True}}, False),
        ({"run_policy": {"on_restart": "refuse"}}, False),
        ({"wait_for": "running"}, False),
        ({"placement": {"queue": "gpu"}}, True),
    ],
)
def test_a_change_restarts_exactly_when_it_cannot_be_rolled_out(
    kind: str,
    change: dict[str, Any],
    restarts: bool,  # noqa: FBT001 - a case
) -> None:
    """The operator never rolls a template out, and the API server refuses to change a Job's."""
    assert _restarts(jobs.job(target=kind), jobs.job(target=kind, **change)) is restarts


@pytest.mark.parametrize(
    ("change", "restarts"),
    [
        ({"elastic": {"nnodes": "2:5"}}, True),
        ({"elastic": {"nnodes": 1}}, True),
        ({"elastic": {"initial_nodes": 3}}, True),
        ({"rendezvous": {"port": 2000}}, True),
        ({"run_policy": {"backoff_limit": 7}}, False),
        ({"run_policy": {"suspend": True}}, False),
        ({"disruption": {"pod_disruption_budget": True}}, False),
        ({"security": {"network_policy": False}}, False),
    ],
)
def test_changes_of_an_indexed_job(change: dict[str, Any], restarts: bool) -> None:  # noqa: FBT001 - a case
    """What the API server refuses to change, or Pulumi's provider replaces a Job for, its size among it."""
    assert _restarts(jobs.indexed(), jobs.indexed(**change)) is restarts


@pytest.mark.parametrize("kueue", [{"mode": "partial"}, {"mode": "elastic"}, {"priority_class": "high"}])
def test_what_kueue_does_not_let_a_running_job_change_makes_it_anew(kueue: dict[str, str]) -> None:
    """Its webhook refuses another queue, another mode, and a priority class that comes or goes."""
    whole = jobs.indexed(placement={"queue": "gpu"}, elastic={"initial_nodes": 4})
    other = jobs.indexed(placement={"queue": "gpu", "kueue": kueue}, elastic={"initial_nodes": 4})

    assert _restarts(whole, other)
    assert _restarts(other, whole)
    assert _restarts(other, jobs.indexed(placement={"queue": "cpu", "kueue": kueue}, elastic={"initial_nodes": 4}))


def test_a_path_has_its_keys_as_pulumi_spells_it() -> None:
    """A key with dots stands in brackets and is one step."""
    assert steps('metadata.labels["kueue.x-k8s.io/queue-name"]') == ("metadata", "labels", "kueue.x-k8s.io/queue-name")
    assert steps("spec.template") == ("spec", "template")


@pytest.mark.parametrize(
    ("change", "restarts"),
    [
        ({"elastic": {"nnodes": "2:5"}}, True),
        ({"image": "other"}, True),
        ({"rendezvous": {"port": 2000}}, True),
        ({"run_policy": {"rerun": "again"}}, True),
        ({"run_policy": {"backoff_limit": 7}}, True),
        ({"run_policy": {"active_deadline_seconds": 7}}, True),
        ({"launcher": {"version": "newest"}}, True),
        ({"launcher": {"config_map": "shared-1"}}, True),
        ({"run_policy": {"suspend": True}}, False),
        ({"run_policy": {"on_restart": "refuse"}}, False),
        ({"disruption": {"pod_disruption_budget": True}}, False),
        ({"security": {"network_policy": False}}, False),
        ({"annotations": {"a": "b"}}, True),
    ],
)
def test_changes_of_a_train_job(change: dict[str, Any], restarts: bool) -> None:  # noqa: FBT001 - a case
    """Trainer takes the runtime once: another content is another runtime, to which a live TrainJob cannot go."""
    assert _restarts(jobs.train_job(), jobs.train_job(**change)) is restarts


def test_a_newer_launcher_alone_is_no_other_runtime() -> None:
    """The name holds a hash of all but the launcher."""
    one, other = (render("job", jobs.train_job(), launcher) for launcher in ("job-launcher-1", "job-launcher-2"))

    assert one.workload == other.workload
    assert one.runtime != other.runtime


@pytest.mark.parametrize(
    ("change", "restarts"),
    [
        ({"elastic": {"nnodes": "2:5"}}, True),
        ({"elastic": {"nnodes": "2:4", "rdzv_configs": {"timeout": 60}}}, True),
        ({"run_policy": {"restart_policy": "OnFailure"}}, True),
        ({"run_policy": {"scheduling_policy": {"queue": "q"}}}, True),
        ({"run_policy": {"clean_pod_policy": "All"}}, False),
        ({"autoscaling": {**METRICS, "owner": "operator"}}, True),
        ({"disruption": {"pod_disruption_budget": True}}, False),
        ({"security": {"network_policy": False}}, False),
    ],
)
def test_changes_that_only_a_pytorchjob_has(change: dict[str, Any], restarts: bool) -> None:  # noqa: FBT001 - a case
    """Bounds, budgets and gang settings are read once."""
    assert _restarts(jobs.elastic(), jobs.elastic(**change)) is restarts
