"""A job in a cluster, for the commands that operate one: asks for its objects, ports and logs, and decides nothing.

Only this module turns what stands in the way of these commands into a line on stderr and exit code 2.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer

from elastic_infra.cli import kubectl
from elastic_infra.cli.files import BAD_INPUT
from elastic_infra.cli.kubectl import Answer, Ask, ClusterError, Kubectl
from elastic_infra.manifests.figures import at, only_job, with_runtime
from elastic_infra.manifests.metadata import INSTANCE, MANAGED_BY
from elastic_infra.operations import view
from elastic_infra.operations import workload as jobs
from elastic_infra.operations.objects import Object, RefusedError, name_of, part, text
from elastic_infra.operations.view import Seen

KINDS: Final = {
    "PyTorchJob": "pytorchjobs.kubeflow.org",
    "Job": "jobs.batch",
    "TrainJob": "trainjobs.trainer.kubeflow.org",
}
"""Kinds of workload object, as kubectl names them."""
RUNTIMES: Final = "trainingruntimes.trainer.kubeflow.org"
JOB_SETS: Final = "jobsets.jobset.x-k8s.io"
AT_ONCE: Final = 8
"""Status ports that are asked at a time: each question is a process of kubectl."""
LOG_LINES: Final = 5000
"""The most lines of a log that are read for a view."""
NOT_SERVED: Final = "doesn't have a resource type"
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The job's name in the cluster.", show_default=False)]
T = TypeVar("T")


@contextmanager
def refusals() -> Iterator[None]:
    """Say on one line why a command cannot be done.

    Raises:
        typer.Exit: it cannot, with exit code 2.
    """
    try:
        yield
    except (ClusterError, RefusedError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(BAD_INPUT) from None


def connected(context: str | None, kubeconfig: Path | None, namespace: str | None, name: str) -> kubectl.Kubectl:
    """Asks the cluster of a context, for a job whose name can be one.

    Raises:
        RefusedError: it cannot.
    """
    if not _NAME.fullmatch(name):
        message = f"{name!r} is no name of a job: give the name alone, as `elastic-infra render` has it."
        raise RefusedError(message)
    return kubectl.connected(context, kubeconfig, namespace)


def find(ask: Kubectl, name: str) -> Object:
    """The workload object of a job, a TrainJob with its runtime.

    Raises:
        ClusterError: the cluster does not say.
        RefusedError: there is no such job, or it is not of this package.
    """
    for kind in KINDS.values():
        answer = ask("get", kind, name, "--ignore-not-found", "--output=json")
        if NOT_SERVED in answer.err:  # a cluster without the training operator runs single pods
            continue
        if kubectl.checked(answer).out.strip():
            return _with_its_runtime(ask, _own(json.loads(answer.out)))
    every = ask.typed("get", "pytorchjobs,jobs,trainjobs", "-A", "-l", f"{MANAGED_BY}=elastic-infra")
    message = (
        f"There is no job {name} in this namespace. `{every}` lists the jobs of every namespace; choose one with "
        "--namespace or --context."
    )
    raise RefusedError(message)


def _with_its_runtime(ask: Ask, workload: Object) -> Object:
    """A TrainJob with the pods that its runtime has, and the size that its JobSet has; another workload as it is."""
    if workload["kind"] != "TrainJob":
        return workload
    runtime = _there(ask, RUNTIMES, text(workload, "spec.runtimeRef.name"))
    found = with_runtime(workload, runtime) if runtime else workload
    job_set = _there(ask, JOB_SETS, name_of(workload)) if jobs.size(found).owner != "config" else None
    now = at(only_job(job_set["spec"]), "parallelism") if job_set else None
    return {**found, "spec": {**part(found, "spec"), "parallelism": now}} if now else found


def _there(ask: Ask, kind: str, name: str) -> Object | None:
    """An object; None where there is none."""
    told = kubectl.checked(ask("get", kind, name, "--ignore-not-found", "--output=json")).out
    return json.loads(told) if told.strip() else None


def look(ask: Ask, workload: Object, *, with_logs: bool) -> Seen:
    """Everything that can be seen of a job; a right that is missing costs its part of the view, and a note.

    Args:
        with_logs: whether to read the log of the node that runs longest, which has seen the most.

    Raises:
        ClusterError: the pods cannot be listed.
    """
    pods = pods_of(ask, workload)
    notes: list[str] = []
    running = [pod for pod in view.nodes(pods) if text(pod, "status.phase") == "Running"]
    eldest = sorted(running, key=lambda pod: text(pod, "status.startTime"))[: int(with_logs)]
    events: list[Object] = _noted(notes, lambda: _list(ask, "events", "--field-selector=type=Warning"), list[Object]())
    trains = jobs.training_container(workload)
    logs = {name_of(pod): _noted(notes, lambda pod=pod: _log(ask, name_of(pod), trains), "") for pod in eldest}  # type: ignore[misc]
    snapshots = snapshots_of(ask, workload, running, notes)
    return Seen(workload, pods, snapshots, logs, events, tuple(dict.fromkeys(notes)), time.time())


def pods_of(ask: Ask, workload: Object) -> list[Object]:
    """The pods of a job's nodes and of its store.

    Raises:
        ClusterError: they cannot be listed.
    """
    return _list(ask, "pods", f"--selector={INSTANCE}={name_of(workload)},{MANAGED_BY}=elastic-infra")


def snapshots_of(
    ask: Ask, workload: Object, pods: Sequence[Object], notes: list[str]
) -> Mapping[str, Mapping[str, Any]]:
    """What the status ports of running pods say, by pod, through the API server's proxy."""
    port = jobs.status_port(workload)
    if port is None or not pods:
        return {}
    namespace = text(workload, "metadata.namespace")

    def ask_one(pod: Object) -> Answer:
        return ask("get", "--raw", f"/api/v1/namespaces/{namespace}/pods/{name_of(pod)}:{port}/proxy/status")

    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = dict(zip(map(name_of, pods), pool.map(ask_one, pods), strict=True))
    known = {name: found for name, answer in answers.items() if (found := _snapshot(answer)) is not None}
    silent = [answer for name, answer in answers.items() if name not in known]
    if silent and (right := kubectl.missing_right(silent[0])):
        notes.append(f"the status ports are not asked: this account may not {right} (docs/rbac.md).")
    elif silent:
        said = kubectl.reason(silent[0]) if silent[0].code else "the answer is not the launcher's"
        notes.append(f"{len(silent)} of {len(pods)} status ports do not answer: {said}.")
    return known


def _snapshot(answer: Answer) -> Mapping[str, Any] | None:
    try:
        found = json.loads(answer.out) if not answer.code else None
    except ValueError:
        return None
    return found if isinstance(found, dict) and isinstance(found.get("generation"), int) else None


def _own(workload: Object) -> Object:
    labels = workload["metadata"].get("labels") or {}
    if labels.get(MANAGED_BY) == "elastic-infra":
        return workload
    message = (
        f"{jobs.described(workload)} is no job of elastic-infra, for it lacks the label {MANAGED_BY}: elastic-infra. "
        "Use kubectl, or import it with `elastic-infra import`."
    )
    raise RefusedError(message)


def _log(ask: Ask, pod: str, container: str) -> str:
    options = (f"--container={container}", f"--tail={LOG_LINES}", "--timestamps")
    return kubectl.checked(ask("logs", pod, *options)).out


def _list(ask: Ask, kind: str, *options: str) -> list[Object]:
    found: list[Object] = json.loads(kubectl.checked(ask("get", kind, *options, "--output=json")).out)["items"]
    return found


def _noted(notes: list[str], question: Callable[[], T], without: T) -> T:
    try:
        return question()
    except ClusterError as error:
        notes.append(str(error))
        return without
