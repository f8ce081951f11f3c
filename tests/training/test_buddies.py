"""Each node keeps the shards of another one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from elastic_infra.training import buddies
from elastic_infra.training.exchange import Place, are_copied
from elastic_infra.training.node_memory import NodeMemory


@given(st.lists(st.integers(1, 4), min_size=2, max_size=5))
def test_every_worker_has_one_keeper_on_another_node(workers: list[int]) -> None:
    """Nodes with any numbers of workers: what one sends, one other expects, and the loss of a node loses nothing."""
    nodes = [f"{node}" for node, count in enumerate(workers) for _ in range(count)]
    rings = [buddies.ring(nodes, rank) for rank in range(len(nodes))]
    sent = {(rank, ring.target) for rank, ring in enumerate(rings)}

    assert sent == {(source, rank) for rank, ring in enumerate(rings) for source in ring.sources}
    assert all(nodes[source] != nodes[target] for source, target in sent)
    assert len(sent) == len(nodes)
    for here, there in zip(range(len(workers)), [*range(1, len(workers)), 0], strict=True):
        assert {nodes[target] for source, target in sent if nodes[source] == str(here)} == {str(there)}


def test_a_group_beside_nccl_goes_with_the_error_in_it(tmp_path: Path) -> None:
    """The peer is gone: the group's connections are closed, since its other peers wait at them."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        ring = buddies.Buddies(NodeMemory(str(tmp_path), 0), pytest.fail)
        ring.join(["0", "1"], 0, dist.new_group(backend="gloo"))
        assert ring.are_joined
        with pytest.raises((RuntimeError, ValueError)):
            ring.swap(None)
        assert not ring.are_joined
        assert len(dist.distributed_c10d._world.pg_map) == 1
    finally:
        dist.destroy_process_group()


def test_where_copies_are_needed() -> None:
    """Not on one node, and not where each shard is on two nodes, as in HSDP."""

    def copied(*places: tuple[str, int]) -> bool:
        return are_copied([Place(node, boxes, keeps=True) for node, boxes in places])

    assert copied(("0", 1), ("0", 2))
    assert copied(("0", 1), ("1", 1))
    assert copied(("0", 1), ("0", 2), ("1", 1), ("1", 2))
    assert not copied(("0", 1), ("1", 2))
    assert not copied(("0", 1), ("0", 1), ("1", 2), ("1", 2))
