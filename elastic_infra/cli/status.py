"""The command `status`: a job in a cluster, as it is now."""

from __future__ import annotations

import typer

from elastic_infra.cli import cluster_job, kubectl
from elastic_infra.operations import view


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command()(status)


def status(
    name: cluster_job.Name,
    namespace: kubectl.Namespace = None,
    context: kubectl.Context = None,
    kubeconfig: kubectl.Kubeconfig = None,
) -> None:
    """Show a job in the cluster: its nodes, steps and restarts, the last failure, and goodput where it is known."""
    with cluster_job.refusals():
        ask = cluster_job.connected(context, kubeconfig, namespace, name)
        seen = cluster_job.look(ask, cluster_job.find(ask, name), with_logs=True)
    typer.echo("\n".join(view.lines(seen)))
