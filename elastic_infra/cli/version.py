"""The app's help text and version."""

from __future__ import annotations

from typing import Annotated

import typer

import elastic_infra


def register(app: typer.Typer) -> None:
    """Add the app's own options and help text."""
    app.callback()(app_options)


def _print_version(asked: bool) -> None:  # noqa: FBT001 - typer's signature
    if asked:
        typer.echo(elastic_infra.__version__)
        raise typer.Exit


Version = Annotated[bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")]


def app_options(version: Version = False) -> None:  # noqa: FBT002 - a switch, handled by its callback
    """Elastic PyTorch training on Kubernetes: what a job.yaml becomes, whether it is valid, what it means."""
