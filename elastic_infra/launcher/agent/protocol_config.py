"""The configuration of the protocol's machine, from command line and settings.

Pure, except that a node gets a fresh uuid and the moment of its start.
"""

from __future__ import annotations

import dataclasses
import time
import uuid

from ..command_line.plan import Plan
from ..protocol.limits import Limits
from ..protocol.state import Node, State
from ..settings import LauncherSettings

LOST_GRACE_SECONDS = 5.0
"""Default of the grace when a peer is lost: time for a rank's own last words, not for a checkpoint of all ranks."""


def node_of(plan: Plan, settings: LauncherSettings) -> Node:
    """This node's identity: uuid, name, replica index, address and workers."""
    address = plan.master[0] if plan.master else plan.local_address or ""
    return Node(
        uuid=uuid.uuid4().hex,
        name=settings.node_name,
        local_world_size=plan.nproc_per_node,
        replica_index=settings.replica_index,
        address=address,
        joined=time.time_ns() // 1_000_000,
    )


def limits_of(plan: Plan, settings: LauncherSettings) -> Limits:
    """The protocol's limits, from command line and settings."""
    failure_grace = settings.failure_grace_seconds
    return Limits(
        min_nodes=plan.min_nodes,
        max_nodes=plan.max_nodes,
        node_unit=settings.node_unit,
        world_sizes=settings.world_sizes,
        max_restarts=plan.max_restarts,
        initial_nodes=min(settings.initial_nodes or plan.max_nodes, plan.max_nodes),
        startup_wait=settings.startup_wait_seconds,
        startup_patience=settings.startup_patience_seconds,
        last_call=plan.last_call_seconds,
        join_timeout=plan.join_timeout_seconds,
        orphan_timeout=settings.orphan_timeout_seconds,
        shutdown_grace=plan.shutdown_grace_seconds,
        failure_grace=plan.shutdown_grace_seconds if failure_grace is None else failure_grace,
        lost_grace=LOST_GRACE_SECONDS if failure_grace is None else failure_grace,
        startup_window=settings.startup_window_seconds,
    )


def with_address(state: State, address: str) -> State:
    """The state with the node's address, which the connection to the store has shown."""
    return dataclasses.replace(state, node=dataclasses.replace(state.node, address=address))
