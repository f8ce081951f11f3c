"""Which launcher a job mounts: the one that it started with, until something else restarts it or asks for the newest.

A record keeps the name of the ConfigMap, and the fingerprint of the job that mounts it. A newer version of this package
alone changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import pulumi

from elastic_infra import child_names, records
from elastic_infra.config import JobConfig
from elastic_infra.manifests import Manifests
from elastic_infra.manifests.updates import restarting

ROLE: Final = "pin"
"""Part of the record's name in state files: never to be changed."""


class Pin(NamedTuple):
    """What keeps a job's launcher, and the name of the ConfigMap that the job mounts."""

    record: pulumi.Resource
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
        options: for the record.
    """
    job = records.fingerprint(restarting(config, stable))
    record = records.record(names, ROLE, {"launcher": newest, "job": job}, options)

    async def choose(kept: object, job: str) -> str:
        mounted = _mounted(kept, job) or str(await pulumi.Output.from_input(newest).future())
        if kept not in (None, made := {"launcher": mounted, "job": job}):  # mocks give no output
            await record.keep({"launcher": newest, "job": job}, made)
        return mounted

    return Pin(record, records.with_other(record.output, job, choose))


def _mounted(kept: object, job: str) -> str | None:
    """The launcher that a job goes on with; None for another job. Earlier versions kept its name alone."""
    if isinstance(kept, Mapping):
        return str(kept["launcher"]) if kept["job"] == job else None
    return None if kept is None else str(kept)


def newer_is_ready(resource: str) -> str:
    """The note that a job goes on with an older launcher."""
    return (
        f"ElasticTrainingJob {resource!r}: a newer launcher is ready. The job keeps the one it runs with until "
        "something else restarts it; to take the newer one at once, change launcher.version, which restarts the job."
    )
