"""What a program keeps of a job in Pulumi's state, for the deployments that follow: each record is a `pulumi.Stash`.

A stash keeps the input that it was made with as its output. `Record.keep` writes another output there, so that a
program compares what it is about to make with what is there. A `replacement_trigger` would have the engine compare, but
Pulumi's SDK for Python (3.272) cannot pass a trigger on through a transform, and `transforms` reach every child.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import grpc
import pulumi
from google.protobuf import struct_pb2
from pulumi.runtime.proto import resource_pb2
from pulumi.runtime.settings import get_monitor, handle_grpc_error

from elastic_infra import child_names
from elastic_infra.config.values import is_late
from elastic_infra.manifests import Value
from elastic_infra.manifests.identity import run_id

RUN: Final = "run"
"""Role of the record of late values. A role is a part of a name in state files: never to be changed."""


class Record(pulumi.CustomResource):
    """A `pulumi.Stash`, whose own constructor would have Pulumi take this package's source for the program's."""

    output: pulumi.Output[Any]
    """What the state keeps."""

    async def keep(self, content: pulumi.Input[object], output: pulumi.Input[object]) -> None:
        """Set the output, which the engine takes for any resource that is registered, as it does a component's.

        `register_outputs` would not wait, and after a failure the engine is gone soon. The engine takes outputs once in
        a deployment.

        Args:
            content: the input of this deployment.
            output: what the state is to keep.

        Raises:
            pulumi.RunError: the engine is gone.
        """
        known = await pulumi.Output.all(self.urn, content, output).future()
        if pulumi.runtime.is_dry_run() or known is None:
            return
        outputs = struct_pb2.Struct()
        outputs.update({"input": known[1], "output": known[2]})
        request = resource_pb2.RegisterResourceOutputsRequest(urn=known[0], outputs=outputs)
        call = get_monitor().RegisterResourceOutputs  # type: ignore[union-attr]  # a program that runs has an engine
        try:
            await asyncio.get_running_loop().run_in_executor(None, call, request)
        except grpc.RpcError as error:
            handle_grpc_error(error)


def record(
    names: child_names.ChildNames,
    role: str,
    content: pulumi.Input[object],
    options: pulumi.ResourceOptions,
    own: pulumi.ResourceOptions | None = None,
) -> Record:
    """A record of a job, found by its earlier name as well.

    Args:
        content: what the state keeps at first.
        options: those of every child.
        own: those of this one.
    """
    merged = child_names.merged(options, names.aliases(role), own)
    return Record("pulumi:index:Stash", names.of(role), {"input": content, "output": None}, merged)


def late_values(
    names: child_names.ChildNames, value: Value, options: pulumi.ResourceOptions
) -> pulumi.Output[str] | None:
    """Tells one job from the next where only values differ that are known late, of which no hash in a name knows.

    Returns:
        Empty as long as these values are those that the job was recorded with, their fingerprint for all others; None
        for a value without any.
    """
    current = fingerprint(value)
    if not isinstance(current, pulumi.Output):
        return None
    first = record(names, RUN, current, options).output
    return with_other(first, current, lambda kept, now: "" if kept in (None, now) else str(now))  # mocks give no output


def with_other(
    kept: pulumi.Output[Any], other: pulumi.Input[Any], use: Callable[[Any, Any], Any], *, with_unknowns: bool = False
) -> pulumi.Output[Any]:
    """What a function makes of both; of one Output where the second is known, for each costs all others time."""
    if isinstance(other, pulumi.Output):
        return pulumi.Output.all(kept, other).apply(lambda both: use(*both), run_with_unknowns=with_unknowns)
    return kept.apply(lambda known: use(known, other), run_with_unknowns=with_unknowns)


def fingerprint(value: Value) -> pulumi.Input[str]:
    """Changes with the value. An Output only where a part is late: that costs more than a registration."""
    if not _has_late(value):
        return run_id(_FINGERPRINT, value)
    known: pulumi.Output[Value] = pulumi.Output.from_input(_public(value))
    return known.apply(lambda parts: run_id(_FINGERPRINT, parts))


def is_fingerprint(kept: object) -> bool:
    """Whether a record keeps one; earlier versions kept other words there."""
    return isinstance(kept, str) and kept.startswith(f"{_FINGERPRINT}-")


_FINGERPRINT: Final = "job"


def _has_late(value: Value) -> bool:
    """Whether a part of it is known late."""
    if isinstance(value, str):  # most are
        return False
    if isinstance(value, Mapping):
        return any(map(_has_late, value.values()))
    return any(map(_has_late, value)) if isinstance(value, list) else is_late(value)


def _public(value: Any) -> Any:  # noqa: ANN401 - JSON, with Outputs as leaves
    """The value without its secrets, so that a secret that changes restarts the job with the launcher that it has.

    A record that is plain text in the state must tell nothing of a secret, not by a hash either.
    """
    if isinstance(value, Mapping):
        return {key: _public(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_public(part) for part in value]
    return _unless_secret(value) if isinstance(value, pulumi.Output) else value


async def _unless_secret(value: pulumi.Output[Any]) -> Any:  # noqa: ANN401 - of any value
    """The value, None while it is unknown, in a preview: that is a change, as it is to the workload."""
    return "secret" if await value.is_secret() else await value.future()
