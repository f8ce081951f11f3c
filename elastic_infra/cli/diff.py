"""The command `diff`: read, compare, print. Exit codes: 0, 1 (`--fail-on`, `--exit-code`), 2."""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from elastic_infra.preview.as_json import as_json
from elastic_infra.preview.compare import compare
from elastic_infra.preview.git import as_sides
from elastic_infra.preview.inputs import Reading, read_sides
from elastic_infra.preview.markdown import as_markdown
from elastic_infra.preview.model import Comparison, Consequence
from elastic_infra.preview.pulumi_preview import PreviewError, read_preview
from elastic_infra.preview.text import print_text

BAD_INPUT = 2


class Format(str, Enum):
    """How a comparison is printed."""

    TEXT = "text"
    MARKDOWN = "markdown"
    JSON = "json"


class FailOn(str, Enum):
    """The consequence that makes the exit code 1."""

    NONE = "none"
    CHANGE = "change"
    RESTART = "restart"
    CHECKPOINT_LOSS = "checkpoint-loss"


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command()(diff)


def diff(  # noqa: PLR0913, PLR0917 - the options of a command
    base: Annotated[str | None, typer.Argument(help="File, folder, git revision or REVISION:PATH.")] = None,
    head: Annotated[str | None, typer.Argument(help="The same, after the change.")] = None,
    from_pulumi: Annotated[
        Path | None, typer.Option("--from-pulumi", help="Instead of both: the output of `pulumi preview --json`.")
    ] = None,
    output: Annotated[Format, typer.Option("--format", help="How to print it.")] = Format.TEXT,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="The same as --fail-on change.")] = False,  # noqa: FBT002
    fail_on: Annotated[
        FailOn,
        typer.Option(help="Exit 1 at any change, when a job restarts or ends, or when one loses its checkpoints."),
    ] = FailOn.NONE,
    name: Annotated[str | None, typer.Option(help="Name of the job, for two files.")] = None,
    run_programs: Annotated[  # noqa: FBT002 - a switch
        bool,
        typer.Option("--run-programs", help="Also run Pulumi programs, under mocks. Executes the code of both sides."),
    ] = False,
    stack: Annotated[str | None, typer.Option(help="Stack of the programs: its name and its plain config.")] = None,
    title: Annotated[str, typer.Option(help="Heading of the Markdown.")] = "Training jobs",
    link: Annotated[str | None, typer.Option(help="Where more can be read, such as the CI run.")] = None,
) -> None:
    """Show what a change of job specs does to the jobs: nothing, an update in place, or a restart."""
    if from_pulumi is not None:
        if base or name or run_programs or stack:
            message = "--from-pulumi takes the place of BASE, HEAD, --name, --run-programs and --stack. Drop these."
            raise typer.BadParameter(message)
        comparison = _of_preview(from_pulumi)
    elif sides := (base, head) if base and head else as_sides(base or ""):
        comparison = _of_sides(*sides, Reading(name, run_programs, stack))
    else:
        message = "two sides are compared. Give BASE and HEAD, BASE...HEAD, or --from-pulumi FILE."
        raise typer.BadParameter(message)
    _print(comparison, output, title, link)
    if comparison.errors:
        raise typer.Exit(BAD_INPUT)
    raise typer.Exit(int(_fails(comparison, FailOn.CHANGE if exit_code else fail_on)))


def _fails(comparison: Comparison, fail_on: FailOn) -> bool:
    match fail_on:
        case FailOn.NONE:
            return False
        case FailOn.CHANGE:
            return comparison.consequence is not Consequence.NONE
        case FailOn.RESTART:
            return bool({job.consequence for job in comparison.jobs} & {Consequence.RESTART, Consequence.REMOVED})
        case FailOn.CHECKPOINT_LOSS:
            return any(job.loses_checkpoints for job in comparison.jobs)


def _of_sides(base: str, head: str, reading: Reading) -> Comparison:
    """The comparison of two sides' specs; faults and notices go to stderr."""
    sides = read_sides(base, head, Path(), reading)
    comparison = compare(*sides)
    for fault in comparison.errors:
        typer.echo(f"{fault.side} {fault.path}: {fault.reason}", err=True)
    for side in sides:
        for notice in side.notices:
            typer.echo(notice, err=True)
    return comparison


def _of_preview(file: Path) -> Comparison:
    """The comparison in the engine's own preview."""
    try:
        return read_preview(file)
    except PreviewError as error:
        typer.echo(f"{file}: {error}", err=True)
        raise typer.Exit(BAD_INPUT) from None


def _print(comparison: Comparison, output: Format, title: str, link: str | None) -> None:
    if output is Format.JSON:
        typer.echo(json.dumps(as_json(comparison), indent=2, ensure_ascii=False))
    elif output is Format.MARKDOWN:
        typer.echo(as_markdown(comparison, title, link), nl=False)
    else:
        print_text(comparison, Console(soft_wrap=False, highlight=False, markup=False))
