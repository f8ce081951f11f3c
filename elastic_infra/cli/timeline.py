"""The command `timeline`: event files in, a picture and figures out. Exit codes: 0, 2 (bad input)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from elastic_infra.timeline.figures import Figures
    from elastic_infra.timeline.history import History

BAD_INPUT = 2


class Format(str, Enum):
    """Text for readers, JSON for programs, or OpenTelemetry traces for a collector."""

    TEXT = "text"
    JSON = "json"
    OTLP = "otlp"


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command()(timeline)


def timeline(
    events: Annotated[
        list[Path],
        typer.Argument(metavar="EVENTS...", help="Event files, folders of them, or - for standard input."),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write the picture: .svg, .html, or .png (needs elastic-infra[png])."),
    ] = None,
    form: Annotated[
        Format | None,
        typer.Option(
            "--format",
            help="A picture in text with figures, JSON, or OpenTelemetry traces (OTLP as JSON). "
            "Default: text; nothing with --output.",
        ),
    ] = None,
) -> None:
    """Show what happened to a job: phases of each node, faults, goodput and outages."""
    from elastic_infra.timeline import files
    from elastic_infra.timeline.figures import figures
    from elastic_infra.timeline.history import history

    try:
        records, notices = files.read(events)
    except files.EventFileError as error:
        raise _refuse(str(error)) from None
    for notice in notices:
        typer.echo(notice, err=True)
    found = history(records)
    known = figures(found)
    if output is not None:
        _write(output, found, known)
    if form is Format.JSON:
        from elastic_infra.timeline.as_json import as_json

        typer.echo(json.dumps(as_json(found, known), indent=2, ensure_ascii=False))
    elif form is Format.OTLP:
        from elastic_infra.timeline.otlp import traces

        typer.echo(json.dumps(traces(found)))
    elif form is Format.TEXT or output is None:
        _print(found, known)


def _write(output: Path, found: History, known: Figures) -> None:
    """Write the picture in the form that the file's suffix names."""
    from elastic_infra.timeline import page, picture, png

    forms: Mapping[str, Callable[[], bytes]] = {
        ".svg": lambda: picture.draw(found, known).encode(),
        ".html": lambda: page.page(found, known).encode(),
        ".png": lambda: png.png(picture.draw(found, known)),
    }
    form = forms.get(output.suffix)
    if form is None:
        message = f"{output}: the picture's form is not known. Name a file that ends in {', '.join(forms)}."
        raise _refuse(message)
    try:
        output.write_bytes(form())
    except png.RendererError as error:
        message = f"{output}: {error}"
        raise _refuse(message) from None
    except OSError as error:
        message = f"{output}: cannot be written: {error.strerror}."
        raise _refuse(message) from None


def _print(found: History, known: Figures) -> None:
    import sys

    from rich.console import Console

    from elastic_infra.timeline.text import print_text

    width = None if sys.stdout.isatty() else 120
    print_text(found, known, Console(file=sys.stdout, highlight=False, markup=False, width=width))


def _refuse(message: str) -> typer.Exit:
    typer.echo(message, err=True)
    return typer.Exit(BAD_INPUT)
