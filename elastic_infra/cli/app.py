"""The entry of `elastic-infra`: signals, the table of commands, nothing that takes time before it is needed."""

from __future__ import annotations

import gc
import io
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Final, NoReturn

COMMANDS: Final[Mapping[str, str]] = {
    "render": "elastic_infra.cli.render",
    "validate": "elastic_infra.cli.validate",
    "check": "elastic_infra.cli.check",
    "explain": "elastic_infra.cli.explain",
    "schema": "elastic_infra.cli.schema",
    "run": "elastic_infra.cli.run",
    "timeline": "elastic_infra.cli.timeline",
    "simulate": "elastic_infra.cli.simulate",
    "diff": "elastic_infra.cli.diff",
    "status": "elastic_infra.cli.status",
    "logs": "elastic_infra.cli.logs",
    "watch": "elastic_infra.cli.watch",
    "scale": "elastic_infra.cli.scale",
    "cancel": "elastic_infra.cli.cancel",
    "cleanup": "elastic_infra.cli.cleanup",
    "import": "elastic_infra.cli.import_job",
    "migrate": "elastic_infra.cli.migrate",
}
"""Command to the module whose `register(app)` adds it, in the order of the help text."""

CANNOT_WRITE: Final = 2
INTERRUPTED: Final = 128 + signal.SIGINT


def main() -> NoReturn:
    """Run the app on this process's arguments and exit."""
    signal.signal(signal.SIGINT, _quietly)
    if hasattr(signal, "SIGPIPE"):  # a reader that has had enough (`| head`) ends us as it ends any other program
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    if isinstance(sys.stdout, io.TextIOWrapper):  # a report with `?` for what a terminal lacks is better than none;
        sys.stdout.reconfigure(errors="replace")  # stderr never fails, and documents.show() has what may not change
    gc.disable()  # a process of half a second: collecting costs a tenth of it and frees nothing that matters
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # looking for them reads every installed package
    os._exit(_code_of(sys.argv[1:]))  # at once: to take every object apart costs more than to render


def _code_of(arguments: Sequence[str]) -> int:
    """Run one command; its exit code, when everything that it said is written."""
    code: object = None
    try:
        try:
            run(arguments)
        except SystemExit as end:
            code = end.code
        sys.stdout.flush()
    except OSError as error:
        sys.stderr.write(f"The output cannot be written: {error.strerror or error}.\n")
        code = CANNOT_WRITE
    return code if isinstance(code, int) else 0


def run(arguments: Sequence[str]) -> NoReturn:
    """Run one command.

    Raises:
        SystemExit: always, with the exit code.
    """
    import typer

    from elastic_infra.cli import version

    app = typer.Typer(
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,  # they print the values of variables
        rich_markup_mode=None,
    )
    version.register(app)
    for module in _modules(arguments):
        import_module(module).register(app)
    app(list(arguments), prog_name="elastic-infra")
    sys.exit(0)  # typer has exited already


def _modules(arguments: Sequence[str]) -> Sequence[str]:
    """Modules to import: the asked command's; all of them for the help text and for an unknown command."""
    asked = arguments[0] if arguments else ""
    return [COMMANDS[asked]] if asked in COMMANDS else list(COMMANDS.values())


def _quietly(number: int, frame: object) -> NoReturn:
    del number, frame  # what every signal handler gets
    sys.exit(INTERRUPTED)
