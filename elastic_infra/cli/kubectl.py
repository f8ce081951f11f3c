"""Asks a cluster through `kubectl`, which knows every way to log in."""

from __future__ import annotations

import dataclasses
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import typer

from elastic_infra.cli.files import BAD_INPUT

REQUEST_SECONDS: Final = 10
"""Bound for one question to the API server."""

Context = Annotated[str | None, typer.Option(help="Context of the kubeconfig. Default: the current one.")]
Kubeconfig = Annotated[
    Path | None, typer.Option(help="The kubeconfig. Default: kubectl's own, $KUBECONFIG or ~/.kube/config.")
]
Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", help="Where to look. Default: the context's namespace.")
]

_FORBIDDEN: Final = re.compile(
    r'cannot (?P<verb>\w+) resource "(?P<resource>[^"]+)" in API group "(?P<group>[^"]*)"'
    r'(?: in the namespace "(?P<namespace>[^"]*)")?'
)
"""The API server's words: https://github.com/kubernetes/apiserver/blob/master/pkg/endpoints/handlers/responsewriters/errors.go"""


class Answer(NamedTuple):
    """What kubectl came to."""

    code: int
    out: str
    err: str


Ask = Callable[..., Answer]
"""Runs kubectl with these arguments."""


class ClusterError(Exception):
    """The cluster did not do what it was asked; the message says why and what to do."""


@dataclasses.dataclass(frozen=True)
class Kubectl:
    """kubectl with the options that name a cluster, an account and a namespace."""

    program: str
    options: tuple[str, ...] = ()

    def __call__(self, *arguments: str) -> Answer:
        """Ask; an answer that does not come is one as well."""
        try:
            done = subprocess.run(
                (self.program, *arguments, f"--request-timeout={REQUEST_SECONDS}s", *self.options),
                capture_output=True,
                text=True,
                errors="replace",
                timeout=6 * REQUEST_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Answer(1, "", f"no answer within {6 * REQUEST_SECONDS} s")
        return Answer(done.returncode, done.stdout, done.stderr)

    def typed(self, *arguments: str) -> str:
        """These arguments as a command line for a shell, of the same cluster; the namespace is among the arguments."""
        cluster = [option for option in self.options if not option.startswith("--namespace=")]
        return shlex.join(("kubectl", *arguments, *cluster))

    def lines(self, *arguments: str) -> Iterator[str]:
        """The lines of an answer as they come, for as long as they come.

        Raises:
            ClusterError: it ended with an error.
        """
        with subprocess.Popen(
            (self.program, *arguments, *self.options),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        ) as running:
            try:
                yield from running.stdout or ()
                _, err = running.communicate()
            finally:
                running.terminate()
        checked(Answer(running.returncode, "", err))


def connected(context: str | None, kubeconfig: Path | None = None, namespace: str | None = None) -> Kubectl:
    """Asks the cluster of a context.

    Raises:
        typer.Exit: there is no kubectl, which has been said.
    """
    program = shutil.which("kubectl")
    if program is None:
        typer.echo("kubectl is not on PATH, and the cluster is asked through it. Install it.", err=True)
        raise typer.Exit(BAD_INPUT)
    given = {"context": context, "kubeconfig": kubeconfig, "namespace": namespace}
    return Kubectl(program, tuple(f"--{option}={value}" for option, value in given.items() if value is not None))


def checked(answer: Answer) -> Answer:
    """The answer.

    Raises:
        ClusterError: it is none: a right is missing, which is named, or the server refuses or is out of reach.
    """
    if not answer.code:
        return answer
    if right := missing_right(answer):
        message = f"This account may not {right}. Ask for a Role with this right: docs/rbac.md has it for each command."
        raise ClusterError(message)
    if "error from server" in answer.err.lower() and "Unauthorized" not in answer.err:  # `logs` has it in lower case
        message = f"The cluster refuses it: {reason(answer)}."
        raise ClusterError(message)
    raise ClusterError(str(unreachable(answer)))


def missing_right(answer: Answer) -> str | None:
    """The verb, the resource and the namespace that the account lacks; None where the answer is another."""
    told = _FORBIDDEN.search(answer.err)
    if told is None:
        return None
    resource = ".".join(filter(None, [told["resource"], told["group"]]))
    return f"{told['verb']} {resource}" + (f" in namespace {told['namespace']}" if told["namespace"] else "")


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
