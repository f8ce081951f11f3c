"""What a reviewer must know beside the consequence: lost checkpoints, refused restarts, a start at step 0."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, TypeAlias

from elastic_infra.config.names import ObjectNames
from elastic_infra.manifests import Manifest, render
from elastic_infra.manifests.updates import CLAIM_IDENTITY, parts
from elastic_infra.preview.model import Consequence, Job

Versions: TypeAlias = "tuple[str | None, str | None]"
"""What both sides pin of this package."""

_FIRST: Final = re.compile(r"0\.1(\.|$)")
"""The version that named the children of a job after its Pulumi resource, and whose jobs do not keep their launcher."""


def keeps_launchers(version: str | None) -> bool:
    """Whether jobs that this version made keep their launcher when the package changes."""
    return version is not None and not _FIRST.match(version)


def warnings(base: Job, head: Job | None, consequence: Consequence) -> tuple[str, ...]:
    """Every warning about going from `base` to `head` (None: the job is removed)."""
    return (*_claim(base, head), *_restart(head, consequence), *_other_kind(base, head, consequence))


def _claim(base: Job, head: Job | None) -> Iterator[str]:
    """A claim made for the job bears its name and stays in the cluster; any other change of it is refused."""
    before, after = _made_claim(base), _made_claim(head) if head else None
    if before is None:
        return
    name = ObjectNames(base.name).checkpoint
    if after is None:
        yield f"the claim `{name}` stays in the cluster with the checkpoints on it. Delete it there when they may go."
    elif head and head.name != base.name:
        yield (
            f"the claim `{name}` stays behind with the checkpoints, and the job starts at step 0 with an empty one; "
            "where only `name` changes, `pulumi up` refuses this. "
            f"To take the checkpoints along: `storage.checkpoint.claim: {name}`."
        )
    elif parts(before, CLAIM_IDENTITY) != parts(after, CLAIM_IDENTITY):
        yield (
            f"`pulumi up` refuses this change, because an empty claim would take the place of `{name}` and its "
            "checkpoints. For more room, expand the claim in the cluster and keep the config; for another volume, use "
            "`storage.checkpoint.claim`."
        )


def _made_claim(job: Job) -> Manifest | None:
    checkpoint = job.config.storage.checkpoint
    if checkpoint is None or checkpoint.size is None:
        return None
    return render(job.name, job.config).checkpoint


def _restart(head: Job | None, consequence: Consequence) -> Iterator[str]:
    if head is None or consequence is not Consequence.RESTART:
        return
    if head.config.run_policy.on_restart == "refuse":
        yield "`pulumi up` refuses this change, because `run_policy.on_restart` is `refuse`."
    if head.config.storage.checkpoint is None and not head.config.storage.mounts:
        yield "there is no checkpoint volume, so training starts again at step 0."


def _other_kind(base: Job, head: Job | None, consequence: Consequence) -> Iterator[str]:
    """Two kinds are two resources: no option has Pulumi delete the old one first."""
    if head is None or consequence is not Consequence.RESTART or base.config.kind == head.config.kind:
        return
    yield (
        f"Pulumi makes the {head.config.kind} before it deletes the {base.config.kind}, and both would train for a "
        f"while. Stop the job first: `elastic-infra cancel {base.name}`."
    )


def resource_warnings(base: Job, head: Job, versions: Versions | None) -> Iterator[str]:
    """What a rename of the Pulumi resource needs, where it is not the job's name that stays in charge."""
    if not makes_objects_anew(base, head, versions):
        return
    if base.resource == head.resource:
        yield (
            "`children: resource` gives the objects other names in Pulumi, so `pulumi up` would make each object a "
            "second time and fail. Keep `children: name` in this job, and set it in the new job that has the same name."
        )
    elif head.config.children == "resource" or base.config.children == "resource":
        yield (
            "`children: resource` names the objects' resources after the Pulumi resource, so `pulumi up` would make "
            "each object a second time and fail. Give the component "
            f'`aliases=[pulumi.Alias(name="{base.resource}")]`.'
        )
    else:
        yield (
            "upgrade first, and rename the Pulumi resource after `pulumi up`: together they delete every object of the "
            "job and make it anew, and a claim made for checkpoints goes with what is on it."
        )


def makes_objects_anew(base: Job, head: Job, versions: Versions | None) -> bool:
    """Whether the children of a job that keeps its name get names in Pulumi by which no record of them is found."""
    if base.name != head.name or base.resource is None or head.resource is None:
        return False
    if _prefix(base) not in {_prefix(head), head.resource}:  # the second is an alias
        return True
    is_upgrade = versions is not None and bool(_FIRST.match(versions[0] or ""))
    return is_upgrade and base.resource not in {base.name, head.resource}


def _prefix(job: Job) -> str | None:
    """What the names of the job's children begin with."""
    return job.resource if job.config.children == "resource" else job.name


def loses_checkpoints(base: Job, head: Job, consequence: Consequence, versions: Versions | None) -> bool:
    """Whether a job starts again at step 0: on another volume, on none, or because its own is deleted."""
    if consequence is not Consequence.RESTART:
        return False
    before, after = _volume(base), _volume(head)
    if before is None:
        return after is None and not head.config.storage.mounts
    made = _made_claim(base) is not None
    is_upgrade = makes_objects_anew(base, head, versions) and head.config.children == "name"
    return before != after or (made and is_upgrade)


def _volume(job: Job) -> tuple[object, object] | None:
    """Namespace and claim of the checkpoints."""
    checkpoint = job.config.storage.checkpoint
    if checkpoint is None:
        return None
    return job.config.namespace, checkpoint.claim or ObjectNames(job.name).checkpoint
