"""What runs in the pod, with what, and where."""

from __future__ import annotations

from typing import Any

import pytest

from elastic_infra.config import ConfigError
from tests import jobs


@pytest.mark.parametrize(
    ("fields", "arguments"),
    [
        ({"args": ["--lr", "0.1"]}, ["train.py", "--lr", "0.1"]),
        ({"script": None, "module": "pkg.train", "args": ["x"]}, ["--module", "pkg.train", "x"]),
        ({"script": None, "command": ["sh", "-c"], "args": ["true"]}, ["--no-python", "sh", "-c", "true"]),
        ({"args": [""]}, ["train.py", ""]),
    ],
)
def test_the_launcher_gets_torchruns_command_line(fields: dict[str, Any], arguments: list[str]) -> None:
    """A script, a module, or a program that is not Python."""
    assert jobs.container(jobs.elastic(**fields))["args"] == arguments


@pytest.mark.parametrize(
    ("delivery", "command"),
    [
        ("configmap", ["python3", "/opt/elastic-infra/launcher.zip"]),
        ("image", ["python3", "-m", "elastic_infra.launcher"]),
    ],
)
def test_how_the_launcher_is_started(delivery: str, command: list[str]) -> None:
    """Mounted as a zip, or installed in the image; then nothing is mounted."""
    config = jobs.job(launcher={"delivery": delivery})
    mounts = {mount["name"] for mount in jobs.container(config)["volumeMounts"]}

    assert jobs.container(config)["command"] == command
    assert ("launcher" in mounts) == (delivery == "configmap")


@pytest.mark.parametrize(
    ("given", "amounts"),
    [
        ({"cpu": 4, "memory": "8Gi"}, {"cpu": "4", "memory": "8Gi"}),
        ({"ephemeral_storage": "10Gi"}, {"ephemeral-storage": "10Gi"}),
        ({"gpu": 8}, {"nvidia.com/gpu": "8"}),
        ({"gpu": {"count": 1, "vendor": "amd"}}, {"amd.com/gpu": "1"}),
        ({"gpu": {"count": 1, "vendor": "intel"}}, {"gpu.intel.com/i915": "1"}),
        ({"gpu": {"count": 4, "vendor": "google"}}, {"google.com/tpu": "4"}),
        ({"gpu": {"count": 16, "vendor": "neuron"}}, {"aws.amazon.com/neuron": "16"}),
        ({"gpu": {"count": 2, "resource": "nvidia.com/mig-1g.10gb"}}, {"nvidia.com/mig-1g.10gb": "2"}),
        ({"cpu": 1, "hugepages": {"amount": "64Mi"}}, {"cpu": "1", "hugepages-2Mi": "64Mi"}),
        ({"cpu": 1, "hugepages": {"amount": 2**31, "page_size": "1Gi"}}, {"cpu": "1", "hugepages-1Gi": "2147483648"}),
    ],
)
def test_requests_are_limits(given: dict[str, Any], amounts: dict[str, str]) -> None:
    """A node that is given what it asked for is never evicted for using it."""
    assert jobs.container(jobs.job(resources=given))["resources"] == {"requests": amounts, "limits": amounts}


@pytest.mark.parametrize("amount", ["1Mi", "3Mi", "1.5Gi", "1G"])
def test_a_part_of_a_large_page_is_refused(amount: str) -> None:
    """Kubernetes gives whole pages only."""
    with pytest.raises(ConfigError, match=r"^resources\.hugepages: amount \(.*\) must be a multiple of page_size"):
        jobs.job(resources={"cpu": 1, "hugepages": {"amount": amount, "page_size": "1Gi"}})


def test_rdma_comes_with_locked_memory() -> None:
    """The training container alone has the capability; the store needs none."""
    devices = {"resource": "rdma/hca_shared_devices_a", "count": 2}
    config = jobs.elastic(resources={"gpu": 8, "rdma": devices}, security={"profile": "baseline"})
    amounts = {"nvidia.com/gpu": "8", "rdma/hca_shared_devices_a": "2"}
    (store,) = jobs.objects(config)["store"]["spec"]["template"]["spec"]["containers"]

    assert jobs.container(config)["resources"] == {"requests": amounts, "limits": amounts}
    assert jobs.container(config)["securityContext"] == {"capabilities": {"add": ["IPC_LOCK"]}}
    assert store["securityContext"] == {}


@pytest.mark.parametrize("target", ["pytorchjob", "job", "trainjob"])
def test_a_claim_is_made_for_each_pod_and_given_to_the_container(target: str) -> None:
    """Beside amounts, or without any."""
    claims = [{"name": "gpus", "template": "two-h100"}, {"name": "nics", "template": "rdma"}]
    config = jobs.elastic(target=target, resources={"memory": "1Gi", "claims": claims})
    alone = jobs.elastic(target=target, resources={"claims": claims[:1]})

    assert jobs.pod_spec(config)["resourceClaims"] == [
        {"name": "gpus", "resourceClaimTemplateName": "two-h100"},
        {"name": "nics", "resourceClaimTemplateName": "rdma"},
    ]
    assert jobs.container(config)["resources"]["claims"] == [{"name": "gpus"}, {"name": "nics"}]
    assert jobs.container(config)["resources"]["limits"] == {"memory": "1Gi"}
    assert jobs.container(alone)["resources"] == {"claims": [{"name": "gpus"}]}


def test_a_pod_that_asks_for_nothing_says_nothing() -> None:
    """So that the namespace's own defaults apply."""
    assert "resources" not in jobs.container(jobs.job())


@pytest.mark.parametrize(
    ("given", "field", "rendered"),
    [
        ({"node_selector": {"gpu": "h100"}}, "nodeSelector", {"gpu": "h100"}),
        ({"priority_class": "high"}, "priorityClassName", "high"),
        ({"scheduler_name": "volcano"}, "schedulerName", "volcano"),
        (
            {"affinity": {"nodeAffinity": {"a": [{"b": 1}]}}},
            "affinity",
            {"nodeAffinity": {"a": [{"b": 1}]}},
        ),
        (
            {"topology_spread": [{"topology_key": "zone", "max_skew": 2}]},
            "topologySpreadConstraints",
            [
                {
                    "topologyKey": "zone",
                    "maxSkew": 2,
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {
                        "matchLabels": {
                            "app.kubernetes.io/instance": "job",
                            "app.kubernetes.io/component": "worker",
                        }
                    },
                }
            ],
        ),
    ],
)
def test_placement_reaches_the_pod(given: dict[str, Any], field: str, rendered: object) -> None:
    """Each field by Kubernetes' name."""
    assert jobs.pod_spec(jobs.job(placement=given))[field] == rendered


def test_tolerations_come_after_those_for_a_lost_cluster_node() -> None:
    """The user's are added, ours stay."""
    given = [{"key": "gpu"}, {"key": "a", "operator": "Equal", "value": "b", "effect": "NoSchedule"}]
    tolerations = jobs.pod_spec(jobs.job(placement={"tolerations": given}))["tolerations"]

    assert [t["tolerationSeconds"] for t in tolerations[:2]] == [60, 60]
    assert tolerations[2:] == [
        {"key": "gpu", "operator": "Exists"},
        {"key": "a", "operator": "Equal", "value": "b", "effect": "NoSchedule"},
    ]


@pytest.mark.parametrize(
    "toleration",
    [
        {"operator": "Exists", "key": "a", "value": "b"},
        {"operator": "Equal", "value": "b"},
        {"key": "a", "toleration_seconds": 3},
        {"key": "a", "effect": "NoSchedule", "toleration_seconds": 3},
    ],
)
def test_a_toleration_that_kubernetes_would_refuse_is_refused(toleration: dict[str, Any]) -> None:
    """A value without Equal, Equal without a key, seconds without NoExecute."""
    with pytest.raises(ConfigError, match=r"^placement\.tolerations\[0\]: "):
        jobs.job(placement={"tolerations": [toleration]})


@pytest.mark.parametrize(
    ("evict", "annotations"),
    [
        (True, {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}),
        (
            False,
            {
                "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
                "karpenter.sh/do-not-disrupt": "true",
            },
        ),
    ],
)
def test_who_may_move_a_pod(evict: bool, annotations: dict[str, str]) -> None:  # noqa: FBT001 - a case
    """None by default: moving a node costs training time."""
    workload = jobs.objects(jobs.elastic(disruption={"safe_to_evict": evict}, annotations={"note": "x"}))["workload"]
    found = workload["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["metadata"]["annotations"]

    assert found == {"note": "x", **annotations, "sidecar.istio.io/inject": "false"}


def test_the_users_labels_and_annotations_are_on_every_object_and_pod() -> None:
    """So that cost reports and policies see all of a job."""
    config = jobs.elastic(labels={"team": "x"}, annotations={"note": "y"}, disruption={"pod_disruption_budget": True})
    objects = jobs.objects(config)
    metadata = [manifest["metadata"] for manifest in objects.values()]
    metadata += [
        objects["workload"]["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["metadata"],
        objects["store"]["spec"]["template"]["metadata"],
    ]

    assert {entry["labels"]["team"] for entry in metadata} == {"x"}
    assert {entry["annotations"]["note"] for entry in metadata} == {"y"}


def test_the_disruption_budget_keeps_the_minimum_of_nodes() -> None:
    """Counted on the operator's pods."""
    budget = jobs.objects(jobs.elastic(disruption={"pod_disruption_budget": True}))["disruption_budget"]

    assert budget["spec"] == {
        "minAvailable": 2,
        "selector": {
            "matchLabels": {
                "training.kubeflow.org/job-name": "job",
                "training.kubeflow.org/replica-type": "worker",
            }
        },
    }


def test_the_status_port_is_named_on_every_kind_of_pod() -> None:
    """The operator makes no Service for a pod that has an unnamed port."""
    single = jobs.container(jobs.job(launcher={"metrics_port": 9000}))["ports"]
    node = jobs.container(jobs.elastic(launcher={"metrics_port": 9000}))["ports"]

    assert [port["name"] for port in single] == ["status"]
    assert [port["name"] for port in node] == ["pytorchjob-port", "status"]
