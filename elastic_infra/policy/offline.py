"""The rules over job files, for `elastic-infra validate --policy`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from elastic_infra.config import JobConfig
from elastic_infra.manifests import render
from elastic_infra.policy.check import Violation, check
from elastic_infra.policy.custom import load_functions
from elastic_infra.policy.settings import load_policy


def violations(policy: Path, jobs: Iterable[tuple[str, JobConfig]]) -> tuple[Violation, ...]:
    """The rules that the named jobs, taken as one stack, break.

    Raises:
        ConfigError: the policy file is not valid, a function that it names is not, or a job's name is not.
    """
    rules = load_policy(policy)
    return check([render(name, config) for name, config in jobs], rules, load_functions(rules, policy.parent))


def line(violation: Violation) -> str:
    """``mandatory image_pinned: job llm: ...``, or ``exempt`` with the reason."""
    about = f"job {violation.job}: " if violation.job else ""
    level = violation.level if violation.exempt is None else f"exempt ({violation.exempt})"
    return f"{level} {violation.rule}: {about}{violation.message}"


def refuses(violation: Violation) -> bool:
    """Whether a violation makes the jobs invalid."""
    return violation.level == "mandatory" and violation.exempt is None
