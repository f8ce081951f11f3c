"""All rules over all jobs: each job by itself, then all of them together. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from elastic_infra.manifests.figures import RUNTIME_KIND, WORKLOAD_KINDS, at, of_runtime
from elastic_infra.manifests.metadata import INSTANCE, MANAGED_BY
from elastic_infra.policy import rules
from elastic_infra.policy.rules import Workload
from elastic_infra.policy.settings import Budget, Level, Policy, Rule

JobRule = Callable[[Workload, Any], Iterator[str]]

CustomJudge = Callable[[Workload], Iterable[str]]
"""A rule of a platform team's own: what is wrong with a workload object."""

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
    "registries": rules.registries,
    "namespaces": rules.namespaces,
    "queues": rules.queues,
    "gpu_types": rules.gpu_types,
    "lifetime": rules.lifetime,
    "environment": rules.environment,
    "on_restart": rules.on_restart,
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
        exempt: why the job need not keep the rule; None where it must.
    """

    rule: str
    level: Level
    job: str | None
    message: str
    exempt: str | None = None


def check(
    workloads: Sequence[Workload], policy: Policy, custom: Mapping[str, CustomJudge] | None = None
) -> tuple[Violation, ...]:
    """Every violation of every rule that is on, the jobs in their order.

    Args:
        workloads: workload objects of all jobs that belong together, a TrainJob with its runtime (`workload_of`).
        custom: the functions of the rules in `policy.custom` that are on, by their names.
    """
    return tuple(_violations(workloads, policy, custom or {}))


def _violations(
    workloads: Sequence[Workload], policy: Policy, custom: Mapping[str, CustomJudge]
) -> Iterator[Violation]:
    for workload in workloads:
        for field, judge in JOB_RULES.items():
            rule = getattr(policy, field)
            if rule.level != "disabled":
                yield from _broken(field, rule, workload, judge(workload, rule))
        for field, own in custom.items():
            yield from _broken(field, policy.custom[field], workload, own(workload))
    for field in STACK_RULES:
        rule = getattr(policy, field)
        if rule.level != "disabled":
            yield from (Violation(field, rule.level, None, message) for message in over_budget(field, workloads, rule))


def _broken(field: str, rule: Rule, workload: Workload, messages: Iterable[str]) -> Iterator[Violation]:
    name, exempt = str(at(workload, "metadata.name")), exemption(workload, rule)
    yield from (Violation(field, rule.level, name, message, exempt) for message in messages)


def exemption(workload: Workload, rule: Rule) -> str | None:
    """Why a job need not keep a rule; None where it must."""
    found = at(workload, "metadata.labels")
    labels = {**found} if isinstance(found, Mapping) else {}
    for each in rule.exempt:
        if all(name in labels and value in {"", labels[name]} for name, value in each.labels.items()):
            return each.reason
    return None


def over_budget(field: str, workloads: Sequence[Workload], rule: Budget) -> Iterator[str]:
    """What all jobs together, or all of a team, use too much of; exempt jobs are not counted."""
    counted = [workload for workload in workloads if exemption(workload, rule) is None]
    yield from _over(field, counted, rule.per_stack, "all jobs together")
    teams = {team: [each for each in counted if _team(each, rule) == team] for team in _teams(counted, rule)}
    for team, theirs in teams.items():
        whose = f"all jobs of team {team!r}" if team is not None else f"all jobs without the label {rule.team_label!r}"
        limit = rule.other_teams if team is None else rule.per_team.get(team, rule.other_teams)
        yield from _over(field, theirs, limit, whose)


def _over(field: str, workloads: Sequence[Workload], limit: int | None, whose: str) -> Iterator[str]:
    what, amount = STACK_RULES[field]
    total = sum(amount(workload) for workload in workloads)
    if limit is not None and total > limit:
        yield (
            f"{whose} ({len(workloads)}) use up to {total} {what}, and {limit} are allowed. "
            "Lower elastic.nnodes of some, or run them one after the other."
        )


def _teams(workloads: Sequence[Workload], rule: Budget) -> list[str | None]:
    return list(dict.fromkeys(_team(workload, rule) for workload in workloads))


def _team(workload: Workload, rule: Budget) -> str | None:
    labels = at(workload, "metadata.labels")
    team = labels.get(rule.team_label) if isinstance(labels, Mapping) else None
    return None if team is None else str(team)


def judged(resource: Mapping[str, Any]) -> Workload | None:
    """The workload that an object of a stack stands for; None for some other Job, and for any other object.

    A rule sees one object at a time. A TrainJob is judged by its runtime, which holds its pods.
    """
    labels = at(resource, "metadata.labels")
    if not isinstance(labels, Mapping) or labels.get(MANAGED_BY) != "elastic-infra":
        return None
    if resource.get("kind") == RUNTIME_KIND:
        return of_runtime(resource, str(labels.get(INSTANCE)))
    return resource if resource.get("kind") in _WITH_PODS else None


_WITH_PODS: Final = tuple(kind for kind in WORKLOAD_KINDS if kind != "TrainJob")
"""Workloads that hold their pods themselves."""
