"""Shards in the memory of several nodes: whether a snapshot is whole there, and how its parts reach their new ranks.

Every rank knows what all ranks hold and want, so that each decides for itself what it sends and receives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
import torch.distributed as dist

from .host_memory import Tree
from .node_memory import Key
from .shards import Assembly, Box, Held, box_in

Inventory = Mapping[Key, Mapping[str, Held]]
"""What one rank finds in its node's memory: of each snapshot its shards, by name."""


def newest_whole(inventories: Sequence[Inventory]) -> tuple[Key | None, str]:
    """The newest snapshot of which every value is in the memory of a present node.

    Returns:
        The snapshot, or None; and why a newer one is not used, empty where there is no newer one.
    """
    reason = ""
    for key in sorted({key for inventory in inventories for key in inventory}, reverse=True):
        missing = _missing([inventory[key] for inventory in inventories if key in inventory])
        if not missing:
            return key, reason
        reason = reason or (
            f"The snapshot of step {key[0]} in memory is not used: of {len(missing)} tensors, {missing[0]} among "
            "them, a shard is in the memory of no present node"
        )
    return None, reason


def parcels(
    rank: int, held: Sequence[Box | None], wanted: Sequence[Box | None]
) -> tuple[list[tuple[int, Box]], list[tuple[int, Box]]]:
    """What a rank sends of one tensor, and what it receives, besides what it holds itself.

    Args:
        rank: the rank.
        held: by rank, the box that is in its node's memory; None without one.
        wanted: by rank, the box that it needs; None without one.

    Returns:
        Each rank to which a part goes with this part, and each rank from which a part comes with this part.
    """
    givers: dict[Box, int] = {}
    for source, box in enumerate(held):
        if box is not None:
            givers.setdefault(box, source)
    mine, need = held[rank], wanted[rank]
    sent = [
        (target, part)
        for target, box in enumerate(wanted)
        if mine is not None and givers[mine] == rank and held[target] != mine
        if box is not None and (part := box.overlap(mine)) is not None
    ]
    received = [
        (source, part)
        for box, source in givers.items()
        if need is not None and box != mine and (part := need.overlap(box)) is not None
    ]
    return sent, received


def fill(
    assembly: Assembly,
    own: Mapping[str, Tree],
    held: Sequence[Mapping[str, Held]],
    wanted: Sequence[Mapping[str, Box]],
    group: dist.ProcessGroup | None,
) -> bool:
    """Fill this rank's boxes from its own node's memory and those of others; every rank must call this function.

    One tensor after another, so that little memory is needed beside the state.

    Args:
        assembly: this rank's boxes.
        own: the shards that this rank finds in its node's memory.
        held: what every rank finds.
        wanted: the boxes that every rank needs.
        group: a group with gloo; None is the default group.

    Returns:
        Whether anything came from another rank.
    """
    assembly.take_all(own)
    rank, has_received = dist.get_rank(), False
    for name in sorted({name for names in wanted for name in names}):
        boxes = [names[name].box if name in names else None for names in held]
        sent, received = parcels(rank, boxes, [names.get(name) for names in wanted])
        for part, values in _swap(name, own, sent, received, assembly, group):
            assembly.take(name, part, values)
            has_received = True
    return has_received


def _swap(
    name: str,
    own: Mapping[str, Tree],
    sent: Sequence[tuple[int, Box]],
    received: Sequence[tuple[int, Box]],
    assembly: Assembly,
    group: dist.ProcessGroup | None,
) -> Iterator[tuple[Box, torch.Tensor]]:
    """Send and receive the parts of one tensor at once, since no rank knows which other one waits for which."""
    going = [(target, box_in(own[name]).view(own[name]["values"], part).contiguous()) for target, part in sent]
    coming = [(source, part, assembly.room(name, part)) for source, part in received]
    works = [dist.isend(values, target, group=group) for target, values in going]
    works += [dist.irecv(values, source, group=group) for source, _, values in coming]
    for work in works:
        work.wait()
    return ((part, values) for _, part, values in coming)


def _missing(held: Sequence[Mapping[str, Held]]) -> list[str]:
    """Names of the tensors that the boxes do not fill."""
    wholes = {name: shard.whole for shards in held for name, shard in shards.items()}
    boxes: dict[str, set[Box]] = {name: set() for name in wholes}
    for shards in held:
        for name, shard in shards.items():
            boxes[name].add(shard.box)
    return [
        name
        for name, whole in wholes.items()
        if sum(box.volume for box in boxes[name]) != Box((0,) * len(whole), whole).volume
    ]
