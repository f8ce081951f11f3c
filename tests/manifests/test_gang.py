"""What the rendered objects tell a gang scheduler: how many pods at least, and which."""

from __future__ import annotations

import re
from typing import Any

import pytest

from elastic_infra import JobConfig
from tests import jobs, kubernetes_schema

COSCHEDULING = {"placement": {"gang": {"scheduler": "coscheduling", "timeout_seconds": 30}}}
VOLCANO = {"placement": {"gang": {"scheduler": "volcano", "queue": "gpus"}, "priority_class": "high"}}
KAI = {"placement": {"gang": {"scheduler": "kai", "queue": "gpus"}}}
MAKERS = {"PyTorchJob": jobs.elastic, "Job": jobs.indexed, "TrainJob": jobs.train_job}


def pod(config: JobConfig) -> Any:
    """The template of a node, which is the last that is rendered."""
    return [*jobs.templates(jobs.objects(config))][-1]


@pytest.mark.parametrize("kind", MAKERS)
def test_coscheduling_gets_a_group_of_the_minimum(kind: str) -> None:
    """The pods name it by a label; the job's own name is left to the operator's group."""
    config = MAKERS[kind](**COSCHEDULING)
    group = jobs.objects(config)["gang"]

    assert (group["apiVersion"], group["kind"]) == ("scheduling.x-k8s.io/v1alpha1", "PodGroup")
    assert group["metadata"]["name"] == "job-gang"
    assert group["spec"] == {"minMember": 2, "scheduleTimeoutSeconds": 30}
    assert pod(config)["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == "job-gang"
    assert pod(config)["spec"]["schedulerName"] == "scheduler-plugins-scheduler"


@pytest.mark.parametrize("kind", MAKERS)
def test_volcano_gets_a_group_with_queue_and_priority(kind: str) -> None:
    """The pods name it by an annotation."""
    config = MAKERS[kind](**VOLCANO)
    group = jobs.objects(config)["gang"]

    assert group["apiVersion"] == "scheduling.volcano.sh/v1beta1"
    assert group["spec"] == {"minMember": 2, "queue": "gpus", "priorityClassName": "high"}
    assert pod(config)["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "job-gang"
    assert pod(config)["metadata"]["annotations"]["scheduling.volcano.sh/queue-name"] == "gpus"
    assert pod(config)["spec"]["schedulerName"] == "volcano"


def volcanos(file: str) -> str:
    """A Go file of Volcano's own types, of the version that `tools/volcano` pins."""
    try:
        found = kubernetes_schema.module_file("volcano", "volcano.sh/apis", f"pkg/apis/scheduling/v1beta1/{file}")
    except kubernetes_schema.SchemasMissing as error:
        pytest.skip(str(error))
    return found.read_text("utf-8")


def test_volcanos_types_have_the_fields_of_the_group() -> None:
    """Each under its name and of its type; the group and version are those of the types."""
    group = jobs.objects(jobs.elastic(**VOLCANO))["gang"]
    (spec,) = re.findall(r"^type PodGroupSpec struct {\n(.*?)^}", volcanos("types.go"), re.MULTILINE | re.DOTALL)
    types = dict(re.findall(r"^\t\w+ +(?=\S+ `json:\"(\w+))(\S+)", spec, re.MULTILINE))
    names = dict(re.findall(r'^\t(Group\w+) += "(.+)"$', volcanos("register.go"), re.MULTILINE))

    assert group["apiVersion"] == f"{names['GroupName']}/{names['GroupVersion']}"
    assert {field: types.get(field) for field in group["spec"]} == {
        "minMember": "int32",
        "queue": "string",
        "priorityClassName": "string",
    }


def test_volcano_looks_for_the_annotations_of_the_pods() -> None:
    """Its types name the annotation that says a pod's group, and the one that says its queue."""
    annotations = pod(jobs.elastic(**VOLCANO))["metadata"]["annotations"]
    labels = volcanos("labels.go").replace('GroupName + "', '"scheduling.volcano.sh')
    keys = dict(re.findall(r'^const (\w+) = "(.+)"$', labels, re.MULTILINE))

    assert annotations[keys["KubeGroupNameAnnotationKey"]] == "job-gang"
    assert annotations[keys["QueueNameAnnotationKey"]] == "gpus"


def test_kai_makes_its_own_group_of_what_the_job_says() -> None:
    """A batch/v1 Job by an annotation, a PyTorchJob by the bounds that it has anyhow."""
    job, operators = jobs.indexed(**KAI), jobs.elastic(**KAI)

    assert "gang" not in jobs.objects(job)
    assert pod(job)["metadata"]["labels"]["kai.scheduler/queue"] == "gpus"
    assert pod(job)["spec"]["schedulerName"] == "kai-scheduler"
    assert jobs.objects(job)["workload"]["metadata"]["annotations"]["kai.scheduler/batch-min-member"] == "2"
    assert jobs.objects(operators)["workload"]["spec"]["elasticPolicy"]["minReplicas"] == 2


def test_another_name_of_the_scheduler_wins() -> None:
    """A cluster may have installed it under a name of its own; the store is left to the default scheduler."""
    config = jobs.indexed(placement={"gang": {"scheduler": "coscheduling"}, "scheduler_name": "mine"})

    assert pod(config)["spec"]["schedulerName"] == "mine"
    assert "schedulerName" not in jobs.objects(config)["store"]["spec"]["template"]["spec"]
