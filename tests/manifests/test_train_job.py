"""A TrainJob with a runtime of its own: an Indexed Job of a fixed size, made by Kubeflow Trainer and JobSet."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from elastic_infra import render
from elastic_infra.manifests.figures import figures, replicas, workload_of
from tests import jobs

HOST = "job-node-0-0"
INDEX = "batch.kubernetes.io/job-completion-index"


def _objects(**fields: Any) -> Any:
    return jobs.objects(jobs.train_job(**fields))


def _job(**fields: Any) -> Any:
    (only,) = _objects(**fields)["runtime"]["spec"]["template"]["spec"]["replicatedJobs"]
    return only["template"]["spec"]


def test_the_train_job_says_only_which_runtime_it_has() -> None:
    """Trainer lets nothing of it change, so that all that may be read later is in the runtime."""
    found = _objects()
    runtime = found["runtime"]["metadata"]["name"]

    assert found["workload"]["spec"] == {
        "runtimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": runtime}
    }
    assert found["workload"]["apiVersion"] == found["runtime"]["apiVersion"] == "trainer.kubeflow.org/v1alpha1"
    assert runtime.startswith("job-")
    assert list(found).index("runtime") < list(found).index("workload")


def test_the_runtime_is_complete() -> None:
    """The most nodes, one Job, no policy of torch's: Trainer would add torchrun's variables to the launcher's."""
    spec = _objects()["runtime"]["spec"]
    (only,) = spec["template"]["spec"].pop("replicatedJobs")
    only["template"].pop("spec")

    assert spec == {"mlPolicy": {"numNodes": 4}, "template": {"spec": {"network": {"enableDNSHostnames": False}}}}
    assert only == {
        "name": "node",
        "replicas": 1,
        "template": {"metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}},
    }


@pytest.mark.parametrize(
    ("fields", "nodes", "owner"),
    [
        ({}, 4, "scale"),
        ({"elastic": {"initial_nodes": 3}}, 3, "config"),
        ({"autoscaling": {"policy": "capacity"}}, 2, "autoscaler"),
        ({"autoscaling": {"policy": "capacity"}, "elastic": {"initial_nodes": 3}}, 3, "autoscaler"),
    ],
)
def test_a_train_job_whose_size_moves_begins_as_other_jobs(fields: dict[str, Any], nodes: int, owner: str) -> None:
    """As an Indexed Job of the same config; the range is the launcher's, and no object says more of the size."""
    elastic = {"nnodes": "2:4", **fields.get("elastic", {})}
    config = jobs.train_job(**fields | {"elastic": {**elastic, "elastic_job_set": True}})
    indexed = jobs.indexed(**fields | {"elastic": elastic})
    found = jobs.objects(config)

    assert found["runtime"]["spec"]["mlPolicy"] == {"numNodes": nodes}
    assert (config.size_owner, config.initial_nodes) == (indexed.size_owner, indexed.initial_nodes) == (owner, nodes)
    assert found["workload"]["metadata"]["annotations"].get("elastic-infra/size-owner", "scale") == owner
    assert jobs.environment(config)["PET_NNODES"] == "2:4"


def test_to_let_the_size_move_restarts_nothing() -> None:
    """A job that has its maximum of nodes begins with them also where their number may move."""
    ours, plain = (
        jobs.objects(jobs.train_job(elastic={"nnodes": "2:4", **fields})) for fields in ({"elastic_job_set": True}, {})
    )

    assert ours["runtime"]["spec"] == plain["runtime"]["spec"]
    assert ours["workload"]["spec"] == plain["workload"]["spec"]


def test_its_job_is_an_indexed_job_but_for_its_size_and_the_containers_name() -> None:
    """Trainer sets parallelism and completions, and finds the training container by the name `node`."""
    ours, theirs = _job(), jobs.objects(jobs.indexed())["workload"]["spec"]
    own, their = (each.pop("template")["spec"]["containers"][0] for each in (ours, theirs))
    sizes = {name: theirs.pop(name) for name in ("parallelism", "completions")}
    codes = theirs["podFailurePolicy"]["rules"][1]["onExitCodes"]
    environment = {
        name: value for name, value in jobs.environment(jobs.train_job()).items() if not name.endswith("_ID")
    }

    assert sizes == {"parallelism": 4, "completions": 4}
    assert codes["containerName"] == their["name"] == "pytorch"
    codes["containerName"] = their["name"] = "node"
    assert ours == theirs
    assert {**own, "env": None} == {**their, "env": None}
    assert environment | {"ELASTIC_INFRA_NODE_NAME": None} == {
        name: value for name, value in jobs.environment(jobs.indexed()).items() if not name.endswith("_ID")
    } | {"ELASTIC_INFRA_NODE_NAME": None}


@pytest.mark.parametrize(
    ("fields", "endpoint", "service"),
    [
        ({}, "job-rdzv:29400", "job-rdzv"),
        ({"elastic": {"nnodes": 2}}, f"{HOST}:29400", HOST),
        ({"elastic": {"nnodes": 1}}, f"{HOST}:29400", HOST),
    ],
)
def test_the_store_is_found_by_its_service(fields: dict[str, Any], endpoint: str, service: str) -> None:
    """JobSet calls the Job `<job>-node-0`, after which the host of an index is named, and makes no Service here."""
    environment = jobs.environment(jobs.train_job(**fields))
    made = _objects(**fields)["service"]

    assert environment["PET_RDZV_ENDPOINT"] == endpoint
    assert environment["ELASTIC_INFRA_NODE_NAME"] == "job-node-0-$(ELASTIC_INFRA_REPLICA_INDEX)"
    assert made["metadata"]["name"] == service
    assert (made["spec"]["selector"].get(INDEX) == "0") is (service == HOST)


def test_an_overlay_reaches_the_container_by_its_usual_name() -> None:
    """A job file moves between targets without a change of its overlays."""
    patch = {"spec": {"containers": [{"name": "pytorch", "tty": True}, {"name": "other", "image": "o"}]}}
    containers = _job(overlays={"pod": patch})["template"]["spec"]["containers"]

    assert [(each["name"], each.get("tty")) for each in containers] == [("node", True), ("other", None)]


def test_what_holds_the_job_is_the_train_jobs() -> None:
    """Suspension and another controller; a deadline is the Job's, which Trainer of any version passes on."""
    policy = {"suspend": True, "managed_by": "kueue.x-k8s.io/multikueue", "active_deadline_seconds": 60}
    found = _objects(run_policy=policy)

    assert found["workload"]["spec"] | {"runtimeRef": None} == {
        "runtimeRef": None,
        "suspend": True,
        "managedBy": "kueue.x-k8s.io/multikueue",
    }
    job = _job(run_policy=policy)
    assert job["activeDeadlineSeconds"] == 60
    assert not {"suspend", "managedBy"} & set(job)


@pytest.mark.parametrize(
    ("fields", "annotations"),
    [
        ({}, {}),
        (
            {"wait_for": "succeeded"},
            {"pulumi.com/timeoutSeconds": "600", "pulumi.com/waitFor": "condition=Complete"},
        ),
    ],
)
def test_pulumi_waits_only_when_asked(fields: dict[str, Any], annotations: dict[str, str]) -> None:
    """Pulumi waits for no custom resource by itself."""
    metadata = _objects(**fields)["workload"]["metadata"]

    assert metadata["annotations"] == {
        "pulumi.com/deletionPropagationPolicy": "foreground",
        "elastic-infra/size-owner": "config",
        **annotations,
    }


def test_both_objects_say_what_policies_judge() -> None:
    """The queue, the team and what a restart does: a policy sees the runtime alone, Kueue the TrainJob."""
    found = _objects(placement={"queue": "q"}, labels={"team": "a"}, run_policy={"on_restart": "refuse"})
    told = [
        (found[role]["metadata"]["labels"], found[role]["metadata"]["annotations"]["elastic-infra/on-restart"])
        for role in ("runtime", "workload")
    ]

    assert told[0] == told[1]
    assert told[0][0].items() >= {"kueue.x-k8s.io/queue-name": "q", "team": "a"}.items()


def test_figures_are_read_back_from_both_objects() -> None:
    """The bounds from the launcher's variable, the number that there should be from the runtime."""
    made = render("job", jobs.train_job(resources={"gpu": 8, "memory": "64Gi"}, run_policy={"backoff_limit": 7}))
    found = figures(workload_of(made))

    assert (found.min_nodes, found.max_nodes, replicas(workload_of(made))) == (2, 4, 4)
    assert (found.gpus_per_node, found.memory, found.backoff_limit) == (8, Decimal(64 * 2**30), 7)
    assert (found.max_restarts, found.restarts_in_place) == (3, True)
