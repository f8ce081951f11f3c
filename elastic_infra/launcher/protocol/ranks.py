"""The nodes that are taken and their ranks: by replica index where there is one, else survivors keep their order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from .records import Generation, Member, NodeRecord


def _any_size(nodes: int, workers: int) -> bool:
    return True


def assign(
    survivors: Sequence[NodeRecord],
    newcomers: Sequence[NodeRecord],
    max_nodes: int,
    allows: Callable[[int, int], bool] = _any_size,
    *,
    in_place: bool = False,
) -> tuple[Member, ...]:
    """The members of the next generation in rank order, as many as may be; none where no number of them may.

    ``survivors`` come in the order they had and are never displaced by newcomers. Where all nodes have different
    replica indices the indices give the order, else survivors stay in front and newcomers follow by age.

    Args:
        survivors: members of the last generation.
        newcomers: nodes that are ready besides.
        max_nodes: how many nodes may be taken.
        allows: whether a generation may have so many nodes and so many workers.
        in_place: whether workers keep their processes: then survivors come first, whatever the indices, and rank 0 has
        parked and has the state.
    """
    if in_place:
        survivors = sorted(survivors, key=lambda record: record.state != "parked")
    taken = [*survivors, *sorted(newcomers, key=_age)][:max_nodes]
    while taken and not allows(len(taken), sum(record.local_world_size for record in taken)):
        taken.pop()
    indices = {record.replica_index for record in taken}
    if None not in indices and len(indices) == len(taken) and not in_place:
        taken.sort(key=lambda record: record.replica_index or 0)
    return tuple(Member(record.uuid, record.name or record.address, record.local_world_size) for record in taken)


def first_rank(members: Sequence[Member], uuid: str) -> int:
    """The rank of the node's first worker."""
    position = [member.uuid for member in members].index(uuid)
    return sum(member.local_world_size for member in members[:position])


def world_size(members: Sequence[Member]) -> int:
    """The number of workers of all members."""
    return sum(member.local_world_size for member in members)


def of_finished_nodes(generation: Generation, records: Iterable[NodeRecord]) -> tuple[int, ...]:
    """The ranks on the nodes all of whose workers of this generation have exited 0 by themselves.

    Args:
        generation: the generation with its members, and those that have finished and answer no more.
        records: what the nodes say of themselves; a record of another generation says nothing of this one.
    """
    identity = generation.identity
    said = (record.uuid for record in records if record.state == "finished" and record.identity == identity)
    finished = {*generation.finished, *said}
    owners = [member.uuid for member in generation.members for _ in range(member.local_world_size)]
    return tuple(rank for rank, uuid in enumerate(owners) if uuid in finished)


def _age(record: NodeRecord) -> tuple[int, int, str]:
    index = record.replica_index if record.replica_index is not None else 1 << 30
    return (index, record.joined, record.uuid)
