"""The command `watch`: a job in a cluster, looked at until it ends."""

from __future__ import annotations

import dataclasses
import gc
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Final

import typer

from elastic_infra.cli import cluster_job, kubectl
from elastic_infra.cli.kubectl import ClusterError, Kubectl
from elastic_infra.operations import view
from elastic_infra.operations import workload as jobs
from elastic_infra.operations.objects import RefusedError
from elastic_infra.operations.view import Seen
from elastic_infra.timeline import formatting

FAILED: Final = 1
MAX_INTERVAL: Final = 24 * 3600
"""A day. Python cannot sleep for ever, and who looks less often needs no `watch`."""
LOGS_SECONDS: Final = 30.0
"""Seconds between two readings of a log, which costs far more than the other questions."""

Show = Callable[[Seen], None]


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command()(watch)


def watch(
    name: cluster_job.Name,
    interval: Annotated[
        float,
        typer.Option(
            min=1, max=MAX_INTERVAL, metavar="SECONDS", help="Time between two looks; each asks every status port."
        ),
    ] = 5,
    namespace: kubectl.Namespace = None,
    context: kubectl.Context = None,
    kubeconfig: kubectl.Kubeconfig = None,
) -> None:
    """Show a job in the cluster until it ends: in place on a terminal, else a line for each change.

    Exit code: 0 the job succeeded, 1 it failed or was deleted, 2 bad input, 130 interrupted.
    """
    gc.enable()  # this may go on for hours
    with cluster_job.refusals():
        ask = cluster_job.connected(context, kubeconfig, namespace, name)
        first = cluster_job.look(ask, cluster_job.find(ask, name), with_logs=True)
    with _screen() as show:
        last = _follow(ask, name, first, interval, show)
    if last is None:
        typer.echo(f"{name} was deleted.", err=True)
    raise typer.Exit(0 if last and jobs.state(last.workload) == "succeeded" else FAILED)


def _follow(ask: Kubectl, name: str, first: Seen, interval: float, show: Show) -> Seen | None:
    """Look and show until the job ends; its last state, or None where it was deleted."""
    seen, looks, each = first, 0, math.ceil(LOGS_SECONDS / interval)
    show(seen)
    while jobs.state(seen.workload) not in jobs.ENDED:
        time.sleep(interval)
        looks += 1
        try:
            new = cluster_job.look(ask, cluster_job.find(ask, name), with_logs=looks % each == 0)
            seen = dataclasses.replace(new, logs=new.logs or seen.logs)  # a pod's end takes its log along
        except ClusterError as error:
            seen = dataclasses.replace(seen, notes=(f"this is of {formatting.moment(seen.at)}. {error}",))
        except RefusedError:
            return None
        show(seen)
    return seen


@contextmanager
def _screen() -> Iterator[Show]:
    """Shows a view in place on a terminal; elsewhere what changes, and all of it at the begin and at the end."""
    if not sys.stdout.isatty():
        yield _Lines().show
        return
    from rich.live import Live
    from rich.text import Text

    with Live(auto_refresh=False, vertical_overflow="ellipsis") as live:
        yield lambda seen: live.update(
            Text("\n".join(view.lines(seen)), no_wrap=True, overflow="ellipsis"), refresh=True
        )


class _Lines:
    """One line for each change, and the whole view of a job that has ended."""

    def __init__(self) -> None:
        self._last: tuple[object, ...] = ()

    def show(self, seen: Seen) -> None:
        now = view.happened(seen)
        if now != self._last:
            is_whole = not self._last or jobs.state(seen.workload) in jobs.ENDED
            told = view.lines(seen) if is_whole else [f"{formatting.moment(seen.at)} {view.brief(seen)}"]
            typer.echo("\n".join(told))
            sys.stdout.flush()
        self._last = now
