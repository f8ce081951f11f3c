"""The number of micro-batches of a step, so that the global batch stays what it is for any number of workers."""

from __future__ import annotations

import os


def accumulation_steps(global_batch: int, micro_batch: int, world_size: int | None = None) -> int:
    """The number of micro-batches that each worker computes for one step.

    Frameworks that divide the data themselves accumulate whole micro-batches, the same number on every worker; so not
    every number of workers can share a batch. ``ElasticSampler`` needs no such number, and divides any batch.

    Args:
        global_batch: number of samples of one step, over all workers.
        micro_batch: number of samples that a worker computes at once.
        world_size: number of workers; None: ``WORLD_SIZE``, or 1 without it.

    Raises:
        ValueError: this number of workers cannot share the batch; the message names what to change.
    """
    world = int(os.environ.get("WORLD_SIZE", "1")) if world_size is None else world_size
    if global_batch < 1 or micro_batch < 1:
        message = f"global_batch ({global_batch}) and micro_batch ({micro_batch}) must be 1 or more."
        raise ValueError(message)
    parts, rest = divmod(global_batch, micro_batch)
    if rest:
        message = (
            f"A global batch of {global_batch} samples is not a whole number of micro-batches of {micro_batch}. "
            "Change one of them, so that micro_batch divides global_batch."
        )
        raise ValueError(message)
    if parts % world:
        usable = [number for number in range(1, parts + 1) if parts % number == 0]
        message = (
            f"A global batch of {global_batch} samples is {parts} micro-batches of {micro_batch}, which {world} "
            f"workers cannot share evenly. Change global_batch to a multiple of {micro_batch * world}, or let the job "
            f"have only numbers of workers that divide {parts}: elastic.world_sizes: {usable}."
        )
        raise ValueError(message)
    return parts // world
