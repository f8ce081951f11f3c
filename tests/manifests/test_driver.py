"""What the driver adds to a job: a container, its one token, and the rights that the token has."""

from __future__ import annotations

from typing import Any

import pytest

from elastic_infra.config import ConfigError
from elastic_infra.config.values import KnownLater
from elastic_infra.launcher.driver import avoidance
from tests import jobs

CAPACITY = {"autoscaling": {"policy": "capacity"}}
EVENTS = {"launcher": {"kubernetes_events": True}}
ROLES = ("account", "role", "role_binding")


def _elastic_train_job(**fields: Any) -> Any:
    """A TrainJob whose JobSet changes its size."""
    return jobs.train_job(elastic={"nnodes": "2:4", "elastic_job_set": True}, **fields)


def _driver(config: Any) -> dict[str, Any]:
    store, driver = jobs.objects(config)["store"]["spec"]["template"]["spec"]["containers"]
    assert store == jobs.objects(jobs.elastic())["store"]["spec"]["template"]["spec"]["containers"][0]
    return dict(driver)


def test_in_a_queue_the_driver_sees_what_waits_there() -> None:
    """It may list the workloads of the namespace, which no other job's driver may."""
    placement = {"queue": "research", "kueue": {"mode": "elastic"}}
    queued = jobs.objects(jobs.indexed(**CAPACITY, placement=placement))["role"]["rules"]
    alone = jobs.objects(jobs.indexed(**CAPACITY))["role"]["rules"]

    rule = {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"], "verbs": ["list"]}
    assert queued == [*alone, rule]


def test_the_driver_is_complete() -> None:
    """A second container in the store's pod, of the store's image, with a token that the kubelet renews."""
    config = jobs.elastic(**CAPACITY)
    pod = jobs.objects(config)["store"]["spec"]["template"]["spec"]
    amounts = {"cpu": "100m", "memory": "128Mi"}
    selector = "training.kubeflow.org/job-name=job,training.kubeflow.org/replica-type=worker"

    assert _driver(config) == {
        "name": "driver",
        "image": jobs.IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": [
            *("python3", "-m", "elastic_infra.launcher.driver"),
            *("--kind", "PyTorchJob", "--namespace", "default", "--name", "job", "--selector", selector),
            *("--sizes", "2:4:1", "--probe-seconds", "60", "--credentials", "/var/run/secrets/elastic-infra"),
        ],
        "env": [
            {"name": "PYTHONPATH", "value": "/opt/elastic-infra/launcher.zip"},
            {"name": "PYTHONUNBUFFERED", "value": "1"},
        ],
        "resources": {"requests": amounts, "limits": amounts},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": "launcher", "mountPath": "/opt/elastic-infra", "readOnly": True},
            {"name": "driver", "mountPath": "/var/run/secrets/elastic-infra", "readOnly": True},
        ],
    }
    assert pod["volumes"][1:] == [
        {
            "name": "driver",
            "projected": {
                "sources": [
                    {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}},
                    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                ]
            },
        }
    ]
    assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == ("job-driver", False)


@pytest.mark.parametrize(
    ("config", "own"),
    [
        (
            jobs.elastic(**CAPACITY),
            [("kubeflow.org", "pytorchjobs", "get"), ("kubeflow.org", "pytorchjobs/scale", "patch")],
        ),
        (jobs.indexed(**CAPACITY), [("batch", "jobs", "get"), ("batch", "jobs", "patch")]),
        (
            _elastic_train_job(**CAPACITY),
            [
                ("trainer.kubeflow.org", "trainjobs", "get"),
                ("jobset.x-k8s.io", "jobsets", "get"),
                ("jobset.x-k8s.io", "jobsets", "patch"),
            ],
        ),
    ],
)
def test_the_driver_may_resize_its_own_job_and_list(config: Any, own: list[tuple[str, str, str]]) -> None:
    """Nothing else, and nothing of other jobs but what a list of the namespace's pods shows."""
    objects = jobs.objects(config)

    assert objects["role"]["rules"] == [
        *(
            {"apiGroups": [group], "resources": [resource], "resourceNames": ["job"], "verbs": [verb]}
            for group, resource, verb in own
        ),
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
        {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": ["list"]},
    ]
    assert objects["role_binding"]["roleRef"]["name"] == objects["role"]["metadata"]["name"] == "job-driver"
    assert objects["role_binding"]["subjects"] == [
        {"kind": "ServiceAccount", "name": "job-driver", "namespace": "default"}
    ]
    assert objects["account"]["automountServiceAccountToken"] is False


@pytest.mark.parametrize("make", [jobs.elastic, jobs.indexed, _elastic_train_job])
def test_no_other_container_gets_a_token(make: Any) -> None:
    """The token's volume is mounted by the driver alone, and the nodes keep their service account."""
    objects = jobs.objects(make(**CAPACITY, security={"service_account": "team"}))
    store, node = objects["store"]["spec"]["template"]["spec"], jobs.pod_spec(make(**CAPACITY))
    mounting = [
        container["name"]
        for pod in (store, node)
        for container in pod["containers"]
        if "driver" in {mount["name"] for mount in container.get("volumeMounts", ())}
    ]

    assert mounting == ["driver"]
    assert not any("projected" in volume for volume in node["volumes"])
    assert store["serviceAccountName"] == "job-driver"
    assert jobs.pod_spec(make(**CAPACITY, security={"service_account": "team"}))["serviceAccountName"] == "team"


@pytest.mark.parametrize("config", [jobs.job(), jobs.elastic(), jobs.indexed(), jobs.train_job()])
def test_a_job_without_the_policy_has_none_of_it(config: Any) -> None:
    """No account, no rights, no token."""
    assert not set(ROLES) & set(jobs.objects(config))


@pytest.mark.parametrize(
    ("elastic", "told"),
    [
        ({"nnodes": "2:6"}, "2:6:1"),
        ({"nnodes": "2:6", "node_unit": 2}, "2:6:2"),
        ({"nnodes": "1:8", "nproc_per_node": 2, "world_sizes": [2, 4, 16, 64]}, "1,2,8"),
        ({"nnodes": "2:8", "node_unit": 2, "world_sizes": [2, 3, 8]}, "2,8"),
    ],
)
def test_the_driver_knows_the_sizes_that_can_train(elastic: dict[str, Any], told: str) -> None:
    """Nodes beyond such a number would hold idle what others could use."""
    command = _driver(jobs.elastic(elastic=elastic, **CAPACITY))["command"]

    assert command[command.index("--sizes") + 1] == told


def test_the_driver_follows_the_config() -> None:
    """The image and the delivery are the store's; the namespace may be known late."""
    namespace = KnownLater()
    config = jobs.indexed(
        namespace=namespace,
        launcher={"delivery": "image"},
        rendezvous={"image": "python:3.13-slim"},
        autoscaling={"policy": "capacity", "probe_seconds": 7},
    )
    driver = jobs.objects(config)["store"]["spec"]["template"]["spec"]["containers"][1]

    assert driver["image"] == "python:3.13-slim"
    assert driver["env"] == [{"name": "PYTHONUNBUFFERED", "value": "1"}]
    assert [mount["name"] for mount in driver["volumeMounts"]] == ["driver"]
    assert driver["command"][driver["command"].index("--namespace") + 1] is namespace
    assert driver["command"][driver["command"].index("--probe-seconds") + 1] == "7"


@pytest.mark.parametrize("make", [jobs.elastic, jobs.indexed, _elastic_train_job])
def test_nodes_say_which_of_them_take_only_what_is_idle(make: Any) -> None:
    """Drivers of other jobs read it."""
    ours, plain = (
        next(jobs.templates({"workload": objects.get("runtime", objects["workload"])}))["metadata"]["annotations"]
        for objects in map(jobs.objects, (make(**CAPACITY), make()))
    )

    assert ours == {**plain, "elastic-infra/min-nodes": "2"}


@pytest.mark.parametrize("make", [jobs.elastic, jobs.indexed, _elastic_train_job])
def test_the_job_begins_with_its_minimum_and_has_no_other_autoscaler(make: Any) -> None:
    """Pulumi leaves the size to the driver."""
    config = make(**CAPACITY)

    assert (config.initial_nodes, config.size_owner) == (2, "autoscaler")
    assert "autoscaler" not in jobs.objects(config)
    assert jobs.objects(config)["workload"]["metadata"]["annotations"]["elastic-infra/size-owner"] == "autoscaler"


def test_a_train_job_is_refused() -> None:
    """Its number of nodes does not move, unless JobSet lets it."""
    with pytest.raises(ConfigError, match="maximum of nodes for its whole life"):
        jobs.train_job(**CAPACITY)


@pytest.mark.parametrize(
    ("make", "group", "resource", "kind"),
    [
        (jobs.elastic, "kubeflow.org", "pytorchjobs", "PyTorchJob"),
        (jobs.indexed, "batch", "jobs", "Job"),
        (jobs.train_job, "trainer.kubeflow.org", "trainjobs", "TrainJob"),
    ],
)
def test_a_driver_that_tells_events_reads_the_store_and_its_own_job(
    make: Any, group: str, resource: str, kind: str
) -> None:
    """It knows the run that the nodes have, and the store's token; a name cannot bound what it makes."""
    config = make(elastic={"nnodes": "2:4"}, **EVENTS)
    objects = jobs.objects(config)
    driver = _driver(config)
    pod = jobs.pod_spec(config)
    run = next((each["value"] for each in pod["containers"][0]["env"] if each["name"] == "PET_RDZV_ID"), None)
    told = run or objects["workload"]["spec"]["elasticPolicy"]["rdzvId"]

    assert driver["command"] == [
        *("python3", "-m", "elastic_infra.launcher.driver", "--kind", kind, "--namespace", "default", "--name", "job"),
        *("--events", "--run", told, "--port", "29400", "--credentials", "/var/run/secrets/elastic-infra"),
    ]
    assert driver["env"][0] == objects["store"]["spec"]["template"]["spec"]["containers"][0]["env"][0]
    assert objects["role"]["rules"] == [
        {"apiGroups": [group], "resources": [resource], "resourceNames": ["job"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
    ]


def test_one_driver_does_both() -> None:
    """One container and one Role with the rights of both."""
    both = jobs.objects(jobs.elastic(**CAPACITY, **EVENTS))
    command, capacity = _driver(jobs.elastic(**CAPACITY, **EVENTS))["command"], jobs.objects(jobs.elastic(**CAPACITY))

    assert {"--sizes", "--selector", "--run", "--port"} <= {*command}
    assert both["role"]["rules"] == [
        *capacity["role"]["rules"],
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
    ]


@pytest.mark.parametrize("make", [jobs.elastic, jobs.indexed, jobs.train_job])
def test_pods_avoid_the_driver_s_pods_on_bad_cluster_nodes(make: Any) -> None:
    """The label and the names are those that the driver gives; it deletes no other pod."""
    config = make(elastic={"nnodes": "2:4"}, placement={"avoid_bad_nodes": True})
    (term,) = jobs.pod_spec(config)["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    rules = jobs.objects(config)["role"]["rules"][1:]

    assert "--avoid" in _driver(config)["command"]
    assert "--events" not in _driver(config)["command"]
    assert term == {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {avoidance.LABEL: "job"}}}
    assert rules == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["pods"], "resourceNames": avoidance.names("job"), "verbs": ["delete"]},
    ]


def test_a_right_is_given_once() -> None:
    """Growth lists pods as well."""
    both = jobs.objects(jobs.elastic(**CAPACITY, placement={"avoid_bad_nodes": True}))["role"]["rules"]

    assert both.count({"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}) == 1
