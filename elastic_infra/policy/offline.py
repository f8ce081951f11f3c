"""The rules over job files, for `elastic-infra validate --policy`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from elastic_infra.config import JobConfig
from elastic_infra.manifests import render
from elastic_infra.policy.check import Violation, check
from elastic_infra.policy.settings import load_policy


def violations(policy: Path, jobs: Iterable[tuple[str, JobConfig]]) -> tuple[Violation, ...]:
    """The rules that the named jobs, taken as one stack, break.

    Raises:
        ConfigError: the policy file is not valid, or a job's name is not.
    """
    return check([render(name, config).workload for name, config in jobs], load_policy(policy))


def line(violation: Violation) -> str:
    """``mandatory image_pinned: job llm: ...``."""
    about = f"job {violation.job}: " if violation.job else ""
    return f"{violation.level} {violation.rule}: {about}{violation.message}"
