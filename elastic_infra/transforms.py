"""Hands a replacement trigger back to the engine where a Pulumi transform returns the options that it was given.

Pulumi's SDK (3.272) gets the trigger as a protobuf message, makes plain Python of the message, and then wants a message
again for its answer: `up` ends in ``Message must be initialized with a dict: TransformResourceOptions``. Transforms
reach every child of a component, and the children with a trigger are those that say when a job is made anew.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import pulumi
from google.protobuf import struct_pb2
from pulumi.runtime import _callbacks

_METHOD: Final = "_transformation_resource_options"
_MENDED: Final = "_hands_triggers_back"


def hand_triggers_back() -> None:
    """Have the SDK of this process put such a trigger into its answer as it came; a later SDK without the fault stays.

    A component asks for this before it registers anything, for the engine calls transforms in the program's process.
    """
    servicer = getattr(_callbacks, "_CallbackServicer", None)
    method = getattr(servicer, _METHOD, None)
    if method is not None and not hasattr(method, _MENDED):
        setattr(servicer, _METHOD, _mended(method))


def _mended(answer: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    async def mended(servicer: object, opts: pulumi.ResourceOptions, *rest: object, **more: object) -> Any:  # noqa: ANN401
        trigger = opts.replacement_trigger
        if not isinstance(trigger, struct_pb2.Value):
            return await answer(servicer, opts, *rest, **more)
        opts.replacement_trigger = None
        try:
            found = await answer(servicer, opts, *rest, **more)
        finally:
            opts.replacement_trigger = trigger
        if trigger.WhichOneof("kind") is not None:  # the SDK gives resources without a trigger an empty one
            found.replacement_trigger.CopyFrom(trigger)
        return found

    setattr(mended, _MENDED, True)
    return mended
