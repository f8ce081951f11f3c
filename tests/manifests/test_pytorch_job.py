"""The PyTorchJob: worker-only, elastic, explicit where the operator's defaults would hurt."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests import jobs

RANGE: Final = {"nnodes": "2:4"}
BUDGETS: Final = [
    {"key": "join_timeout", "value": "900"},
    {"key": "last_call_timeout", "value": "5"},
    {"key": "timeout", "value": "900"},
]
NOT_HOST: Final = {"key": "is_host", "value": "false"}


def _spec(**fields: Any) -> Any:
    return jobs.objects(jobs.job(**{"elastic": RANGE, **fields}))["workload"]["spec"]


def test_the_spec_is_complete() -> None:
    """Everything but the pod's template, for two to four nodes."""
    spec = _spec()
    template = spec["pytorchReplicaSpecs"]["Worker"].pop("template")
    identity = spec["elasticPolicy"].pop("rdzvId")

    assert spec == {
        "elasticPolicy": {
            "minReplicas": 2,
            "maxReplicas": 4,
            "rdzvBackend": "c10d",
            "rdzvHost": "job-rdzv",
            "rdzvPort": 29400,
            "rdzvConf": [NOT_HOST, *BUDGETS],
            "maxRestarts": 3,
        },
        "nprocPerNode": "1",
        "pytorchReplicaSpecs": {"Worker": {"replicas": 4, "restartPolicy": "ExitCode"}},
        "runPolicy": {"cleanPodPolicy": "Running", "backoffLimit": 12},
    }
    assert identity.startswith("job-")
    assert set(template) == {"metadata", "spec"}


def test_the_pod_is_complete() -> None:
    """The whole template with the defaults, environment and zip aside."""
    template = jobs.objects(jobs.job(elastic=RANGE))["workload"]["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    (container,) = template["spec"]["containers"]
    container.pop("env")
    launcher = jobs.objects(jobs.job())["launcher"]["metadata"]["name"]

    assert template == {
        "metadata": {
            "labels": {
                "app.kubernetes.io/instance": "job",
                "app.kubernetes.io/managed-by": "elastic-infra",
                "app.kubernetes.io/component": "worker",
            },
            "annotations": {
                "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
                "karpenter.sh/do-not-disrupt": "true",
                "sidecar.istio.io/inject": "false",
            },
        },
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": {
                "fsGroup": 1000,
                "fsGroupChangePolicy": "OnRootMismatch",
                "runAsGroup": 1000,
                "runAsNonRoot": True,
                "runAsUser": 1000,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "terminationGracePeriodSeconds": 120,
            "tolerations": [
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}
                for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
            ],
            "volumes": [
                {"name": "shm", "emptyDir": {"medium": "Memory"}},
                {"name": "home", "emptyDir": {}},
                {"name": "launcher", "configMap": {"name": launcher}},
            ],
            "containers": [
                {
                    "name": "pytorch",
                    "image": jobs.IMAGE,
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["python3", "/opt/elastic-infra/launcher.zip"],
                    "args": ["train.py"],
                    "ports": [{"name": "pytorchjob-port", "containerPort": 29400, "protocol": "TCP"}],
                    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                    "terminationMessagePolicy": "FallbackToLogsOnError",
                    "volumeMounts": [
                        {"name": "shm", "mountPath": "/dev/shm"},
                        {"name": "home", "mountPath": "/home/elastic"},
                        {"name": "launcher", "mountPath": "/opt/elastic-infra", "readOnly": True},
                    ],
                }
            ],
        },
    }


@pytest.mark.parametrize(
    ("fields", "host", "port", "conf", "arguments"),
    [
        ({}, "job-rdzv", 29400, [NOT_HOST, *BUDGETS], ["train.py"]),
        ({"rendezvous": {"host": "worker0", "port": 2000}}, None, 2000, BUDGETS, ["train.py"]),
        ({"elastic": {"nnodes": 2}}, None, 29400, BUDGETS, ["train.py"]),
        (
            {"elastic": {"nnodes": 2}, "rendezvous": {"host": "dedicated"}},
            "job-rdzv",
            29400,
            [NOT_HOST, *BUDGETS],
            ["train.py"],
        ),
        (
            {"elastic": {**RANGE, "rdzv_backend": "etcd-v2", "rdzv_endpoint": "etcd:2379"}},
            None,
            None,
            BUDGETS,
            ["--rdzv-endpoint", "etcd:2379", "train.py"],
        ),
    ],
)
def test_where_nodes_meet(
    fields: dict[str, Any], host: str | None, port: int | None, conf: list[Any], arguments: list[str]
) -> None:
    """A dedicated store by default for ranges; the first node is found by its own name; etcd by the command line."""
    spec = _spec(**fields)
    policy = spec["elasticPolicy"]

    assert (policy.get("rdzvHost"), policy.get("rdzvPort"), policy["rdzvConf"]) == (host, port, conf)
    assert spec["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["args"] == arguments


@pytest.mark.parametrize(
    ("policy", "rendered"),
    [
        ({"backoff_limit": 0}, {"backoffLimit": 0}),
        ({"backoff_limit": -1}, {}),
        ({"suspend": False}, {"backoffLimit": 12, "suspend": False}),
        ({"suspend": True}, {"backoffLimit": 12, "suspend": True}),
        ({"ttl_seconds_after_finished": 0}, {"backoffLimit": 12, "ttlSecondsAfterFinished": 0}),
        ({"active_deadline_seconds": 60}, {"backoffLimit": 12, "activeDeadlineSeconds": 60}),
        (
            {"managed_by": "kueue.x-k8s.io/multikueue"},
            {"backoffLimit": 12, "managedBy": "kueue.x-k8s.io/multikueue"},
        ),
        ({"scheduling_policy": {}}, {"backoffLimit": 12, "schedulingPolicy": {"minAvailable": 2}}),
        (
            {
                "scheduling_policy": {
                    "min_available": 3,
                    "queue": "q",
                    "priority_class": "p",
                    "schedule_timeout_seconds": 60,
                }
            },
            {
                "backoffLimit": 12,
                "schedulingPolicy": {
                    "minAvailable": 3,
                    "queue": "q",
                    "priorityClass": "p",
                    "scheduleTimeoutSeconds": 60,
                },
            },
        ),
    ],
)
def test_the_run_policy_says_what_is_given_zeros_too(policy: dict[str, Any], rendered: dict[str, Any]) -> None:
    """Unset is absent, since the operator reads an absent field as its own default."""
    assert _spec(run_policy=policy)["runPolicy"] == {"cleanPodPolicy": "Running", **rendered}


def test_the_operators_autoscaler_gets_the_metrics() -> None:
    """Only when it is asked for; then there is none of ours."""
    metric = {"type": "pods", "name": "queue", "target": 5}
    ours = jobs.objects(jobs.elastic(autoscaling={"metrics": [metric]}))
    theirs = jobs.objects(jobs.elastic(autoscaling={"owner": "operator", "metrics": [metric]}))

    assert "metrics" not in ours["workload"]["spec"]["elasticPolicy"]
    assert theirs["workload"]["spec"]["elasticPolicy"]["metrics"] == ours["autoscaler"]["spec"]["metrics"]
    assert "autoscaler" not in theirs


@pytest.mark.parametrize(
    ("fields", "annotations"),
    [
        ({}, {}),
        ({"wait_for": "running"}, {"pulumi.com/timeoutSeconds": "600", "pulumi.com/waitFor": "condition=Running"}),
        (
            {"wait_for": "succeeded", "wait_timeout_seconds": 60},
            {"pulumi.com/timeoutSeconds": "60", "pulumi.com/waitFor": "condition=Succeeded"},
        ),
    ],
)
def test_pulumi_waits_only_when_asked(fields: dict[str, Any], annotations: dict[str, str]) -> None:
    """A queue for GPUs can take hours; deletion always returns when the pods are gone."""
    metadata = jobs.objects(jobs.elastic(**fields))["workload"]["metadata"]

    assert metadata["annotations"] == {"pulumi.com/deletionPropagationPolicy": "foreground", **annotations}


def test_a_queue_is_a_label_of_the_workload_alone() -> None:
    """Kueue admits the job as a whole, never its pods or its store."""
    objects = jobs.objects(jobs.elastic(placement={"queue": "gpu"}))
    labelled = [
        role for role, manifest in objects.items() if "kueue.x-k8s.io/queue-name" in manifest["metadata"]["labels"]
    ]

    assert labelled == ["workload"]
    assert "suspend" not in objects["workload"]["spec"]["runPolicy"]


@pytest.mark.parametrize(
    "change",
    [
        {"image": "other"},
        {"args": ["--lr", "1"]},
        {"env": {"A": "1"}},
        {"elastic": {"nnodes": "2:5"}},
        {"elastic": {**RANGE, "nproc_per_node": 2}},
        {"run_policy": {"rerun": "again"}},
        {"run_policy": {"restart_policy": "OnFailure"}},
    ],
)
def test_a_change_that_restarts_the_job_is_another_run(change: dict[str, Any]) -> None:
    """A new job never meets the old one in the store."""
    assert _spec(**change)["elasticPolicy"]["rdzvId"] != _spec()["elasticPolicy"]["rdzvId"]


@pytest.mark.parametrize(
    "change",
    [
        {"run_policy": {"backoff_limit": 7}},
        {"run_policy": {"suspend": True}},
        {"run_policy": {"ttl_seconds_after_finished": 60}},
        {"labels": {}},
        {"wait_for": "running"},
        {"disruption": {"pod_disruption_budget": True}},
    ],
)
def test_a_change_in_place_is_the_same_run(change: dict[str, Any]) -> None:
    """Nodes that come later must find the run that is going on."""
    assert _spec(**change)["elasticPolicy"]["rdzvId"] == _spec()["elasticPolicy"]["rdzvId"]


def test_a_run_id_of_the_users_own_is_kept() -> None:
    """The operator gets the user's run id as it is."""
    assert _spec(elastic={**RANGE, "rdzv_id": "mine"})["elasticPolicy"]["rdzvId"] == "mine"
