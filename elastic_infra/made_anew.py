"""Whether a job is made anew in this deployment, and so takes from its config what others wrote into the one before.

Where people or a queue set the size, and where Kueue chooses cluster nodes, Pulumi leaves those paths alone by
`ignore_changes`. The engine (3.230) leaves them alone in a replacement as well: a job whose range becomes 5 to 8 would
be made with the 4 nodes that it had, and wait for ever; one in a queue would keep its earlier tolerations.

A record keeps the fingerprint of the workload that is in the cluster. It is written once the workload is there. Where
that fails, the job is still to be made in the next deployment, whose fingerprint is still another one.
"""

from __future__ import annotations

import dataclasses
from typing import Final

import pulumi

from elastic_infra import child_names, records
from elastic_infra.config import JobConfig
from elastic_infra.manifests import Manifests
from elastic_infra.manifests.updates import replacing

ROLE: Final = "size"
"""Part of the record's name in state files: never to be changed."""

MAKING: Final = "making"
"""What the record of a new job keeps until the workload is there."""


@dataclasses.dataclass
class MadeAnew:
    """What keeps which workload is there, and whether it is made anew; unknown where a change of the job was refused.

    Attributes:
        record: keeps it.
        workload: fingerprint of the workload of this deployment.
        is_new: whether it is another than the one that is there.
    """

    record: records.Record
    workload: pulumi.Input[str]
    is_new: pulumi.Output[bool]
    _is_kept: bool = False

    def hooks(self, resource: str) -> pulumi.ResourceOptions:
        """For the workload: it may be in the cluster although the update fails, which has waited for it in vain.

        The engine calls the hook for that, and for a creation that was refused it does not.
        """

        async def keep(failed: pulumi.ErrorHookArgs) -> bool:
            if failed.failed_operation != "delete":
                await self._keep()
            return False  # no second try

        hook = pulumi.ErrorHook(child_names.hook_name(f"{resource}-made"), keep)
        return pulumi.ResourceOptions(hooks=pulumi.ResourceHookBinding(on_error=[hook]))

    def keep_once_made(self, workload: pulumi.CustomResource) -> None:
        """Have it recorded that the workload is there, once it is; one that failed has no id."""

        async def keep(known: str) -> None:
            if known:
                await self._keep()

        workload.id.apply(keep)  # type: ignore[arg-type]  # mypy finds no type in a union with awaitables

    async def _keep(self) -> None:
        """Once: a deployment that goes on after an error (`--continue-on-error`) calls the hook, and has an id too."""
        if self._is_kept:
            return
        self._is_kept = True
        kept, workload = await pulumi.Output.all(self.record.output, self.workload).future() or (None, None)
        if kept != workload:
            await self.record.keep(MAKING, workload)


def made_anew(
    names: child_names.ChildNames, config: JobConfig, stable: Manifests, options: pulumi.ResourceOptions
) -> MadeAnew:
    """What a job needs whose foreign paths depend on it.

    Args:
        stable: the job's objects of `lasting`.
        options: for the record.
    """
    workload = records.fingerprint(replacing(config, stable))
    own = pulumi.ResourceOptions(ignore_changes=["input"])  # earlier versions had other words there
    kept = records.record(names, ROLE, MAKING, options, own)
    return MadeAnew(kept, workload, records.with_other(kept.output, workload, _is_new))


def _is_new(kept: object, workload: str) -> bool:
    """A word of an earlier version is that of a job that is there."""
    return kept == MAKING or (records.is_fingerprint(kept) and kept != workload)
