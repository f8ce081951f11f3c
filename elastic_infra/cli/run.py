"""The command `run`: a job on this machine, without a cluster, with faults on demand."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from elastic_infra.cli import files
from elastic_infra.config import ConfigError, Fault
from elastic_infra.local import summary
from elastic_infra.local.start import Prepared, Request, prepare, run

FAILED = 1
FAULTS_MISSED = 3
INTERRUPTED = 130

Assignment = list[str]


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("run")(run_job)


def run_job(  # noqa: PLR0913, PLR0917 - one parameter an option
    file: files.File,
    name: files.Name = None,
    nodes: Annotated[int | None, typer.Option(help="Nodes at first. Default: the fewest that train.")] = None,
    faults: Annotated[
        str | None,
        typer.Option(
            metavar="PLAN",
            help="`12s kill node 1; 20s scale 3`, the same as a YAML list, or a file with one. Times count from the "
            "job's first step; `+3s kill node 1` comes 3 s after training is back. Faults: scale N, kill node I, "
            "preempt node I, kill worker I.R, stop worker I.R, lose rendezvous. They can also be typed.",
        ),
    ] = None,
    chaos: Annotated[
        int | None, typer.Option(metavar="SEED", help="Random faults, the same for the same seed.")
    ] = None,
    workdir: Annotated[
        Path | None,
        typer.Option(help="Folder for events, logs and checkpoints; a second run in it resumes. Default: a new one."),
    ] = None,
    timeout: Annotated[float | None, typer.Option(metavar="SECONDS", help="Fail the job after this long.")] = None,
    cpu: Annotated[bool, typer.Option("--cpu", help="Run a job for GPUs without them.")] = False,  # noqa: FBT002
    env: Annotated[
        Assignment | None, typer.Option(metavar="NAME=VALUE", help="A variable, such as one from a Secret.")
    ] = None,
    volume: Annotated[
        Assignment | None, typer.Option(metavar="NAME=FOLDER", help="A folder for a volume or claim.")
    ] = None,
    ports: Annotated[str, typer.Option(metavar="FIRST-LAST", help="Where free ports are looked for.")] = "",
) -> None:
    """Run a job on this machine: each node a tree of processes with the cluster's variables, folders and limits.

    The job file's folder stands for the image's working dir, and the Python that runs this program for the image's.
    Ctrl-C preempts all nodes, a second one kills them. Exit code: 0 the job succeeded, 1 it failed, 2 bad input,
    3 the job succeeded, but a fault of the plan did not happen, 130 interrupted.
    """
    try:
        job, config = files.named_config(file, name, None)
        request = Request(
            nodes=nodes,
            faults=faults,
            seed=chaos,
            folder=workdir,
            timeout_seconds=timeout,
            cpu=cpu,
            values=_assignments("--env", env, "NAME=VALUE"),
            volumes={key: Path(path) for key, path in _assignments("--volume", volume, "NAME=FOLDER").items()},
            port_range=ports,
        )
        prepared = prepare(job, config, file.resolve().parent, request, os.environ)
    except ConfigError as error:
        raise files.refuse(file, error) from None
    raise typer.Exit(_run(prepared, request))


def _run(prepared: Prepared, request: Request) -> int:
    from elastic_infra.local.view import open_view

    gc.enable()  # this one runs for hours
    title, *opening = summary.opening(prepared, request.seed)
    _say(opening)
    started = time.monotonic()
    try:
        outcome, runner = run(prepared, request, open_view(sys.stderr, title), reads_faults=sys.stdin.isatty())
    except OSError as error:
        typer.echo(f"The job cannot be run: {error.strerror or error}: {error.filename}.", err=True)
        return FAILED
    _say([summary.result(outcome, time.monotonic() - started), *runner.causes()])
    _say(f"A fault did not happen: {missed}." for missed in runner.missed)
    summary.show(runner.records)
    _say(summary.closing(prepared))
    if outcome.interrupted:
        return INTERRUPTED
    if not outcome.succeeded:
        return FAILED
    return FAULTS_MISSED if runner.missed else 0


def _say(lines: Iterable[str]) -> None:
    for line in lines:
        typer.echo(line, err=True)


def _assignments(option: str, given: Assignment | None, form: str) -> dict[str, str]:
    pairs = [text.partition("=") for text in given or ()]
    if wrong := [number for number, (name, equals, _) in enumerate(pairs, 1) if not name or not equals]:
        raise ConfigError(  # by its number, since a text without a name may be a secret
            [Fault(option, f"number {number} is not of the form {form}. Put '=' behind the name.") for number in wrong]
        )
    return {name: value for name, _, value in pairs}
