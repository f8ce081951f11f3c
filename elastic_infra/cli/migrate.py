"""The command `migrate`: a job's file for another workload object, and what the change means for the job."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from elastic_infra.cli import files
from elastic_infra.config import ConfigError, JobConfig
from elastic_infra.config.load import read_text
from elastic_infra.config.migration import migrated
from elastic_infra.config.names import ObjectNames
from elastic_infra.config.workdir_files import with_workdir
from elastic_infra.preview.compare import compare
from elastic_infra.preview.model import Job, Side
from elastic_infra.preview.text import print_text

GAINED_AND_LOST: Final[Mapping[tuple[str, bool], tuple[str, ...]]] = {
    ("Job", False): (
        "gained: no operator is needed, but Kubernetes 1.31.",
        "lost: a pod that replaces another comes after a delay, 10 s at the first loss of an index and up to 10 min.",
        "lost: an autoscaler cannot change the size; `elastic-infra scale` can.",
    ),
    ("Job", True): ("gained: no operator is needed.",),
    ("TrainJob", False): (
        "gained: Kubeflow Trainer runs the job, from version 2.3 on, and no training operator is needed.",
        "lost: the number of nodes does not move without elastic.elastic_job_set: the TrainJob asks for the maximum.",
        "lost: a pod that replaces another comes after a delay, 10 s at the first loss of an index and up to 10 min.",
    ),
    ("TrainJob", True): ("gained: Kubeflow Trainer runs the job, from version 2.3 on.",),
    ("PyTorchJob", False): (
        "gained: a pod that replaces another comes at once, and an autoscaler may change the size.",
        "lost: the cluster needs Kubeflow's training operator, which gets fixes only.",
    ),
    ("PyTorchJob", True): ("lost: the cluster needs Kubeflow's training operator, which gets fixes only.",),
}
"""Kind of the new workload object, and whether the job has a single node, to what the change brings."""


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command()(migrate)


def migrate(
    file: files.File,
    to: Annotated[files.Target, typer.Option("--to", metavar="TARGET", help="The new `target`.", show_choices=True)],
    write: Annotated[bool, typer.Option("--write", help="Change the file as well.")] = False,  # noqa: FBT002 - a switch
) -> None:
    """Print the lines of a job's file that another workload object needs, and on stderr what `pulumi up` will do.

    Keys that the target refuses are taken out, each with its reason. Checkpoints stay where they are.
    """
    try:
        text = read_text(file, "job file")
        name, before = files.named_config(file, None, None)
        found = migrated(text, to.value)
    except ConfigError as error:
        raise files.refuse(file, error) from None
    if before.kind == found.config.kind:
        typer.echo(f"{file}: the job is a {before.kind} already, so nothing has to change.", err=True)
        return
    typer.echo("".join(_changed_lines(file, text, found.text)), nl=False)
    files.report(file, found.removed, "taken out: ")
    for line in (*GAINED_AND_LOST[found.config.kind, found.config.elastic.max_nodes == 1], *_kept(name, before)):
        typer.echo(f"{file}: {line}", err=True)
    after = with_workdir(found.config, file.parent)
    base, head = (_side(name, file, config) for config in (before, after))
    print_text(compare(base, head), Console(stderr=True, soft_wrap=True, highlight=False, markup=False))
    if write:
        _write(file, found.text)


def _kept(name: str, config: JobConfig) -> Iterator[str]:
    """The checkpoints, where the job has a volume for them: it does not depend on the workload object."""
    if (checkpoint := config.storage.checkpoint) is not None:
        claim = checkpoint.claim or ObjectNames(name).checkpoint
        yield f"kept: the checkpoints stay where they are, on the claim {claim}, and training goes on from them."


def _side(name: str, file: Path, config: JobConfig) -> Side:
    return Side((Job.declared(name, file.as_posix(), config),), is_file=True)


def _changed_lines(file: Path, old: str, new: str) -> list[str]:
    """A unified diff, as `git apply` takes it."""
    path = file.as_posix().removeprefix("/")
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    return list(difflib.unified_diff(before, after, f"a/{path}", f"b/{path}"))


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, "utf-8")
    except OSError as error:
        typer.echo(f"{file}: cannot be written: {error.strerror or error}.", err=True)
        raise typer.Exit(files.BAD_INPUT) from None
