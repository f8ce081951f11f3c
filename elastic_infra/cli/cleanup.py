"""The command `cleanup`: launchers, and packed code, in a cluster that no pod template names.

A newer version of this package, and other code in `workdir`, make another ConfigMap, and an `ElasticLauncher` leaves
the earlier one for the jobs that run with it. Once these have ended, the ConfigMap is of no use to anything.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Annotated, Any, Final

import typer

from elastic_infra.cli import kubectl
from elastic_infra.cli.files import BAD_INPUT
from elastic_infra.cli.kubectl import Answer, Ask
from elastic_infra.manifests import workdir
from elastic_infra.manifests.figures import items
from elastic_infra.manifests.launcher import ARCHIVE, digest
from elastic_infra.manifests.metadata import MANAGED_BY

HOLDERS: Final = (
    "pods",
    "replicationcontrollers",
    "daemonsets.apps",
    "deployments.apps",
    "replicasets.apps",
    "statefulsets.apps",
    "cronjobs.batch",
    "jobs.batch",
)
"""Kubernetes' own kinds that hold a pod or its template."""

OPERATOR_GROUPS: Final = ("kubeflow.org", "trainer.kubeflow.org")
"""API groups whose kinds, where the cluster has them, hold templates as well."""

MIN_AGE_SECONDS: Final = 3600
"""Younger ones may belong to a job that is about to be made: the ConfigMap comes first."""

MAX_AGE: Final = 100 * 365 * 24 * 3600
"""A hundred years, which no cluster is old. Much more lies before the first date that Python knows."""

ANY: Final = ""
"""The namespace of what a kind without one names, as a ClusterTrainingRuntime: the pods come up in any."""


@dataclasses.dataclass(frozen=True, order=True)
class Launcher:
    """A ConfigMap with a launcher or with code."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class CannotTellError(Exception):
    """The cluster did not show everything, so nothing can be said to be unused."""


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command()(cleanup)


def cleanup(
    namespace: kubectl.Namespace = None,
    all_namespaces: Annotated[bool, typer.Option("--all-namespaces", "-A", help="Look everywhere.")] = False,  # noqa: FBT002
    delete: Annotated[bool, typer.Option("--delete", help="Delete what is found; without it, only list.")] = False,  # noqa: FBT002
    min_age: Annotated[
        int,
        typer.Option(
            min=0, max=MAX_AGE, metavar="SECONDS", help="Leave younger ones: a job may be about to name them."
        ),
    ] = MIN_AGE_SECONDS,
    context: kubectl.Context = None,
    kubeconfig: kubectl.Kubeconfig = None,
) -> None:
    """List launchers and code (ConfigMaps) that no pod template in the cluster names; --delete deletes them."""
    if namespace and all_namespaces:
        typer.echo("--namespace and --all-namespaces exclude each other. Give one of them.", err=True)
        raise typer.Exit(BAD_INPUT)
    where = ("--all-namespaces",) if all_namespaces else ("--namespace", namespace) if namespace else ()
    ask = kubectl.connected(context, kubeconfig)
    try:
        found = unused(ask, where, datetime.now(timezone.utc) - timedelta(seconds=min_age))
        for launcher in found:
            if delete:
                _delete(ask, launcher)
            typer.echo(f"{launcher} deleted" if delete else launcher)
    except CannotTellError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(BAD_INPUT) from None
    if found and not delete:
        typer.echo("No pod template names these. Delete them with --delete.", err=True)


def unused(ask: Ask, where: Sequence[str], before: datetime) -> list[Launcher]:
    """Launchers made before a time that no template names; this version's own is kept, since it is mounted next.

    Args:
        where: kubectl's options for the namespace.
        before: younger ones are left.

    Raises:
        CannotTellError: some of what could name one cannot be seen.
    """
    # launchers first: one that appears afterwards is not judged by templates that were read too early
    made = _list(ask, ("configmaps", "--selector", f"{MANAGED_BY}=elastic-infra", *where))
    candidates = {_launcher(each) for each in made if _is_old_launcher(each, before)}
    if not candidates:
        return []
    kinds = [*HOLDERS, *(kind for group in OPERATOR_GROUPS for kind in _kinds(ask, group))]
    named = {
        Launcher(each["metadata"].get("namespace", ANY), config_map)
        for each in _list(ask, (",".join(kinds), *where))
        for config_map in named_config_maps(each)
    }
    return sorted(each for each in candidates if named.isdisjoint({each, Launcher(ANY, each.name)}))


def named_config_maps(tree: object) -> Iterator[str]:
    """Names of ConfigMaps that any volume below an object has, those of projected volumes included."""
    if isinstance(tree, Mapping):
        for each in (*items(tree.get("volumes")), *items(tree.get("sources"))):
            source = each.get("configMap")
            if isinstance(source, Mapping) and "name" in source:
                yield str(source["name"])
        for value in tree.values():
            yield from named_config_maps(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from named_config_maps(value)


def _launcher(config_map: Mapping[str, Any]) -> Launcher:
    return Launcher(config_map["metadata"]["namespace"], config_map["metadata"]["name"])


def _is_old_launcher(config_map: Mapping[str, Any], before: datetime) -> bool:
    metadata = config_map["metadata"]
    made = datetime.strptime(metadata["creationTimestamp"], "%Y-%m-%dT%H:%M:%S%z")
    held = config_map.get("binaryData", {})
    is_known = (ARCHIVE in held and digest() not in metadata["name"]) or workdir.ARCHIVE in held
    return is_known and made < before


def _kinds(ask: Ask, group: str) -> list[str]:
    return _checked(ask("api-resources", "--api-group", group, "--verbs=list", "--output=name")).out.split()


def _list(ask: Ask, asked: Sequence[str]) -> list[dict[str, Any]]:
    answer = _checked(ask("get", *asked, "--output=json"))
    found: list[dict[str, Any]] = json.loads(answer.out)["items"]
    return found


def _delete(ask: Ask, launcher: Launcher) -> None:
    _checked(ask("delete", "configmap", launcher.name, "--namespace", launcher.namespace, "--ignore-not-found"))


def _checked(answer: Answer) -> Answer:
    if not answer.code:
        return answer
    if "Forbidden" in answer.err or "forbidden" in answer.err:
        message = (
            f"This account may not do it: {kubectl.reason(answer)}. To tell which launchers are named, it has to list "
            "ConfigMaps and every kind that holds a pod template. Nothing more was deleted."
        )
        raise CannotTellError(message)
    raise CannotTellError(str(kubectl.unreachable(answer)))
