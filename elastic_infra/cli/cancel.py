"""The command `cancel`: stops a job by suspending it, so that nothing of it is lost."""

from __future__ import annotations

import json

import typer

from elastic_infra.cli import cluster_job, kubectl
from elastic_infra.operations import workload as jobs
from elastic_infra.operations.change import suspension
from elastic_infra.operations.objects import text


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command()(cancel)


def cancel(
    name: cluster_job.Name,
    namespace: kubectl.Namespace = None,
    context: kubectl.Context = None,
    kubeconfig: kubectl.Kubeconfig = None,
) -> None:
    """Stop a job: its pods end, with the time to save that they have on any node, and its objects stay."""
    with cluster_job.refusals():
        ask = cluster_job.connected(context, kubeconfig, namespace, name)
        workload = cluster_job.find(ask, name)
        found = suspension(workload)
        kind = cluster_job.KINDS[workload["kind"]]
        if found is not None:
            kubectl.checked(ask("patch", kind, name, "--type=merge", f"--patch={json.dumps(found.patch)}"))
    if found is None:
        typer.echo(f"{jobs.described(workload)} is suspended already.", err=True)
        return
    where = ("-n", text(workload, "metadata.namespace"))
    undo = json.dumps(found.undo, separators=(",", ":"))
    typer.echo(
        f"{jobs.described(workload)} is suspended: its pods end, its objects and checkpoints stay. Set "
        "run_policy.suspend: true in its config to keep it so when Pulumi makes it anew. It goes on from its "
        f"checkpoint with: {ask.typed('patch', kind, name, *where, '--type=merge', '-p', undo)}",
        err=True,
    )
