"""Which launcher a job mounts: the one that it started with, until something else restarts it or asks for the newest.

A `pulumi.Stash` keeps the name of the ConfigMap. Its output stays as it was made until the replacement trigger, the
fingerprint of the workload, changes; a newer version of this package alone changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import pulumi

from elastic_infra import child_names
from elastic_infra.config import JobConfig
from elastic_infra.config.values import is_late
from elastic_infra.manifests import Manifests, Value
from elastic_infra.manifests.identity import run_id
from elastic_infra.manifests.updates import restarting

ROLE: Final = "pin"


class Pin(NamedTuple):
    """What keeps a job's launcher, and the name of the ConfigMap that the job mounts."""

    stash: pulumi.Resource
    name: pulumi.Output[str]


def pinned(
    names: child_names.ChildNames,
    config: JobConfig,
    newest: pulumi.Input[str],
    stable: Manifests,
    options: pulumi.ResourceOptions,
) -> Pin:
    """The pin of a job.

    Args:
        newest: name of the one with this version's launcher.
        stable: the job's objects of `lasting`.
        options: for the stash.
    """
    trigger = pulumi.ResourceOptions(replacement_trigger=fingerprint(restarting(config, stable)))
    stash = child_names.stash(names, ROLE, newest, options, trigger)
    return Pin(stash, with_newest(stash.output, newest, lambda kept, new: str(kept or new)))  # mocks give no output


def with_newest(
    kept: pulumi.Output[Any], newest: pulumi.Input[str], use: Callable[[Any, Any], Any], *, with_unknowns: bool = False
) -> pulumi.Output[Any]:
    """What a function makes of both names; of one Output where the second is known, for each costs all others time."""
    if isinstance(newest, str):
        return kept.apply(lambda name: use(name, newest), run_with_unknowns=with_unknowns)
    return pulumi.Output.all(kept, newest).apply(lambda both: use(*both), run_with_unknowns=with_unknowns)


def fingerprint(value: Value) -> pulumi.Input[str]:
    """Changes with the value. An Output only where a part is late: that costs more than a registration."""
    return late_fingerprint(value) or run_id("job", value)


def late_fingerprint(value: Value) -> pulumi.Output[str] | None:
    """The fingerprint of a value with late parts, which no name and no run id tells."""
    if not _has_late(value):
        return None
    known: pulumi.Output[Value] = pulumi.Output.from_input(_public(value))
    return known.apply(lambda parts: run_id("job", parts))


def _has_late(value: Value) -> bool:
    if isinstance(value, str):  # most are
        return False
    if isinstance(value, Mapping):
        return any(map(_has_late, value.values()))
    return any(map(_has_late, value)) if isinstance(value, list) else is_late(value)


def _public(value: Any) -> Any:  # noqa: ANN401 - JSON, with Outputs as leaves
    """The value without its secrets, so that a secret that changes restarts the job with the launcher that it has.

    A trigger that is plain text in the state must tell nothing of a secret, not by a hash either; for one that is
    a secret `pulumi preview --json` (3.230) prints nothing at all.
    """
    if isinstance(value, Mapping):
        return {key: _public(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_public(part) for part in value]
    return _unless_secret(value) if isinstance(value, pulumi.Output) else value


async def _unless_secret(value: pulumi.Output[Any]) -> Any:  # noqa: ANN401 - of any value
    """The value, None while it is unknown, in a preview: that is a change, as it is to the workload."""
    return "secret" if await value.is_secret() else await value.future()


def newer_is_ready(resource: str) -> str:
    """The note that a job goes on with an older launcher."""
    return (
        f"ElasticTrainingJob {resource!r}: a newer launcher is ready. The job keeps the one it runs with until "
        "something else restarts it; to take the newer one at once, change launcher.version, which restarts the job."
    )
