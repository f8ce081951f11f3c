"""Asks a cluster through `kubectl`, which knows every way to log in."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from typing import Annotated, Final, NamedTuple

import typer

from elastic_infra.cli.files import BAD_INPUT

REQUEST_SECONDS: Final = 10
"""Bound for one question to the API server."""

Context = Annotated[str | None, typer.Option(help="Context of the kubeconfig. Default: the current one.")]


class Answer(NamedTuple):
    """What kubectl came to."""

    code: int
    out: str
    err: str


Ask = Callable[..., Answer]
"""Runs kubectl with these arguments."""


def connected(context: str | None) -> Ask:
    """Asks the cluster of a context.

    Raises:
        typer.Exit: there is no kubectl, which has been said.
    """
    program = shutil.which("kubectl")
    if program is None:
        typer.echo("kubectl is not on PATH, and the cluster is asked through it. Install it.", err=True)
        raise typer.Exit(BAD_INPUT)
    return _asking(program, context)


def unreachable(answer: Answer) -> str | None:
    """Why the server does not talk to this account."""
    if not answer.code:
        return None
    if "Unauthorized" in answer.err or "credentials" in answer.err or "logged in" in answer.err:
        return f"The cluster does not know this account: {reason(answer)}. Log in again, or choose another --context."
    return (
        f"The cluster cannot be reached: {reason(answer)}. Check that `kubectl config current-context` is the cluster "
        "that you mean, that it runs, and that this machine may reach it."
    )


def reason(answer: Answer) -> str:
    """The last thing that kubectl said; the lines before it are its attempts."""
    lines = answer.err.strip().splitlines() or ["kubectl said nothing"]
    return lines[-1].rstrip(".")


def _asking(program: str, context: str | None) -> Ask:
    options = (f"--request-timeout={REQUEST_SECONDS}s", *(("--context", context) if context else ()))

    def ask(*arguments: str) -> Answer:
        try:
            done = subprocess.run(
                (program, *arguments, *options),
                capture_output=True,
                text=True,
                timeout=6 * REQUEST_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Answer(1, "", f"no answer within {6 * REQUEST_SECONDS} s")
        return Answer(done.returncode, done.stdout, done.stderr)

    return ask
