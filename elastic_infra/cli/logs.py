"""The command `logs`: what a job's nodes write, all of them or that of one rank."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Annotated, Final

import typer

from elastic_infra.cli import cluster_job, kubectl
from elastic_infra.cli.kubectl import Answer, Kubectl
from elastic_infra.config.env import TEE
from elastic_infra.manifests.figures import variable_names
from elastic_infra.manifests.metadata import COMPONENT, INSTANCE
from elastic_infra.operations import ranks, view
from elastic_infra.operations import workload as jobs
from elastic_infra.operations.objects import Object, RefusedError, name_of, text

_PREVIOUS: Final = "--previous"
_FAILURE: Final = "error: "
"""How kubectl says on stdout, with --ignore-errors, that it cannot read a pod."""


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command()(logs)


def logs(  # noqa: PLR0913, PLR0917 - one parameter an option
    name: cluster_job.Name,
    rank: Annotated[
        int | None, typer.Option(min=0, help="Only of the node that runs this rank. Default: all nodes.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes.")] = False,  # noqa: FBT002
    previous: Annotated[bool, typer.Option(_PREVIOUS, help="Of containers before their restart.")] = False,  # noqa: FBT002
    tail: Annotated[int | None, typer.Option(min=0, metavar="LINES", help="Only the last lines of each node.")] = None,
    namespace: kubectl.Namespace = None,
    context: kubectl.Context = None,
    kubeconfig: kubectl.Kubeconfig = None,
) -> None:
    """Print what a job's nodes write. A node that comes while --follow goes on is not in it."""
    gc.enable()  # this may go on for hours
    with cluster_job.refusals():
        ask = cluster_job.connected(context, kubeconfig, namespace, name)
        workload = cluster_job.find(ask, name)
        made = cluster_job.pods_of(ask, workload)
        pods = view.nodes(made)
        if not pods:
            message = f"{jobs.described(workload)} has no pods now. `elastic-infra status {name}` says why."
            raise RefusedError(message)
        options = [f"--container={jobs.training_container(workload)}", f"--tail={-1 if tail is None else tail}"]
        options += [f"--{option}" for option, is_set in {"follow": follow, "previous": previous}.items() if is_set]
        found = _of_all(ask, workload, made, options) if rank is None else _of_rank(ask, workload, rank, pods, options)
        for line in found:
            typer.echo(line, nl=False)


def _of_all(ask: Kubectl, workload: Object, pods: list[Object], options: list[str]) -> Iterator[str]:
    """What all pods write, with a note for each that cannot be read: it may not have begun, or be gone.

    Raises:
        ClusterError: the account may not read logs.
        RefusedError: no pod can be read.
    """
    selector = f"--selector={INSTANCE}={name_of(workload)},{COMPONENT}=worker"
    asked = (selector, "--prefix", f"--max-log-requests={len(pods)}", "--ignore-errors=true")
    never_restarted = [f'"{name_of(pod)}"' for pod in pods if not view.restarts(pod)] if _PREVIOUS in options else []
    is_any_read, failure = False, ""
    for line in ask.lines("logs", *asked, *options):
        if not line.startswith(_FAILURE):  # a pod's own lines begin with its name
            is_any_read = True
            yield line
            continue
        failure = line.removeprefix(_FAILURE).strip()
        answer = Answer(1, "", failure)
        if kubectl.missing_right(answer):
            kubectl.checked(answer)
        if not any(pod in failure for pod in never_restarted):
            typer.echo(f"note: {failure}", err=True)
    if failure and not is_any_read:
        message = (
            f"No log of {jobs.described(workload)} can be read: {failure}. `elastic-infra status {name_of(workload)}` "
            "shows the state and the restarts of its pods."
        )
        raise RefusedError(message)


def _of_rank(ask: Kubectl, workload: Object, rank: int, pods: list[Object], options: list[str]) -> Iterator[str]:
    notes: list[str] = []
    running = [pod for pod in pods if text(pod, "status.phase") == "Running"]
    snapshots = cluster_job.snapshots_of(ask, workload, running, notes)
    names = {view.node_name(pod): name_of(pod) for pod in pods}
    found = ranks.place(rank, list(names), snapshots, jobs.workers_per_node(workload))
    is_teed = TEE in variable_names(workload)
    for note in (*notes, *_about(found, is_teed=is_teed)):
        typer.echo(f"note: {note}", err=True)
    lines = ask.lines("logs", names[found.node], *options)
    return (line for line in lines if ranks.is_of(line, found.local_rank)) if is_teed else lines


def _about(found: ranks.Place, *, is_teed: bool) -> Iterator[str]:
    """How sure it is that these lines are the rank's, and of this rank alone."""
    if not found.is_known:
        yield (
            f"{found.node} by the order of the pods, which is wrong while a node waits. Set launcher.metrics_port, and "
            "the launchers tell."
        )
    if found.first != found.last and not is_teed:
        yield (
            f"{found.node} runs ranks {found.first} to {found.last}, and its lines do not say which. Set {TEE}: "
            '"3" in `env`, and they do.'
        )
