"""The command `validate`: every fault of every file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elastic_infra.cli import files
from elastic_infra.config import ConfigError
from elastic_infra.manifests import render


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command()(validate)


def validate(
    paths: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Jobs in YAML or JSON.", show_default=False)],
    name: files.Name = None,
) -> None:
    """Check job files: exit 2 and a line for each fault when one is invalid; warnings change nothing."""
    valid = [_check(file, name) for file in paths]
    if not all(valid):
        raise typer.Exit(files.BAD_INPUT)


def _check(file: Path, name: str | None) -> bool:
    try:
        job, config = files.named_config(file, name, None)
        render(job, config)
    except ConfigError as error:
        files.report(file, error.faults)
        return False
    files.warn(file, config)
    return True
