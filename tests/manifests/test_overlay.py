"""Patches of the pod template: merged as the API server merges, and never at the cost of the job's identity."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from elastic_infra.config import ConfigError, Fault, JobConfig
from elastic_infra.config.pod_patch import MERGE_KEYS
from elastic_infra.config.warnings import warnings
from elastic_infra.manifests.overlay import overlaid
from tests import jobs, kubernetes_schema

PAGE = Path(__file__).resolve().parents[2] / "docs" / "overlays.md"
EXAMPLES = re.findall(r"^## (.*?)\n.*?^```yaml\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
TEMPLATE = "io.k8s.api.core.v1.PodTemplateSpec"


def pod(**spec: Any) -> JobConfig:
    """A job with this patch of the pod's spec."""
    return jobs.elastic(overlays={"pod": {"spec": spec}})


def test_a_list_is_merged_by_kubernetes_own_key() -> None:
    """The training container keeps all that the patch does not name; what is new comes behind what was there."""
    base = jobs.container(jobs.elastic(env={"A": "1"}))
    patch = {"name": "pytorch", "env": [{"name": "A", "value": "2"}, {"name": "B", "value": "3"}], "tty": True}
    spec = jobs.pod_spec(pod(containers=[patch, {"name": "other", "image": "i"}]))
    patched, other = spec["containers"]
    values = {each["name"]: each.get("value") for each in patched["env"]}

    assert (patched["args"], patched["tty"], other["name"]) == (base["args"], True, "other")
    assert (values["A"], values["B"]) == ("2", "3")
    assert [each["name"] for each in patched["env"]][: len(base["env"]) - 1] == [
        each["name"] for each in base["env"] if each["name"] != "A"
    ]


def test_null_and_a_directive_take_out() -> None:
    """A key with null is gone, and so is the item of a list that the patch deletes."""
    patch: dict[str, Any] = {"schedulerName": None, "volumes": [{"name": "dshm", "$patch": "delete"}]}
    base: dict[str, Any] = {"schedulerName": "x", "volumes": [{"name": "dshm"}, {"name": "home"}], "hostNetwork": False}

    assert overlaid(base, patch) == {"volumes": [{"name": "home"}], "hostNetwork": False}


def test_other_lists_are_replaced() -> None:
    """Kubernetes gives tolerations no merge key, so the patch says all of them, or none."""
    only = [{"key": "spot", "operator": "Exists"}]

    assert jobs.pod_spec(pod(tolerations=only))["tolerations"] == only
    assert "tolerations" not in jobs.pod_spec(pod(tolerations=[]))


json_values = st.recursive(
    st.none() | st.booleans() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
trees = st.dictionaries(st.sampled_from("abc"), json_values, max_size=3)


@given(trees, trees)
def test_merging_twice_changes_nothing_more(base: dict[str, Any], patch: dict[str, Any]) -> None:
    """The same patch again finds itself; an empty patch changes nothing at all."""
    once = overlaid(base, patch)

    assert overlaid(once, patch) == once
    assert overlaid(base, {}) == base


def test_merge_keys_are_the_api_servers() -> None:
    """Each list below a pod template that Kubernetes merges, as its own OpenAPI document names the keys."""
    try:
        named = kubernetes_schema.schemas("apps/v1")
    except kubernetes_schema.SchemasMissing as error:
        pytest.skip(str(error))

    assert dict(merged_lists(named)) == MERGE_KEYS


def merged_lists(named: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Name and key of every list with a merge key that a pod template leads to."""
    queue, seen = [TEMPLATE], set()
    while queue:
        kind = queue.pop()
        for name, field in named[kind].get("properties", {}).items():
            key = field.get("x-kubernetes-patch-merge-key")
            if key and kind != "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta":
                yield name, key
            for found in re.findall(r"#/components/schemas/([\w.]+)", str(field)):
                if found not in seen:
                    seen.add(found)
                    queue.append(found)


@pytest.mark.parametrize(("title", "text"), EXAMPLES, ids=[title for title, _ in EXAMPLES])
def test_documented_overlays_fit_the_schema(title: str, text: str) -> None:
    """Every block of the page is a part of a job file, and the API server knows every field of the result."""
    config = jobs.elastic(**yaml.safe_load(text))
    try:
        faults = kubernetes_schema.faults(jobs.objects(config)["workload"])
    except kubernetes_schema.SchemasMissing as error:
        pytest.skip(str(error))

    assert config.overlays.pod, title
    assert faults == []


def test_the_hash_counts_the_patch() -> None:
    """Pods of two templates are not one rendezvous."""
    patched = jobs.job(overlays={"pod": {"spec": {"hostNetwork": True}}})
    names = [jobs.environment(each)["PET_RDZV_ID"] for each in (jobs.job(), patched)]

    assert names[0] != names[1]


@pytest.mark.parametrize(
    ("patch", "path"),
    [
        ({"kind": "Pod"}, "overlays.pod.kind"),
        ({"spec": []}, "overlays.pod.spec"),
        ({"metadata": {"name": "mine"}}, "overlays.pod.metadata.name"),
        ({"metadata": {"labels": {"app.kubernetes.io/instance": "x"}}}, "overlays.pod.metadata.labels.app.kubernetes"),
        ({"metadata": {"labels": {"training.kubeflow.org/job-name": "x"}}}, "overlays.pod.metadata.labels.training"),
        ({"spec": {"hostname": "x"}}, "overlays.pod.spec.hostname"),
        ({"spec": {"restartPolicy": "Always"}}, "overlays.pod.spec.restartPolicy"),
        ({"spec": {"terminationGracePeriodSeconds": 5}}, "overlays.pod.spec.terminationGracePeriodSeconds"),
        ({"spec": {"containers": None}}, "overlays.pod.spec.containers"),
        ({"spec": {"containers": [{"image": "x"}]}}, "overlays.pod.spec.containers[0]"),
        ({"spec": {"containers": [{"name": "pytorch", "$patch": "delete"}]}}, "overlays.pod.spec.containers[0].$patch"),
        ({"spec": {"containers": [{"name": "pytorch", "args": []}]}}, "overlays.pod.spec.containers[0].args"),
        (
            {"spec": {"containers": [{"name": "pytorch", "env": [{"name": "RANK", "value": "0"}]}]}},
            "overlays.pod.spec.containers[0].env.RANK",
        ),
        ({"metadata": {"labels": None}}, "overlays.pod.metadata.labels"),
        ({"metadata": {"annotations": None}}, "overlays.pod.metadata.annotations"),
        ({"spec": {"volumes": None}}, "overlays.pod.spec.volumes"),
        ({"spec": {"initContainers": None}}, "overlays.pod.spec.initContainers"),
        *(
            ({"spec": {"containers": [{"name": "pytorch", key: None}]}}, f"overlays.pod.spec.containers[0].{key}")
            for key in ("env", "ports", "volumeMounts")
        ),
    ],
)
def test_identity_stays(patch: dict[str, Any], path: str) -> None:
    """What the operator, the launcher or another object relies on is refused, by its path."""
    with pytest.raises(ConfigError) as refused:
        jobs.elastic(overlays={"pod": patch})

    assert any(fault.path.startswith(path) for fault in refused.value.faults)


def test_a_second_container_is_warned_of() -> None:
    """It keeps the pod from its end; a sidecar is an init container that restarts always."""
    paths = [warning.path for warning in warnings(pod(containers=[{"name": "proxy", "image": "i"}]))]

    assert "overlays.pod.spec.containers[0]" in paths


DIRECTIVES: list[tuple[dict[str, Any], str]] = [
    ({"metadata": {"labels": {"$patch": "replace"}}}, "overlays.pod.metadata.labels.$patch"),
    ({"spec": {"securityContext": {"$patch": "delete"}}}, "overlays.pod.spec.securityContext.$patch"),
    ({"spec": {"$retainKeys": ["containers"]}}, "overlays.pod.spec.$retainKeys"),
    ({"spec": {"volumes": [{"name": "a", "$patch": "replace"}]}}, "overlays.pod.spec.volumes[0].$patch"),
    ({"spec": {"tolerations": [{"key": "a", "$patch": "delete"}]}}, "overlays.pod.spec.tolerations[0].$patch"),
    (
        {"spec": {"volumes": [{"name": "a", "emptyDir": {"$retainKeys": []}}]}},
        "overlays.pod.spec.volumes[0].emptyDir.$retainKeys",
    ),
]


@pytest.mark.parametrize(("patch", "path"), DIRECTIVES, ids=[path for _, path in DIRECTIVES])
def test_other_directives_are_refused(patch: dict[str, Any], path: str) -> None:
    """Nothing follows them here, and the cluster would get them as they are."""
    (fault,) = refused(patch)

    assert fault.path == path
    assert "`$patch: delete`" in fault.reason


def refused(patch: dict[str, Any]) -> tuple[Fault, ...]:
    """The faults of a patch."""
    with pytest.raises(ConfigError) as error:
        jobs.elastic(overlays={"pod": patch})
    return error.value.faults


FORMS: list[tuple[dict[str, Any], str]] = [
    ({"metadata": {"labels": ["a"]}}, "metadata.labels"),
    ({"metadata": {"labels": {"a": 1}}}, "metadata.labels.a"),
    ({"metadata": {"annotations": {"a": True}}}, "metadata.annotations.a"),
    ({"spec": {"volumes": ["x"]}}, "spec.volumes[0]"),
    ({"spec": {"volumes": [{"emptyDir": {}}]}}, "spec.volumes[0]"),
    ({"spec": {"volumes": [{"name": "x", "emptyDir": "1Gi"}]}}, "spec.volumes[0].emptyDir"),
    ({"spec": {"volumes": {"name": "x"}}}, "spec.volumes"),
    ({"spec": {"initContainers": [{"image": "x"}]}}, "spec.initContainers[0]"),
    ({"spec": {"initContainers": ["x"]}}, "spec.initContainers[0]"),
    ({"spec": {"initContainers": "x"}}, "spec.initContainers"),
    ({"spec": {"initContainers": [{"name": "x", "env": "x"}]}}, "spec.initContainers[0].env"),
    ({"spec": {"topologySpreadConstraints": [{"maxSkew": 1}]}}, "spec.topologySpreadConstraints[0]"),
    *(
        ({"spec": {"containers": [{"name": "pytorch", key: value}]}}, f"spec.containers[0].{path}")
        for key, value, path in (
            ("env", "x", "env"),
            ("env", {"A": "b"}, "env"),
            ("env", [{"value": "x"}], "env[0]"),
            ("env", ["A=b"], "env[0]"),
            ("env", [{"name": "X", "value": 5}], "env[0].value"),
            ("env", [{"name": "X", "value": True}], "env[0].value"),
            ("env", [{"name": "X", "valueFrom": "y"}], "env[0].valueFrom"),
            ("env", [{"name": "X", "valueFrom": {"secretKeyRef": "y"}}], "env[0].valueFrom.secretKeyRef"),
            ("env", [{"name": "X", "valueFrom": {"fieldRef": {}}}], "env[0].valueFrom.fieldRef.fieldPath"),
            ("envFrom", "x", "envFrom"),
            ("envFrom", ["x"], "envFrom[0]"),
            ("envFrom", [{"secretRef": {}}], "envFrom[0]"),
            ("envFrom", [{"secretRef": None}], "envFrom[0]"),
            ("ports", [{"containerPort": "80"}], "ports[0]"),
            ("volumeMounts", [{"name": "x"}], "volumeMounts[0]"),
            ("volumeMounts", [{"mountPath": "/x"}], "volumeMounts[0].name"),
            ("volumeMounts", [{"name": "x", "mountPath": "/x", "subPath": 1}], "volumeMounts[0].subPath"),
            ("resources", "x", "resources"),
            ("resources", {"limits": ["x"]}, "resources.limits"),
            ("resources", {"limits": {"memory": "lots"}}, "resources.limits.memory"),
            ("resources", {"requests": {"memory": {}}}, "resources.requests.memory"),
        )
    ),
]


@pytest.mark.parametrize(("patch", "path"), FORMS, ids=[f"{i}-{path}" for i, (_, path) in enumerate(FORMS)])
def test_what_is_no_part_of_a_pod_is_refused(patch: dict[str, Any], path: str) -> None:
    """A list that is merged has mappings with its key, and text is text, as the API server wants it."""
    assert [fault.path for fault in refused(patch)] == [f"overlays.pod.{path}"]


@pytest.mark.parametrize(
    "patch",
    [
        {"metadata": {"labels": {"team": None, "env": "prod"}}},
        {"spec": {"nodeSelector": {"env": "prod"}, "imagePullSecrets": None}},
        {"spec": {"volumes": [{"name": "shm", "$patch": "delete"}]}},
        *(
            {"spec": {"containers": [{"name": "pytorch", **part}]}}
            for part in (
                {"volumeMounts": [{"mountPath": "/dev/shm", "readOnly": True}]},
                {"volumeMounts": [{"mountPath": "/dev/shm", "$patch": "delete"}]},
                {"env": [{"name": "A"}, {"name": "B", "value": None}, {"name": "C", "$patch": "delete"}]},
                {"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}]},
                {"resources": {"limits": {"memory": 1024, "cpu": None}}},
                {"ports": [{"containerPort": 80}]},
            )
        ),
    ],
)
def test_what_merges_is_accepted(patch: dict[str, Any]) -> None:
    """A key of a list that is merged means nothing among labels; what is there already needs no more than its key."""
    assert jobs.objects(jobs.elastic(overlays={"pod": patch}))
