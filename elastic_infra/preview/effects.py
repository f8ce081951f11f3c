"""The effects of applying changed manifests: which objects change, and whether training restarts.

The paths that restart come from `manifests.updates`, the list that the component hands to Pulumi as well.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Final

from elastic_infra.config import JobConfig
from elastic_infra.manifests import Manifest, Manifests
from elastic_infra.manifests.updates import RUNTIME_RESTARTS, foreign_paths, replacing, restart_paths, steps
from elastic_infra.preview.model import Consequence
from elastic_infra.preview.tree import Difference, differences, plain, written

WORKLOAD: Final = "workload"
RUNTIME: Final = "runtime"
REPLACED_ALWAYS: Final = ("kind", "metadata.name", "metadata.namespace")
"""Identity of an object, whose change is a deletion and a creation under any options."""

ENDS_PODS: Final = {"spec.runPolicy.suspend": True, "spec.suspend": True}
"""Changes in place after which no pod runs any more. The one exception to "a restart is a replacement"."""


@dataclasses.dataclass(frozen=True)
class Effect:
    """One changed place of one object.

    Attributes:
        role: the object's field of `Manifests`.
        path: kind and place, as ``PyTorchJob spec.nprocPerNode``; the kind alone for a whole object.
    """

    role: str
    path: str
    consequence: Consequence


def effects(old: Manifests, new: Manifests, config: JobConfig) -> tuple[Effect, ...]:
    """All changes by applying `new` over `old`.

    Args:
        config: the config behind `new`, whose options hold for the update.
    """
    return tuple(_effects(old, new, config))


def _effects(old: Manifests, new: Manifests, config: JobConfig) -> Iterator[Effect]:
    before, after = dict(old.objects()), dict(new.objects())
    is_new = replacing(config, old) != replacing(config, new)
    foreign = foreign_paths(config, is_new=is_new)
    for role in dict.fromkeys([*before, *after]):
        left, right = before.get(role), after.get(role)
        if role == WORKLOAD and left and right:
            yield from workload_effects(left, right, restart_paths(config), foreign)
        else:
            yield from _object(role, left, right)


def _object(role: str, old: Manifest | None, new: Manifest | None) -> Iterator[Effect]:
    if old is None or new is None:
        kind = (new or old or {}).get("kind")
        yield Effect(role, f"{kind} {'(removed)' if new is None else '(added)'}", Consequence.IN_PLACE)
        return
    for difference in differences(old, new, keys_matter=False):
        restarts = role == RUNTIME and _covers(RUNTIME_RESTARTS, plain(difference.path))
        yield Effect(role, _place(old, difference), Consequence.RESTART if restarts else Consequence.IN_PLACE)


def workload_effects(
    old: Manifest, new: Manifest, restarting: Sequence[str], foreign: Sequence[str]
) -> Iterator[Effect]:
    """Effects on the workload object.

    Args:
        restarting: paths whose change replaces the object.
        foreign: paths of other writers, which stay unchanged in the cluster.
    """
    if old["kind"] != new["kind"]:
        yield Effect(WORKLOAD, f"{old['kind']} (becomes a {new['kind']})", Consequence.RESTART)
        return
    for difference in differences(old, new, keys_matter=False):
        path = plain(difference.path)
        if not _covers(foreign, path):
            yield Effect(WORKLOAD, _place(old, difference), _consequence(difference, path, restarting))


def _place(manifest: Manifest, difference: Difference) -> str:
    order = " (order)" if difference.kind == "items" else ""
    return f"{manifest['kind']} {written(difference.path)}{order}"


def _consequence(difference: Difference, path: str, restarting: Sequence[str]) -> Consequence:
    ends_pods = path in ENDS_PODS and difference.new == ENDS_PODS[path]
    restarts = ends_pods or _covers((*restarting, *REPLACED_ALWAYS), path) or _is_above(path, restarting)
    return Consequence.RESTART if restarts else Consequence.IN_PLACE


def _covers(paths: Sequence[str], path: str) -> bool:
    return any(path == each or path.startswith(f"{each}.") for each in _plain(paths))


def _is_above(path: str, restarting: Sequence[str]) -> bool:
    """Whether a whole part changed that has a restarting path inside."""
    return any(each.startswith(f"{path}.") for each in _plain(restarting))


def _plain(paths: Sequence[str]) -> Iterator[str]:
    """Paths of Pulumi's options in the form of `tree.plain`."""
    return (".".join(steps(path)) for path in paths)
