"""Each rule by itself: what it lets pass, what it refuses, and that its limits are settable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from elastic_infra import ConfigError, JobConfig, render
from elastic_infra.policy import Policy, check, load_policy
from elastic_infra.policy.check import JOB_RULES, is_ours

PINNED = f"registry.example.com/train@sha256:{'0' * 64}"
JOB: dict[str, Any] = {
    "image": PINNED,
    "script": "train.py",
    "elastic": {"nnodes": "2:4", "max_restarts": 5},
    "resources": {"cpu": 8, "memory": "64Gi", "gpu": 8},
    "labels": {"team": "research"},
    "placement": {"priority_class": "batch"},
    "storage": {"checkpoint": {"claim": "checkpoints"}},
}
EVERYTHING: dict[str, Any] = {
    "image_pinned": "mandatory",
    "gpu_budget": {"level": "mandatory", "per_job": 32, "per_stack": 64},
    "node_budget": {"level": "mandatory", "per_job": 4, "per_stack": 8},
    "checkpoint_when_preemptible": "mandatory",
    "restricted_profile": "mandatory",
    "labels": {"level": "mandatory", "required": {"team": "[a-z]+"}},
    "priority_class": {"level": "mandatory", "allowed": ["batch", "research"], "required": True},
    "restart_budget": "mandatory",
    "no_active_deadline": "advisory",
}
SPOT_TAINT = [{"key": "cloud.google.com/gke-spot"}]
SPOT_LABEL = {"cloud.google.com/gke-spot": "true"}
SPOT = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
    {"matchExpressions": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}]},
]}}}  # fmt: skip

BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "a tag": ({"image": "registry.example.com/train:latest"}, "image_pinned"),
    "too many GPUs": ({"resources": {"gpu": 16}}, "gpu_budget"),
    "too many nodes": ({"elastic": {"nnodes": "2:5"}, "resources": {"gpu": 1}}, "node_budget"),
    "a single pod with too many GPUs": ({"elastic": {"nnodes": 1}, "resources": {"gpu": 33}}, "gpu_budget"),
    "a MIG slice counts": ({"resources": {"gpu": {"count": 9, "resource": "nvidia.com/mig-1g.10gb"}}}, "gpu_budget"),
    "spot nodes by selector": (
        {
            "placement": {"priority_class": "batch", "node_selector": {"cloud.google.com/gke-spot": "true"}},
            "storage": {},
        },
        "checkpoint_when_preemptible",
    ),
    "spot nodes by toleration": (
        {
            "placement": {"priority_class": "batch", "tolerations": SPOT_TAINT},
            "storage": {},
        },
        "checkpoint_when_preemptible",
    ),
    "spot nodes by affinity": (
        {"placement": {"priority_class": "batch", "affinity": SPOT}, "storage": {}},
        "checkpoint_when_preemptible",
    ),
    "the baseline profile": ({"security": {"profile": "baseline"}}, "restricted_profile"),
    "no label": ({"labels": {}}, "labels"),
    "a label of another form": ({"labels": {"team": "R2D2"}}, "labels"),
    "no priority class": ({"placement": {}}, "priority_class"),
    "another priority class": ({"placement": {"priority_class": "system-critical"}}, "priority_class"),
    "no restarts": ({"elastic": {"nnodes": "2:4", "max_restarts": 0}}, "restart_budget"),
    "no restarts of a single pod": ({"elastic": {"nnodes": 1, "max_restarts": 0}}, "restart_budget"),
    "too many restarts": ({"elastic": {"nnodes": "2:4", "max_restarts": 101}}, "restart_budget"),
    "endless container restarts": (
        {"run_policy": {"restart_policy": "OnFailure", "backoff_limit": -1}},
        "restart_budget",
    ),
    "a deadline": ({"run_policy": {"active_deadline_seconds": 3600}}, "no_active_deadline"),
}


def broken_rules(*jobs: dict[str, Any], policy: dict[str, Any] | None = None) -> list[str]:
    """The rules that these jobs break, taken as one stack."""
    workloads = [render(f"job{i}", JobConfig.from_mapping(job)).workload for i, job in enumerate(jobs)]
    return [violation.rule for violation in check(workloads, Policy.model_validate(policy or EVERYTHING))]


def test_a_job_within_every_rule_passes() -> None:
    """All rules on, nothing to say."""
    assert broken_rules(JOB) == []


@pytest.mark.parametrize(("change", "rule"), BROKEN.values(), ids=BROKEN.keys())
def test_a_rule_refuses_what_it_is_about(change: dict[str, Any], rule: str) -> None:
    """One thing wrong breaks exactly one rule."""
    assert broken_rules({**JOB, **change}) == [rule]


def test_every_rule_has_a_case() -> None:
    """No rule goes untested, and none goes undocumented."""
    assert {rule for _, rule in BROKEN.values()} == set(JOB_RULES) == set(Policy.model_fields)
    assert all(Policy.model_fields[name].annotation.__doc__ for name in JOB_RULES)


def test_rules_are_off_until_given_a_level() -> None:
    """An empty policy refuses nothing."""
    assert broken_rules(*({**JOB, **change} for change, _ in BROKEN.values()), policy={"labels": "disabled"}) == []


def test_budgets_of_a_stack_count_all_jobs() -> None:
    """Each job fits, together they do not."""
    assert broken_rules(JOB, JOB) == []
    assert broken_rules(JOB, JOB, JOB) == ["gpu_budget", "node_budget"]


def test_a_checkpoint_may_be_asked_of_every_job() -> None:
    """`always` needs no spot node."""
    policy = {"checkpoint_when_preemptible": {"level": "mandatory", "always": True}}

    assert broken_rules({**JOB, "storage": {}}, policy=policy) == ["checkpoint_when_preemptible"]


@pytest.mark.parametrize("limit", [-1, 0, 40])
def test_a_limit_that_counts_nothing_is_not_asked_for(limit: int) -> None:
    """With `ExitCode` no container is restarted in place, whatever the limit says."""
    exit_code = {"run_policy": {"restart_policy": "ExitCode", "backoff_limit": limit}}

    assert broken_rules({**JOB, **exit_code}) == []


def test_a_violation_says_what_to_do() -> None:
    """The message names the field to edit, the violation its job and level."""
    config = JobConfig.from_mapping({**JOB, "run_policy": {"active_deadline_seconds": 60}})
    (found,) = check([render("llm", config).workload], Policy.model_validate(EVERYTHING))

    assert (found.job, found.level) == ("llm", "advisory")
    assert "Remove run_policy.active_deadline_seconds" in found.message


def test_a_policy_file_is_checked_like_a_job_file(tmp_path: Path) -> None:
    """Unknown rules, levels and limits are faults with a path."""
    path = tmp_path / "policy.yaml"
    path.write_text("gpu_budgets: mandatory\nlabels: {level: must}\nnode_budget: {per_job: -1}\n", "utf-8")
    with pytest.raises(ConfigError) as error:
        load_policy(path)

    paths = [fault.path for fault in error.value.faults]
    assert sorted(paths) == ["gpu_budgets", "labels.level", "node_budget.per_job"]
    assert "Did you mean 'gpu_budget'?" in str(error.value)


def test_other_objects_of_a_stack_are_left_alone() -> None:
    """A Job that this package did not make is none of the pack's business."""
    ours = render("llm", JobConfig.from_mapping({**JOB, "elastic": {"nnodes": 1}}))

    assert is_ours(ours.workload)
    assert not is_ours({"kind": "Job", "metadata": {"labels": {"app": "migration"}}})
    assert not is_ours({"kind": "ConfigMap", "metadata": ours.workload["metadata"]})
