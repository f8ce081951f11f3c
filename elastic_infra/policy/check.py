"""All rules over all jobs: each job by itself, then all of them together. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from elastic_infra.manifests import Manifests
from elastic_infra.manifests.figures import RUNTIME_KIND, WORKLOAD_KINDS, at, of_runtime, renamed, workload_of
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

STORE_RULES: Final[Mapping[str, JobRule]] = {
    "image_pinned": rules.image_pinned,
    "restricted_profile": rules.restricted_profile,
    "registries": rules.registries,
    "environment": rules.forbidden_variables,
}
"""Those that the pod of a job's store has to keep as well, by the same fields."""

STACK_RULES: Final[Mapping[str, tuple[str, Callable[[Workload, Any], int]]]] = {
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
    jobs: Sequence[Manifests], policy: Policy, custom: Mapping[str, CustomJudge] | None = None
) -> tuple[Violation, ...]:
    """Every violation of every rule that is on, the jobs in their order.

    Args:
        jobs: the objects of all jobs that belong together.
        custom: the functions of the rules in `policy.custom` that are on, by their names.
    """
    return tuple(_violations(jobs, policy, custom or {}))


def _violations(jobs: Sequence[Manifests], policy: Policy, custom: Mapping[str, CustomJudge]) -> Iterator[Violation]:
    workloads = [workload_of(job) for job in jobs]
    for job, workload in zip(jobs, workloads, strict=True):
        for field in JOB_RULES:
            rule = getattr(policy, field)
            if rule.level != "disabled":
                yield from _broken(field, rule, workload, dict.fromkeys(_messages(field, rule, workload, job.store)))
        for field, own in custom.items():
            yield from _broken(field, policy.custom[field], workload, own(workload))
    for field in STACK_RULES:
        rule = getattr(policy, field)
        if rule.level != "disabled":
            yield from (Violation(field, rule.level, None, message) for message in over_budget(field, workloads, rule))


def _messages(field: str, rule: Rule, workload: Workload, store: Workload | None) -> Iterator[str]:
    yield from JOB_RULES[field](workload, rule)
    if store is not None and field in STORE_RULES:
        yield from STORE_RULES[field](store, rule)


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
    yield from _over(field, rule, counted, rule.per_stack, "all jobs together")
    teams = {team: [each for each in counted if _team(each, rule) == team] for team in _teams(counted, rule)}
    for team, theirs in teams.items():
        whose = f"all jobs of team {team!r}" if team is not None else f"all jobs without the label {rule.team_label!r}"
        limit = rule.other_teams if team is None else rule.per_team.get(team, rule.other_teams)
        yield from _over(field, rule, theirs, limit, whose)


def _over(field: str, rule: Budget, workloads: Sequence[Workload], limit: int | None, whose: str) -> Iterator[str]:
    what, amount = STACK_RULES[field]
    total = sum(amount(workload, rule) for workload in workloads)
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
    job = owner(resource)
    if job is None or resource.get("kind") == "Deployment":
        return None
    return of_runtime(resource, job) if resource.get("kind") == RUNTIME_KIND else resource


def store_of(resource: Mapping[str, Any]) -> Workload | None:
    """The Deployment of a job's store, called as the job; None for any other object."""
    job = owner(resource)
    if job is None or resource.get("kind") != "Deployment":
        return None
    return {**resource, "metadata": renamed(resource["metadata"], job)}


def owner(resource: Mapping[str, Any]) -> str | None:
    """The job that an object with pods belongs to; None for one that this package did not make, and for other kinds."""
    if resource.get("kind") not in _WITH_PODS:
        return None
    labels = at(resource, "metadata.labels")
    if not isinstance(labels, Mapping) or labels.get(MANAGED_BY) != "elastic-infra":
        return None
    return str(labels.get(INSTANCE))


_WITH_PODS: Final = (*(kind for kind in WORKLOAD_KINDS if kind != "TrainJob"), RUNTIME_KIND, "Deployment")
"""Kinds of object that hold pods themselves: workloads, the runtime of one, and the store."""
