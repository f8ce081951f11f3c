"""The command `scale`: another number of nodes for a job that runs, within its range."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from elastic_infra.cli import cluster_job, kubectl
from elastic_infra.operations import workload as jobs
from elastic_infra.operations.change import JOB_SET_FIXED, check_resize, completions, job_set_size
from elastic_infra.operations.objects import Object, RefusedError


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command()(scale)


def scale(
    name: cluster_job.Name,
    nodes: Annotated[int, typer.Argument(metavar="NODES", min=1, help="Nodes from now on.", show_default=False)],
    namespace: kubectl.Namespace = None,
    context: kubectl.Context = None,
    kubeconfig: kubectl.Kubeconfig = None,
) -> None:
    """Give a job another number of nodes of its range while training goes on; Pulumi leaves the number alone."""
    with cluster_job.refusals():
        ask = cluster_job.connected(context, kubeconfig, namespace, name)
        workload = cluster_job.find(ask, name)
        check_resize(workload, nodes)
        before = jobs.size(workload).nodes
        if before != nodes:
            answer = ask(*_request(workload, name, nodes))
            if workload["kind"] == "TrainJob" and "immutable" in answer.err:
                raise RefusedError(JOB_SET_FIXED)
            kubectl.checked(answer)
    told = f"has {nodes} nodes already" if before == nodes else f"goes from {before} to {nodes} nodes"
    typer.echo(f"{jobs.described(workload)} {told}.", err=True)


def _request(workload: Object, name: str, nodes: int) -> tuple[str, ...]:
    """The arguments of kubectl: a PyTorchJob has a scale subresource, a batch/v1 Job and a JobSet have none."""
    kind = cluster_job.KINDS[workload["kind"]]
    if workload["kind"] == "PyTorchJob":
        return "scale", kind, name, f"--replicas={nodes}"
    if workload["kind"] == "TrainJob":
        return "patch", cluster_job.JOB_SETS, name, "--type=json", f"--patch={json.dumps(job_set_size(nodes))}"
    return "patch", kind, name, "--type=merge", f"--patch={json.dumps(completions(nodes))}"
