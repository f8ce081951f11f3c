"""The number of micro-batches that keeps the global batch, and the learning rate for a batch that changes."""

from __future__ import annotations

import os
from typing import Literal


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


def scaled_learning_rate(
    rate: float, global_batch: int, tuned_for: int, rule: Literal["linear", "square-root"] = "linear"
) -> float:
    """A learning rate for another global batch than the one for which it was tuned.

    Only for scripts that change the batch: with ``ElasticSampler`` and with ``accumulation_steps`` the batch stays when
    nodes come or go, and the rate with it.

    Args:
        rate: the learning rate that suits ``tuned_for``.
        global_batch: number of samples of one step, over all workers.
        tuned_for: the same of the training in which the rate was found.
        rule: "linear", the default, for SGD with momentum (https://arxiv.org/abs/1706.02677, section 2.1);
            "square-root" for Adam and its kin (https://arxiv.org/abs/2205.10287).

    Raises:
        ValueError: a batch is less than 1, or there is no such rule.
    """
    if global_batch < 1 or tuned_for < 1:
        message = f"global_batch ({global_batch}) and tuned_for ({tuned_for}) must be 1 or more."
        raise ValueError(message)
    powers = {"linear": 1.0, "square-root": 0.5}
    if rule not in powers:
        message = f"There is no rule {rule!r} for the learning rate. Use one of: {', '.join(powers)}."
        raise ValueError(message)
    return float(rate * (global_batch / tuned_for) ** powers[rule])
