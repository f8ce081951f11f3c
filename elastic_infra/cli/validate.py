"""The command `validate`: every fault of every file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elastic_infra.cli import files
from elastic_infra.config import ConfigError, JobConfig
from elastic_infra.manifests import render


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command()(validate)


def validate(
    paths: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Jobs in YAML or JSON.", show_default=False)],
    name: files.Name = None,
    policy: Annotated[
        Path | None, typer.Option(help="Rules that the jobs, taken as one stack, have to keep as well.")
    ] = None,
) -> None:
    """Check job files: exit 2 and a line for each fault when one is invalid; warnings change nothing."""
    jobs = [_checked(file, name) for file in paths]
    valid = [job for job in jobs if job is not None]
    kept = policy is None or _keep(policy, valid)
    if len(valid) < len(jobs) or not kept:
        raise typer.Exit(files.BAD_INPUT)


def _checked(file: Path, name: str | None) -> tuple[str, JobConfig] | None:
    try:
        job, config = files.named_config(file, name, None)
        render(job, config)
    except ConfigError as error:
        files.report(file, error.faults)
        return None
    files.warn(file, config)
    return job, config


def _keep(policy: Path, jobs: list[tuple[str, JobConfig]]) -> bool:
    """Report the rules that the jobs break; returns whether none of these is mandatory."""
    from elastic_infra.policy import offline

    try:
        found = offline.violations(policy, jobs)
    except ConfigError as error:
        files.report(policy, error.faults)
        return False
    for violation in found:
        typer.echo(offline.line(violation), err=True)
    return not any(map(offline.refuses, found))
