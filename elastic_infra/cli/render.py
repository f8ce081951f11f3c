"""The command `render`: the objects of jobs as YAML, exactly as the API server gets them."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from elastic_infra.cli import files
from elastic_infra.cli.documents import show, text
from elastic_infra.config import ConfigError, Fault, JobConfig
from elastic_infra.manifests import render as manifests_of
from elastic_infra.manifests.model import Manifests
from elastic_infra.manifests.store_token import create_command


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command()(render)


@dataclasses.dataclass(frozen=True)
class Rendered:
    """One job and its objects."""

    file: Path
    name: str
    config: JobConfig
    manifests: Manifests


def render(
    paths: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Jobs in YAML or JSON, or folders of them.")],
    name: files.Name = None,
    target: files.TargetOption = None,
    short: Annotated[  # noqa: FBT002 - a switch
        bool,
        typer.Option("--short", help="Leave out the launcher's archive (binaryData): for readers, not for kubectl."),
    ] = False,
    into: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write NAME.yaml for each job there, for GitOps, and no text.")
    ] = None,
    keep_launcher: Annotated[  # noqa: FBT002 - a switch
        bool,
        typer.Option("--keep-launcher", help="With --into: keep a file's launcher unless the job restarts anyway."),
    ] = False,
) -> None:
    """Print the Kubernetes objects of jobs, in the order in which to apply them."""
    if keep_launcher and into is None:
        typer.echo("--keep-launcher needs --into: it keeps the launcher of the file that is there.", err=True)
        raise typer.Exit(files.BAD_INPUT)
    jobs = _all_rendered(tuple(_job_files(paths)), name, target)
    if keep_launcher and into is not None:
        jobs = tuple(_with_kept_launcher(job, into) for job in jobs)
    for job in jobs:
        files.warn(job.file, job.config)
        _say_token(job)
    documents = [text(dataclasses.replace(job.manifests, token=None), short=short) for job in jobs]
    if into is None:
        show("".join(documents))
        return
    for job, document in zip(jobs, documents, strict=True):
        _write(_place(into, job), document)


def _place(folder: Path, job: Rendered) -> Path:
    return folder / f"{job.name}.yaml"


def _with_kept_launcher(job: Rendered, folder: Path) -> Rendered:
    from elastic_infra.cli.kept_launcher import rendered_with_kept_launcher

    path = _place(folder, job)
    try:
        document = path.read_text("utf-8") if path.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise files.refuse(path, ConfigError([Fault("", f"cannot be read: {error}.")])) from None
    manifests = rendered_with_kept_launcher(job.name, job.config, document)
    if manifests.launcher != job.manifests.launcher:
        typer.echo(f"{path}: keeps its launcher; a newer one is ready. To take it, change launcher.version.", err=True)
    return dataclasses.replace(job, manifests=manifests)


def _job_files(paths: Sequence[Path]) -> Iterator[Path]:
    """The files themselves, and in folders every file that declares a job, as `diff` finds them."""
    for path in paths:
        if _is_folder(path):
            yield from _job_files_in(path)
        else:
            yield path


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # the system refuses the name: reading the file reports why
        return False


def _job_files_in(folder: Path) -> list[Path]:
    from elastic_infra.preview.job_files import declares, may_declare
    from elastic_infra.preview.sources import OnDisk, SourceError

    try:
        found = [folder / path for path, content in OnDisk(folder).files(may_declare) if declares(path, content)]
    except SourceError as error:
        raise files.refuse(folder, ConfigError([Fault("", str(error))])) from None
    if not found:
        raise files.refuse(folder, ConfigError([Fault("", "holds no job file. A job has image: and script:.")]))
    return found


def _all_rendered(found: Sequence[Path], name: str | None, target: files.Target | None) -> tuple[Rendered, ...]:
    """Every job; where one is invalid, or two have one name, no text is written at all."""
    jobs = [_rendered(file, name, target) for file in found]
    valid = [job for job in jobs if job is not None]
    taken: dict[str, Path] = {}
    for job in valid:
        first = taken.setdefault(job.name, job.file)
        if first is not job.file:
            reason = f"is that of {first} too: the two would be one file or object. Give each job a `name` of its own."
            raise files.refuse(job.file, ConfigError([Fault("name", reason)]))
    if len(valid) < len(jobs):
        raise typer.Exit(files.BAD_INPUT)
    return tuple(valid)


def _rendered(file: Path, name: str | None, target: files.Target | None) -> Rendered | None:
    try:
        job, config = files.named_config(file, name, target)
        return Rendered(file, job, config, manifests_of(job, config))
    except ConfigError as error:
        files.report(file, error.faults)
        return None


def _say_token(job: Rendered) -> None:
    if job.manifests.token is None:
        return
    typer.echo(
        "The store's token is in a Secret that is not among these objects. Make it before you apply them; without "
        f"it the store is open to every client: {create_command(job.name, job.config)}",
        err=True,
    )


def _write(path: Path, document: str) -> None:
    """Write a file whole or not at all, and leave an equal file alone, so that a repository shows only changes."""
    try:
        if path.exists() and path.read_text("utf-8") == document:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        draft.write_text(document, "utf-8")
        draft.replace(path)
    except OSError as error:
        raise files.refuse(path, ConfigError([Fault("", f"cannot be written: {error.strerror}.")])) from None
    typer.echo(f"wrote {path}", err=True)
