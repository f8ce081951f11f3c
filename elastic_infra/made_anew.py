"""Whether a job is made anew in this deployment, and so takes from its config what others wrote into the one before.

Where people or a queue set the size, and where Kueue chooses cluster nodes, Pulumi leaves those paths alone by
`ignore_changes`. The engine (3.230) leaves them alone in a replacement as well: a job whose range becomes 5 to 8 would
be made with the 4 nodes that it had, and wait for ever; one in a queue would keep its earlier tolerations.

A `pulumi.Stash` keeps a word that is drawn in each deployment. Its output is this deployment's word exactly where the
stash was made or replaced now, by the trigger that is the fingerprint of the workload.
"""

from __future__ import annotations

import secrets
from typing import Final, NamedTuple

import pulumi

from elastic_infra import child_names
from elastic_infra.config import JobConfig
from elastic_infra.launcher_pin import fingerprint
from elastic_infra.manifests import Manifests
from elastic_infra.manifests.updates import replacing

ROLE: Final = "size"
"""Part of the stash's name in state files: never to be changed."""


class MadeAnew(NamedTuple):
    """What keeps the word, and whether the job is made anew; unknown where a change of the job was refused."""

    stash: pulumi.Resource
    is_new: pulumi.Output[bool]


def made_anew(
    names: child_names.ChildNames, config: JobConfig, stable: Manifests, options: pulumi.ResourceOptions
) -> MadeAnew:
    """What a job needs whose foreign paths depend on it.

    Args:
        stable: the job's objects of `lasting`.
        options: for the stash.
    """
    own = pulumi.ResourceOptions(
        replacement_trigger=fingerprint(replacing(config, stable)),
        ignore_changes=["input"],  # the word of an earlier deployment is no change
    )
    word = secrets.token_hex(8)
    stash = child_names.stash(names, ROLE, word, options, own)
    return MadeAnew(stash, pulumi.Output.from_input(stash.output).apply(lambda kept: kept == word))
