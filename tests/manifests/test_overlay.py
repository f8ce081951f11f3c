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

from elastic_infra.config import ConfigError, JobConfig
from elastic_infra.config.warnings import warnings
from elastic_infra.manifests.overlay import MERGE_KEYS, overlaid
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
