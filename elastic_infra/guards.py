"""Changes that `pulumi up` refuses: each guard is a record in the component's inputs, checked before an update.

Decides nothing about a job's content, and guards nothing against deletion, so that `pulumi destroy` needs no flag.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final

import pulumi

from elastic_infra.config import JobConfig
from elastic_infra.manifests import Manifest, Manifests, Value
from elastic_infra.manifests.updates import CLAIM_IDENTITY, parts, restart_paths


@dataclasses.dataclass(frozen=True)
class Guard:
    """Something of a job that an update must not change.

    Attributes:
        key: where the component's inputs hold the record.
        record: what must not change, by its path in the object.
        refused: what the change would do, and why it does not.
        remedy: what to do instead.
    """

    key: str
    record: dict[str, Value]
    refused: str
    remedy: str


def guards(config: JobConfig, manifests: Manifests) -> tuple[Guard, ...]:
    """Every guard of a job."""
    found = []
    if config.run_policy.on_restart == "refuse":
        record = parts(manifests.workload, (*restart_paths(config), "metadata.namespace"))
        found.append(Guard("restarts_on", record, _RESTART, _RESTART_REMEDY))
    if manifests.checkpoint is not None:
        found.append(_claim(manifests.checkpoint))
    return tuple(found)


def _claim(claim: Manifest) -> Guard:
    """A made claim would be replaced by an empty one, checkpoints and all."""
    return Guard("checkpoint_claim", parts(claim, CLAIM_IDENTITY), _CLAIM, _CLAIM_REMEDY)


_RESTART: Final = "would be restarted, and its run_policy.on_restart is 'refuse'"
_RESTART_REMEDY: Final = "Undo the change, or set on_restart to 'replace' to restart the job from its checkpoint."

_CLAIM: Final = (
    "would lose its checkpoints: Pulumi cannot change the claim made for storage.checkpoint, only delete it and make "
    "an empty one"
)
_CLAIM_REMEDY: Final = (
    "Undo the change (the access mode follows elastic.nnodes unless storage.checkpoint.access_mode is set). "
    "For more room, expand the claim in the cluster and keep the config. For another volume, make a claim outside of "
    "the job, copy the checkpoints to it, and name it in storage.checkpoint.claim. "
    "To start anew, remove storage.checkpoint, run pulumi up, and put it back."
)


def refuse(name: str, guarded: tuple[Guard, ...]) -> Callable[[pulumi.ResourceHookArgs], Awaitable[None]]:
    """A hook that fails the component's update when it would change what is guarded; nothing has been touched then.

    It looks at the component and not at the objects, since the provider decides on some replacements itself, and a
    hook on deletion would stand in the way of `pulumi destroy`.
    """

    async def check(change: pulumi.ResourceHookArgs) -> None:
        refusals = [text for guard in guarded if (text := await _refusal(guard, change))]
        if refusals:
            raise pulumi.RunError("\n".join(f"ElasticTrainingJob {name!r} {text}" for text in refusals))

    return check


async def _refusal(guard: Guard, change: pulumi.ResourceHookArgs) -> str | None:
    old, new = [await _resolved((inputs or {}).get(guard.key)) for inputs in (change.old_inputs, change.new_inputs)]
    paths = list(changed_paths(old, new)) if old is not None else []
    if not paths:
        return None
    return f"{guard.refused}. Nothing was changed. What differs: {', '.join(paths)}. {guard.remedy}"


async def _resolved(value: Any) -> Any:  # noqa: ANN401 - JSON, secrets as Outputs
    return await pulumi.Output.from_input(value).future(with_unknowns=True)


def changed_paths(old: Any, new: Any, path: str = "") -> Iterator[str]:  # noqa: ANN401 - JSON
    """Where two JSON values differ; what is unknown in a preview counts as equal."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in dict.fromkeys([*old, *new]):
            yield from changed_paths(old.get(key), new.get(key), f"{path}.{key}" if path else key)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from changed_paths(before, after, f"{path}[{index}]")
    elif old != new and not isinstance(new, pulumi.output.Unknown):
        yield path
