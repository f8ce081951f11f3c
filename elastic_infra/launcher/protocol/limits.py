"""The numbers of the protocol. Defaults are those of ``LauncherSettings`` and of torchrun where it has one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

UNKNOWN_START: Final = 600.0
"""Seconds that a first step may take while none has been seen: big models load and compile for minutes."""
LEAD_OF_FEW: Final = 0.2
"""Seconds that a few nodes need to agree on a stop step, on a busy machine too."""
LEAD_OF_EACH: Final = 0.001
"""Seconds that each member adds to that."""
STARTS: Final = 3
"""A start that takes this many times the longest one so far is taken for stuck, and newcomers wait no longer."""


@dataclass(frozen=True)
class Limits:
    """The configuration of the pure machine; in seconds unless said otherwise."""

    min_nodes: int = 1
    max_nodes: int = 1
    node_unit: int = 1
    """Nodes train in multiples of it; a node beyond the last whole multiple waits."""
    world_sizes: tuple[int, ...] = ()
    """Numbers of workers that the script can use; empty: any."""
    max_restarts: int = 0
    """Failures that the job survives without progress in between, over all nodes."""
    initial_nodes: int = 1
    """Nodes the first round hopes for while ``startup_wait`` runs."""
    startup_wait: float = 0.0
    """How long the first round waits for ``initial_nodes``; 0: only for the last call."""
    last_call: float = 2.0
    """How long a first round with its minimum of nodes waits for more, and how long an empty store waits for its old
    members."""
    join_timeout: float = 600.0
    """How long a node stays without a running generation before it exits 200 (torchrun's default)."""
    planned_gap: float = 30.0
    """The least time between two planned changes, so that a burst of newcomers costs one stop; also the time for which
    workers that report no steps train before a newcomer may end them."""
    startup_patience: float | None = None
    """How long newcomers wait for workers that have not made a first step; None follows from the starts seen."""
    loss_wait: float = 2.0
    """How long the end of the job waits for a sign that a node was lost."""
    reconnect_wait: float = 1.0
    """How long a member without a connection (it ended, or the store was reborn) is waited for: longer than a node
    pauses between two tries to connect (``RETRY_SECONDS``)."""
    orphan_timeout: float = 120.0
    """A supervisor ends its workers this long after its last acknowledged beat."""
    orphan_margin: float = 10.0
    """Added to ``orphan_timeout`` before peers rely on it, because clocks drift and killing takes time."""
    shutdown_grace: float = 30.0
    """Time from the order to stop to SIGKILL."""
    failure_grace: float = 30.0
    """Time from the order to stop to SIGKILL when a peer failed."""
    lost_grace: float = 5.0
    """Time from the order to stop to SIGKILL when a peer is lost: a checkpoint that needs all ranks cannot succeed any
    more, and handlers that save one wait for the lost ranks until they are killed."""
    leave_margin: float = 5.0
    """A node that got SIGTERM gives up the agreed stop this long before its grace ends."""
    startup_window: float = 0.0
    """A failure this soon after the start, before any step, is a start-up failure; 0: no failure is one."""
    forget_final: float = 60.0
    """The end of a job without a live member is forgotten after this long."""
    stop_step_lead: float = 1.0
    """The stop step lies at most this many seconds ahead at the speed reported: longer than the agreement takes."""

    node_faults: int = 6
    """A node that ends so many generations by its own faults within ``node_faults_window`` is left out. A supervisor
    replaces three agents before the launcher ends, and an eviction counts two, so a bad node has two or three tries."""
    node_faults_window: float = 600.0
    """Faults that are this long ago count no more, so that rare ones of a long job do not add up."""

    def allows(self, nodes: int, workers: int, refused: tuple[int, ...]) -> bool:
        """Whether a generation may have so many nodes and workers, where the script has refused these world sizes."""
        return nodes % self.node_unit == 0 and workers not in refused and workers in (self.world_sizes or (workers,))

    def patience(self, longest_start: int | None) -> float:
        """How long newcomers wait for a first step, given the longest start so far; None: no start is known."""
        if self.startup_patience is not None:
            return self.startup_patience
        if longest_start is None:
            return UNKNOWN_START
        return max(self.planned_gap, STARTS * longest_start)

    def first_lead(self, members: int) -> float:
        """How far ahead a stop step is proposed: a worker that comes to it sooner waits, and newcomers wait for it."""
        return min(self.stop_step_lead, LEAD_OF_FEW + members * LEAD_OF_EACH)

    @property
    def dead_after(self) -> float:
        """A node that has been silent for this long runs no workers any more."""
        return self.orphan_timeout + self.orphan_margin
