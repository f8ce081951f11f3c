"""Changes that `pulumi up` refuses: each guard is a record in the state, compared before anything is touched.

The records are the input of a `pulumi.Stash` beside the job's objects, so that they stay where the objects stay when
the Pulumi resource is renamed. Decides nothing about a job's content, and guards nothing against deletion, so that
`pulumi destroy` needs no flag.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Awaitable, Callable, Iterator, Mapping
from importlib import metadata
from typing import Any, Final

import pulumi

from elastic_infra.config import JobConfig
from elastic_infra.manifests import Manifest, Manifests, Value
from elastic_infra.manifests.updates import CLAIM_IDENTITY, parts, replacing


@dataclasses.dataclass(frozen=True)
class Guard:
    """A part of a job that an update must not change.

    Attributes:
        key: under which the state holds the record.
        record: what must not change, by its path in the object.
        refused: what the change would do, and why it does not.
        remedy: what to do instead.
    """

    key: str
    record: dict[str, Value]
    refused: str
    remedy: str


@dataclasses.dataclass(frozen=True, eq=False)
class Guarded:
    """One job with its guards, equal to itself alone: parents of two types may each have a job of one name.

    Attributes:
        resource: name of the component.
        guards: none where nothing is guarded.
    """

    resource: str
    guards: tuple[Guard, ...]


def guards(config: JobConfig, manifests: Manifests) -> tuple[Guard, ...]:
    """Every guard of a job."""
    found = []
    if config.run_policy.on_restart == "refuse":
        found.append(Guard("restarts_on", replacing(config, manifests), _RESTART, _RESTART_REMEDY))
    if manifests.checkpoint is not None:
        found.append(_claim(manifests.checkpoint))
    return tuple(found)


def _claim(claim: Manifest) -> Guard:
    """A made claim cannot be changed: the job would get another, empty one."""
    return Guard("checkpoint_claim", parts(claim, CLAIM_IDENTITY), _CLAIM, _CLAIM_REMEDY)


_RESTART: Final = "would be restarted, and its run_policy.on_restart is 'refuse'"
_RESTART_REMEDY: Final = "Undo the change, or set on_restart to 'replace' to restart the job from its checkpoint."

_CLAIM: Final = (
    "would go on without its checkpoints: the claim made for storage.checkpoint cannot be changed, only left behind "
    "for an empty one"
)
_CLAIM_REMEDY: Final = (
    "Undo the change (the access mode follows elastic.nnodes unless storage.checkpoint.access_mode is set). "
    "For more room, expand the claim in the cluster and keep the config. For another volume, make a claim outside of "
    "the job, copy the checkpoints to it, and name it in storage.checkpoint.claim. "
    "To start anew, remove storage.checkpoint and run pulumi up, which leaves the claim in the cluster; delete it "
    "there, and put storage.checkpoint back."
)

_Hook = Callable[[pulumi.ResourceHookArgs], Awaitable[None]]


@dataclasses.dataclass
class Refusals:
    """The jobs of one deployment that refuse their change.

    The engine ends at the first hook that fails, so a preview's hooks do not fail: each logs its refusal, and the
    program fails once all jobs were checked. An update touches nothing of a job whose hook fails.
    """

    refusing: list[Guarded] = dataclasses.field(default_factory=list)
    """The jobs that refuse."""
    checked: list[pulumi.Output[str]] = dataclasses.field(default_factory=list)
    """For each job with guards the URN of its stash, which is known once the job was checked."""

    def add(self, guarded: Guarded, text: str) -> None:
        """Refuse a job's change.

        Raises:
            pulumi.RunError: the refusal, in an update.
        """
        if not pulumi.runtime.is_dry_run():
            raise pulumi.RunError(text)
        pulumi.log.error(text)
        self.refusing.append(guarded)

    def allowed(self, guarded: Guarded, stash: pulumi.Resource) -> pulumi.Input[pulumi.Resource]:
        """For the `depends_on` of a job's children: its stash, or the error that ends a preview.

        Raises:
            pulumi.RunError: in the Output, once all jobs were checked; the text names those that refuse.
        """
        if not pulumi.runtime.is_dry_run():
            return stash
        self.checked.append(stash.urn)

        def after_all(_urns: object) -> pulumi.Resource:
            names = ", ".join(sorted({repr(each.resource) for each in self.refusing}))
            message = f"Refused by {names}: the errors before this one say why, and what to do instead."
            raise pulumi.RunError(message)

        def after_own(_urn: str) -> pulumi.Input[pulumi.Resource]:
            if guarded in self.refusing:
                return pulumi.Output.all(*self.checked).apply(after_all)
            return stash

        return stash.urn.apply(after_own)


def records(guarded: Guarded) -> dict[str, Value]:
    """The content of a job's stash."""
    return {MADE_BY: _version(), **{guard.key: guard.record for guard in guarded.guards}}


MADE_BY: Final = "made_by"
"""Key of this package's version, by which a refusal knows an upgrade."""


@functools.cache
def _version() -> str:
    return metadata.version("elastic-infra")


def stash_hook(guarded: Guarded, refusals: Refusals) -> _Hook:
    """Fails the stash's update when it would change a guarded record; no object has been touched by then.

    The hook looks at the records and not at the objects, since the provider decides on some replacements itself, and a
    hook on deletion would stand in the way of `pulumi destroy`.
    """

    async def check(change: pulumi.ResourceHookArgs) -> None:
        old = await _resolved((change.old_inputs or {}).get("input")) or {}
        found = [(guard, await _changed(guard, old.get(guard.key))) for guard in guarded.guards]
        if text := _refusal(guarded.resource, found, old.get(MADE_BY)):
            refusals.add(guarded, text)

    return check


def component_hook(guarded: Guarded, job: str, refusals: Refusals) -> _Hook:
    """Fails the component's update when its job would get another name, which makes another stash and other objects.

    A component made before there was a stash holds the records itself: they are compared this last time.

    Args:
        job: the job's name in Kubernetes.
    """

    async def check(change: pulumi.ResourceHookArgs) -> None:
        old = change.old_inputs or {}
        renamed = ["metadata.name"] if old.get("name") not in {None, job} else []
        olds = [(guard, await _resolved(old.get(guard.key))) for guard in guarded.guards]
        found = [(guard, [*renamed, *await _changed(guard, record)]) for guard, record in olds]
        if text := _refusal(guarded.resource, found, None if "name" in old else "an earlier version"):
            refusals.add(guarded, text)

    return check


def _refusal(resource: str, found: list[tuple[Guard, list[str]]], made_by: str | None) -> str:
    return "\n".join(
        f"ElasticTrainingJob {resource!r} {guard.refused}. Nothing was changed. "
        f"What differs: {', '.join(dict.fromkeys(paths))}. {guard.remedy}{_upgrade(made_by)}"
        for guard, paths in found
        if paths
    )


def _upgrade(made_by: str | None) -> str:
    if made_by in {None, _version()}:
        return ""
    return (
        f" elastic-infra was changed from {made_by} to {_version()} in between. Where nothing else was, this is the "
        "cause, and the way back is the cure until the job may restart."
    )


async def _changed(guard: Guard, old: Value) -> list[str]:
    return [] if old is None else list(changed_paths(old, await _resolved(guard.record)))


def claim_notice(resource: str, claim: Manifest) -> _Hook:
    """A hook that says before a claim is made what to do where it is already there: the API server's error does not.

    Pulumi's error hooks are no way to say so: they are called for what was created in part, not for a refusal.
    """
    name = parts(claim, ("metadata.name",))["metadata.name"]

    async def tell(_creation: pulumi.ResourceHookArgs) -> None:
        pulumi.log.info(
            f"ElasticTrainingJob {resource!r} makes the claim {name}, which stays in the cluster when the job goes. "
            "Where an earlier job left one of this name, this fails (already exists): to go on from its checkpoints, "
            f"name it: storage.checkpoint.claim: {name}, in place of `size`; to start anew, delete it in the cluster."
        )

    return tell


async def _resolved(value: Any) -> Any:  # noqa: ANN401 - JSON, secrets as Outputs
    return await pulumi.Output.from_input(value).future(with_unknowns=True)


def changed_paths(old: Any, new: Any, path: str = "") -> Iterator[str]:  # noqa: ANN401 - JSON
    """The paths at which two JSON values differ; values unknown in a preview count as equal."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in dict.fromkeys([*old, *new]):
            yield from changed_paths(old.get(key), new.get(key), f"{path}.{key}" if path else key)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from changed_paths(before, after, f"{path}[{index}]")
    elif old != new and not isinstance(new, pulumi.output.Unknown):
        yield path
