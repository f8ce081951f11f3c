"""Whether a job is made anew in this deployment, and so takes from its config what others wrote into the one before.

Where people or a queue set the size, and where Kueue chooses cluster nodes, Pulumi leaves those paths alone by
`ignore_changes`. The engine (3.230) leaves them alone in a replacement as well: a job whose range becomes 5 to 8 would
be made with the 4 nodes that it had, and wait for ever; one in a queue would keep its earlier tolerations.

A `pulumi.Stash` says how far the job is. Its trigger, the fingerprint of the workload, replaces it before the workload,
and then it says `MAKING`; `MADE` is written there once the workload is in the cluster. Where that fails, the job is
still to be made in the next deployment, which has the same fingerprint.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Final

import grpc
import pulumi
from google.protobuf import struct_pb2
from pulumi.runtime.proto import resource_pb2
from pulumi.runtime.settings import get_monitor, handle_grpc_error

from elastic_infra import child_names
from elastic_infra.config import JobConfig
from elastic_infra.launcher_pin import fingerprint
from elastic_infra.manifests import Manifests
from elastic_infra.manifests.updates import replacing

ROLE: Final = "size"
"""Part of the stash's name in state files: never to be changed."""

MAKING: Final = "making"
MADE: Final = "made"


@dataclasses.dataclass
class MadeAnew:
    """What keeps how far the job is, and whether it is made anew; unknown where a change of the job was refused."""

    stash: pulumi.Resource
    is_new: pulumi.Output[bool]
    _is_recorded: bool = False

    def hooks(self, resource: str) -> pulumi.ResourceOptions:
        """For the workload: it may be in the cluster although the update fails, which has waited for it in vain.

        The engine calls the hook for that, and for a creation that was refused it does not.
        """

        async def record(failed: pulumi.ErrorHookArgs) -> bool:
            if failed.failed_operation != "delete":
                await self._record()
            return False  # no second try

        hook = pulumi.ErrorHook(child_names.hook_name(f"{resource}-made"), record)
        return pulumi.ResourceOptions(hooks=pulumi.ResourceHookBinding(on_error=[hook]))

    def record(self, workload: pulumi.CustomResource) -> pulumi.Output[bool]:
        """Have it recorded that the workload is there, once it is, and say so; one that failed has no id."""

        async def record(known: str) -> bool:
            if known:
                await self._record()
            return bool(known)

        return workload.id.apply(record)

    async def _record(self) -> None:
        """Set the stash's output, which the engine takes for any resource that is registered, as it does a component's.

        `register_outputs` would not wait, and after a failure the engine is gone soon. The engine takes outputs once;
        one that goes on after an error (`--continue-on-error`) has called the hook before there is an id.

        Raises:
            pulumi.RunError: the engine is gone.
        """
        if self._is_recorded:
            return
        self._is_recorded = True
        outputs = struct_pb2.Struct()
        outputs.update({"input": MAKING, "output": MADE})
        request = resource_pb2.RegisterResourceOutputsRequest(urn=await self.stash.urn.future() or "", outputs=outputs)
        call = get_monitor().RegisterResourceOutputs  # type: ignore[union-attr]  # a program that runs has an engine
        try:
            await asyncio.get_running_loop().run_in_executor(None, call, request)
        except grpc.RpcError as error:
            handle_grpc_error(error)


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
        ignore_changes=["input"],  # earlier versions had a word of the deployment there, of jobs that are made
    )
    stash = child_names.stash(names, ROLE, MAKING, options, own)
    return MadeAnew(stash, pulumi.Output.from_input(stash.output).apply(lambda kept: kept == MAKING))
