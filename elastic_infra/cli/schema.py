"""The command `schema`: the JSON Schema of `job.yaml`, for editors and CI."""

from __future__ import annotations

import json

import typer

from elastic_infra.config.schema import json_schema


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command()(schema)


def schema() -> None:
    """Print the JSON Schema of a job file (draft 2020-12)."""
    typer.echo(json.dumps(json_schema(), indent=2))
