"""Shards in the memory of several nodes: whether a snapshot is whole there, and how its parts reach their new ranks.

Every rank knows what all ranks hold and want, so that each decides for itself what it sends and receives.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import torch
import torch.distributed as dist

from .host_memory import Tree
from .node_memory import Key
from .shards import Assembly, Box, Held, box_in

Inventory = Mapping[Key, Mapping[str, tuple[Held, ...]]]
"""What one rank finds in its node's memory: of each snapshot, by name, its shards and those that it keeps of others."""


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


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a rank keeps its shards."""

    node: str
    boxes: int
    """A digest of its boxes: two ranks with the same one have the same shards."""
    keeps: bool
    """Whether it keeps snapshots in the node's memory, and has room for those of another node."""


def are_copied(places: Sequence[Place]) -> bool:
    """Whether the shards of every rank are in the memory of another node too, as in HSDP, or there is one node."""
    nodes: dict[int, set[str]] = {}
    for place in places:
        nodes.setdefault(place.boxes, set()).add(place.node)
    return len(nodes_of(places)) == 1 or all(len(found) > 1 for found in nodes.values())


def nodes_of(places: Sequence[Place]) -> list[str]:
    """The nodes, in the order of their first ranks."""
    return list(dict.fromkeys(place.node for place in places))


def parcels(
    rank: int, held: Sequence[Sequence[Box]], wanted: Sequence[Box | None]
) -> tuple[list[tuple[int, Box, Box]], list[tuple[int, Box]]]:
    """What a rank sends of one tensor, and what it receives, besides what it holds itself.

    Args:
        rank: the rank.
        held: by rank, the boxes that it finds in its node's memory.
        wanted: by rank, the box that it needs; None without one.

    Returns:
        Each rank to which a part goes, with the box that has it and this part, and each rank from which a part comes
        with this part.
    """
    givers: dict[Box, int] = {}
    for source, boxes in enumerate(held):
        for box in boxes:
            givers.setdefault(box, source)
    need = wanted[rank]
    sent = [
        (target, mine, part)
        for mine, source in givers.items()
        if source == rank
        for target, box in enumerate(wanted)
        if box is not None and mine not in held[target] and (part := box.overlap(mine)) is not None
    ]
    received = [
        (source, part)
        for box, source in givers.items()
        if need is not None and box not in held[rank] and (part := need.overlap(box)) is not None
    ]
    return sent, received


def fill(
    assembly: Assembly,
    own: Sequence[Mapping[str, Tree]],
    held: Sequence[Mapping[str, tuple[Held, ...]]],
    wanted: Sequence[Mapping[str, Box]],
    group: dist.ProcessGroup | None,
) -> bool:
    """Fill this rank's boxes from its own node's memory and those of others; every rank must call this function.

    One tensor after another, so that little memory is needed beside the state.

    Args:
        assembly: this rank's boxes.
        own: the shards that this rank finds in its node's memory: its own, and those of each rank whose it keeps.
        held: what every rank finds.
        wanted: the boxes that every rank needs.
        group: a group with gloo; None is the default group.

    Returns:
        Whether anything came from another rank.
    """
    for found in own:
        assembly.take_all(found)
    rank, has_received = dist.get_rank(), False
    for name in sorted({name for names in wanted for name in names}):
        boxes = [[shard.box for shard in names.get(name, ())] for names in held]
        sent, received = parcels(rank, boxes, [names.get(name) for names in wanted])
        going = [(target, box.view(_values(name, box, own), part).contiguous()) for target, box, part in sent]
        for part, values in _swap(name, going, received, assembly, group):
            assembly.take(name, part, values)
            has_received = True
    return has_received


def _swap(
    name: str,
    going: Sequence[tuple[int, torch.Tensor]],
    received: Sequence[tuple[int, Box]],
    assembly: Assembly,
    group: dist.ProcessGroup | None,
) -> Iterator[tuple[Box, torch.Tensor]]:
    """Send and receive the parts of one tensor at once, since no rank knows which other one waits for which."""
    coming = [(source, part, assembly.room(name, part)) for source, part in received]
    works = [dist.isend(values, target, group=group) for target, values in going]
    works += [dist.irecv(values, source, group=group) for source, _, values in coming]
    for work in works:
        work.wait()
    return ((part, values) for _, part, values in coming)


def _values(name: str, box: Box, own: Sequence[Mapping[str, Tree]]) -> torch.Tensor:
    """The values of a box that this rank finds in its node's memory."""
    values: torch.Tensor = next(part[name]["values"] for part in own if name in part and box_in(part[name]) == box)
    return values


def _missing(held: Sequence[Mapping[str, tuple[Held, ...]]]) -> list[str]:
    """Names of the tensors that the boxes do not fill."""
    wholes = {name: each.whole for shards in held for name, found in shards.items() for each in found}
    boxes: dict[str, set[Box]] = {name: set() for name in wholes}
    for shards in held:
        for name, found in shards.items():
            boxes[name].update(each.box for each in found)
    return [
        name
        for name, whole in wholes.items()
        if sum(box.volume for box in boxes[name]) != Box((0,) * len(whole), whole).volume
    ]
