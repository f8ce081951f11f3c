"""All rules over all jobs: each job by itself, then all of them together. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from elastic_infra.manifests.figures import WORKLOAD_KINDS, at
from elastic_infra.manifests.metadata import MANAGED_BY
from elastic_infra.policy import rules
from elastic_infra.policy.rules import Workload
from elastic_infra.policy.settings import Budget, Level, Policy, Rule

JobRule = Callable[[Workload, Any], Iterator[str]]

JOB_RULES: Final[Mapping[str, JobRule]] = {
    "image_pinned": rules.image_pinned,
    "gpu_budget": rules.gpu_budget,
    "node_budget": rules.node_budget,
    "checkpoint_when_preemptible": rules.checkpoint_when_preemptible,
    "restricted_profile": rules.restricted_profile,
    "labels": rules.labels,
    "priority_class": rules.priority_class,
    "restart_budget": rules.restart_budget,
    "no_active_deadline": rules.no_active_deadline,
}
"""Rules about one job, by their field of `Policy`."""

STACK_RULES: Final[Mapping[str, tuple[str, Callable[[Workload], int]]]] = {
    "gpu_budget": ("GPUs", rules.gpus),
    "node_budget": ("nodes", rules.nodes),
}
"""Rules about all jobs of a stack together: what is summed up."""


@dataclasses.dataclass(frozen=True)
class Violation:
    """One broken rule.

    Attributes:
        job: name of the job; None when it is all jobs together.
    """

    rule: str
    level: Level
    job: str | None
    message: str


def check(workloads: Sequence[Workload], policy: Policy) -> tuple[Violation, ...]:
    """Every violation of every rule that is on, the jobs in their order.

    Args:
        workloads: workload objects (`Manifests.workload`) of all jobs that belong together.
    """
    return tuple(_violations(workloads, policy))


def _violations(workloads: Sequence[Workload], policy: Policy) -> Iterator[Violation]:
    for workload in workloads:
        name = str(at(workload, "metadata.name"))
        for field, judge in JOB_RULES.items():
            rule = getattr(policy, field)
            if rule.level != "disabled":
                yield from (Violation(field, rule.level, name, message) for message in judge(workload, rule))
    for field in STACK_RULES:
        rule = getattr(policy, field)
        if rule.level != "disabled":
            yield from (Violation(field, rule.level, None, message) for message in over_budget(field, workloads, rule))


def over_budget(field: str, workloads: Sequence[Workload], rule: Rule) -> Iterator[str]:
    """What all jobs together use too much of."""
    what, amount = STACK_RULES[field]
    limit = rule.per_stack if isinstance(rule, Budget) else None
    total = sum(amount(workload) for workload in workloads)
    if limit is not None and total > limit:
        yield (
            f"all jobs together ({len(workloads)}) use up to {total} {what}, and {limit} are allowed. "
            "Lower elastic.nnodes of some, or run them one after the other."
        )


def is_ours(resource: Mapping[str, Any]) -> bool:
    """Whether an object is a workload of this package, and not some other Job of the same stack."""
    managed = at(resource, "metadata.labels")
    ours = isinstance(managed, Mapping) and managed.get(MANAGED_BY) == "elastic-infra"
    return ours and resource.get("kind") in WORKLOAD_KINDS
