"""The command `import`: the job file of a manifest, or of a command line of torchrun, that others wrote."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer
import yaml

from elastic_infra.cli import documents, files
from elastic_infra.config import ConfigError, Fault
from elastic_infra.config.load import job_name, read_stream, read_text
from elastic_infra.config.yaml_text import read_documents
from elastic_infra.importing import Imported, import_command, import_manifest
from elastic_infra.manifests.figures import at

STDIN: Final = Path("-")
"""In place of a file, as other commands of a pipe take it."""


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("import")(import_job)


def import_job(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="PyTorchJob, Job, TrainJob (YAML), or a torchrun command line; `-` is standard input.",
        ),
    ],
    name: Annotated[
        str | None, typer.Option(help="Which workload of a file with several, or the name of one that has none.")
    ] = None,
) -> None:
    """Print the job.yaml of a manifest or command line; say on stderr what differs from it."""
    is_stdin = file == STDIN
    shown = "standard input" if is_stdin else file
    default = "job" if is_stdin else job_name(file.resolve().as_posix(), "job")
    try:
        text = read_stream(sys.stdin.buffer, "manifest") if is_stdin else read_text(file, "manifest")
        found = imported(text, name, default)
    except ConfigError as error:
        raise files.refuse(shown, error) from None
    for note in found.notes:
        typer.echo(f"{shown}: {note}", err=True)
    documents.show(yaml.safe_dump(found.job, sort_keys=False, allow_unicode=True, width=sys.maxsize >> 32))


def imported(text: str, name: str | None, default: str) -> Imported:
    """The job in a text.

    Args:
        name: of the workload, where the text has several.
        default: the name of a job that has none.

    Raises:
        ConfigError: there is no workload, more than one, or it cannot be read.
    """
    objects = _objects(text)
    if objects is None:
        return import_command(["sh", "-c", text], name or default)
    workloads = [each for each in objects if each.get("kind") in {"PyTorchJob", "Job", "TrainJob"}]
    if len(workloads) > 1 and name is not None:
        workloads = [each for each in workloads if at(each, "metadata.name") == name]
    if len(workloads) != 1:
        names = ", ".join(str(at(each, "metadata.name")) for each in objects if each in workloads) or "none"
        reason = f"holds not exactly one PyTorchJob, Job or TrainJob (found: {names}). Choose one with --name."
        raise ConfigError([Fault("", reason)])
    return import_manifest(workloads[0], name or default)


def _objects(text: str) -> list[Mapping[str, Any]] | None:
    """The Kubernetes objects of a text, those of a List included; None where it is no YAML of objects."""
    try:
        documents = read_documents(text)
    except ConfigError:
        if "kind:" in text:
            raise
        return None
    found = [each for each in documents if isinstance(each, Mapping) and "kind" in each]
    return [item for each in found for item in _items(each)] if found else None


def _items(found: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    items = found.get("items") if found["kind"] == "List" else [found]
    yield from (each for each in items if isinstance(each, Mapping)) if isinstance(items, list) else ()
