"""What a reviewer must know beside the consequence: lost checkpoints, refused restarts, a start at step 0."""

from __future__ import annotations

from collections.abc import Iterator

from elastic_infra.config.names import ObjectNames
from elastic_infra.manifests import Manifest, render
from elastic_infra.manifests.updates import CLAIM_IDENTITY, parts
from elastic_infra.preview.model import Consequence, Job


def warnings(base: Job, head: Job | None, consequence: Consequence) -> tuple[str, ...]:
    """Every warning about going from `base` to `head` (None: the job is removed)."""
    return (*_claim(base, head), *_restart(head, consequence))


def _claim(base: Job, head: Job | None) -> Iterator[str]:
    """A claim made for the job goes with it and with its name; any other change of it is refused."""
    before, after = _made_claim(base), _made_claim(head) if head else None
    if before is None:
        return
    name = ObjectNames(base.name).checkpoint
    if after is None:
        yield f"the claim `{name}` is deleted with the checkpoints on it."
    elif head and head.name != base.name:
        yield (
            f"the claim `{name}` is replaced by an empty one: its checkpoints are lost, and `pulumi up` waits until no "
            "pod uses it. Use `storage.checkpoint.claim` to keep a volume beyond the job."
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
