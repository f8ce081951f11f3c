"""Runs `elastic-infra` in this process, as a user would on a command line."""

from __future__ import annotations

import contextlib
import dataclasses
import io
from pathlib import Path

from elastic_infra.cli import app


@dataclasses.dataclass(frozen=True)
class Result:
    """What one call came to."""

    code: int
    out: str
    err: str


def elastic_infra(*arguments: str | Path) -> Result:
    """Run one command of `elastic-infra`."""
    out, err = io.StringIO(), io.StringIO()
    code: object = None
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            app.run([str(argument) for argument in arguments])
        except SystemExit as end:
            code = end.code
    return Result(code if isinstance(code, int) else 0, out.getvalue(), err.getvalue())
