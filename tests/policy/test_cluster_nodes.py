"""Which cluster nodes a job asks for, as the rules about spot nodes and about types of GPU see it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.policy.test_rules import JOB, broken_rules

SPOT = "cloud.google.com/gke-spot"
CAPACITY = "karpenter.sh/capacity-type"
PRODUCT = "nvidia.com/gpu.product"


def expression(key: str, operator: str, values: Any = None) -> dict[str, Any]:
    """One expression about cluster nodes, with values as an affinity takes them: verbatim."""
    return {"key": key, "operator": operator, "values": values}


def required(*terms: list[dict[str, Any]]) -> dict[str, Any]:
    """A node affinity that asks for one of these terms."""
    listed = [{"matchExpressions": term} for term in terms]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": listed}}}


def preferred(*expressions: dict[str, Any]) -> dict[str, Any]:
    """A node affinity that draws pods to such cluster nodes."""
    preference = {"weight": 1, "preference": {"matchExpressions": [*expressions]}}
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preference]}}


@pytest.mark.parametrize(
    ("placement", "is_preemptible"),
    [
        ({"tolerations": [{"operator": "Exists"}]}, True),
        ({"tolerations": [{"operator": "Exists", "effect": "NoSchedule"}]}, True),
        ({"tolerations": [{"operator": "Exists", "effect": "NoExecute"}]}, False),
        ({"tolerations": [{"key": "dedicated", "operator": "Exists"}]}, False),
        ({"affinity": required([expression(SPOT, "Exists")])}, True),
        ({"affinity": required([expression(SPOT, "DoesNotExist")])}, False),
        ({"affinity": required([expression(CAPACITY, "NotIn", ["on-demand"])])}, True),
        ({"affinity": required([expression(CAPACITY, "NotIn", ["spot"])])}, False),
        ({"affinity": required([expression(CAPACITY, "Exists"), expression(CAPACITY, "In", ["on-demand"])])}, False),
        ({"affinity": required([expression("zone", "In", ["a"])], [expression(CAPACITY, "In", ["spot"])])}, True),
        ({"affinity": required([expression(CAPACITY, "Exists")]), "node_selector": {CAPACITY: "on-demand"}}, False),
        ({"affinity": preferred(expression(SPOT, "In", ["true"]))}, True),
        ({"node_selector": {SPOT: "true"}}, True),
        ({"node_selector": {SPOT: "false"}}, False),
        ({"spot": "required"}, True),
        ({"spot": "preferred"}, True),
    ],
)
def test_a_job_that_admits_spot_nodes_keeps_checkpoints(placement: dict[str, Any], *, is_preemptible: bool) -> None:
    """By a toleration, or by labels that let cluster nodes with the value of a spot node through."""
    policy = {"checkpoint_when_preemptible": "mandatory"}
    broken = broken_rules({**JOB, "placement": placement, "storage": {}}, policy=policy)

    assert broken == (["checkpoint_when_preemptible"] if is_preemptible else [])


def test_no_taint_to_look_for_is_none_to_tolerate() -> None:
    """A policy without taints asks nothing of a job that tolerates all."""
    policy = {"checkpoint_when_preemptible": {"level": "mandatory", "taints": []}}
    every = {"placement": {"tolerations": [{"operator": "Exists"}]}, "storage": {}}

    assert broken_rules({**JOB, **every}, policy=policy) == []


A100, H100 = (expression(PRODUCT, "In", [name]) for name in ("A100", "H100"))


@pytest.mark.parametrize(
    ("placement", "is_kept"),
    [
        ({"node_selector": {PRODUCT: "A100"}}, True),
        ({"node_selector": {PRODUCT: "H100"}}, False),
        ({"affinity": required([A100])}, True),
        ({"affinity": required([A100, expression(PRODUCT, "Exists")])}, True),
        ({"affinity": required([A100], [H100])}, False),
        ({"affinity": required([A100], [expression(PRODUCT, "NotIn", ["A100"])])}, False),
        ({"affinity": required([A100], [expression("zone", "In", ["a"])])}, False),
        ({"affinity": required([expression(PRODUCT, "Exists")])}, False),
        ({"affinity": required([expression("zone", "In", ["a"])]), "node_selector": {PRODUCT: "A100"}}, True),
        ({"affinity": preferred(A100)}, False),
    ],
)
def test_a_type_of_gpu_is_chosen_by_what_binds(placement: dict[str, Any], *, is_kept: bool) -> None:
    """Only a selector, or an affinity each of whose terms names values, keeps a job from other GPUs."""
    policy = {"gpu_types": {"level": "mandatory", "allowed": ["A100"], "required": True}}

    assert broken_rules({**JOB, "placement": placement}, policy=policy) == ([] if is_kept else ["gpu_types"])


@pytest.mark.parametrize("values", [None, 5, "A100", {}])
@pytest.mark.parametrize("operator", ["In", "NotIn"])
def test_values_that_are_no_list_name_nothing(operator: str, values: Any) -> None:
    """The API server refuses them; the rules end with no traceback."""
    policy = {"gpu_types": {"level": "mandatory", "required": True}, "checkpoint_when_preemptible": "mandatory"}
    affinity = required([expression(PRODUCT, operator, values), expression(SPOT, "In", values)])

    assert broken_rules({**JOB, "placement": {"affinity": affinity}}, policy=policy) == ["gpu_types"]
