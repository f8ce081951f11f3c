"""The command `render`: the objects of a job as YAML, exactly as the API server gets them."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from elastic_infra.cli import files
from elastic_infra.cli.documents import text
from elastic_infra.config import ConfigError
from elastic_infra.manifests import render as manifests_of
from elastic_infra.manifests.store_token import create_command


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command()(render)


def render(
    file: files.File,
    name: files.Name = None,
    target: files.TargetOption = None,
    short: Annotated[  # noqa: FBT002 - a switch
        bool,
        typer.Option("--short", help="Leave out the launcher's archive (binaryData): for readers, not for kubectl."),
    ] = False,
) -> None:
    """Print the Kubernetes objects of a job, in the order in which to apply them."""
    try:
        job, config = files.named_config(file, name, target)
        manifests = manifests_of(job, config)
    except ConfigError as error:
        raise files.refuse(file, error) from None
    files.warn(file, config)
    if manifests.token is not None:
        typer.echo(
            "The store's token is in a Secret that is not among these objects. Make it before you apply them; without "
            f"it the store is open to every client: {create_command(job, config)}",
            err=True,
        )
    typer.echo(text(dataclasses.replace(manifests, token=None), short=short), nl=False)
