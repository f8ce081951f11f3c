"""What the agent tells the outside: event lines, and the snapshot behind ``/metrics``, ``/healthz`` and ``/status``.

Reads the machine's state and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from . import events, status
from .plan import Plan
from .protocol.messages import StepsSeen
from .protocol.state import State
from .settings import LauncherSettings

PROGRESS_SECONDS: Final = 10.0
"""Steps are many; one event in this time says enough."""


class Observer:
    """Writes events and serves the newest snapshot."""

    def __init__(self, plan: Plan, settings: LauncherSettings, node: str) -> None:
        self._plan = plan
        self._node = settings.node_name or node
        self._log = events.EventLog(settings.events, self._node)
        self._port = settings.metrics_port
        self._newest: status.Snapshot | None = None
        self._membership_changes = 0
        self._next_progress = 0.0
        self.warm_parent_ready = False

    def serve(self) -> None:
        """Listen, where a port is set."""
        if self._port:
            status.serve(self._port, lambda: self._newest)

    def emit(self, event: str, state: State, fields: Mapping[str, object]) -> None:
        """One event line, with the generation and attempt it is about."""
        if event == "membership_change":
            self._membership_changes += 1
        generation = state.group.identity[0] if state.group else 0
        attempt = state.generation.attempt if state.generation else 0
        self._log.write(cast(events.Name, event), generation=generation, attempt=attempt, fields=fields)

    def progress(self, state: State, seen: StepsSeen, now: float) -> None:
        """A ``progress`` event, at most every ``PROGRESS_SECONDS``."""
        if seen.highest is None or now < self._next_progress:
            return
        self._next_progress = now + PROGRESS_SECONDS
        fields = {"lowest": seen.lowest, "highest": seen.highest, "checkpoint": seen.checkpoint}
        self.emit("progress", state, {**fields, "steps_per_second": seen.per_second})

    def update(self, state: State, phase: str, workers_running: int, now: float) -> None:
        """Replace the snapshot."""
        if not self._port:
            return
        generation, group = state.generation, state.group
        members = generation.members if generation else ()
        ours = [index for index, member in enumerate(members) if member.uuid == state.node.uuid]
        self._newest = status.Snapshot(
            node=self._node,
            run_id=self._plan.run_id,
            phase=phase,
            generation=group.identity[0] if group else 0,
            attempt=generation.attempt if generation else 0,
            restart_count=generation.budget.charged if generation else 0,
            max_restarts=self._plan.max_restarts,
            membership_changes=self._membership_changes,
            world_size=sum(member.local_world_size for member in members),
            group_rank=ours[0] if ours else None,
            nodes=tuple(member.name or member.uuid for member in members),
            workers_running=workers_running,
            lowest_step=group.lowest if group else None,
            highest_step=group.highest if group else None,
            checkpoint_step=group.checkpoint if group else None,
            store_connected=state.store.connected,
            warm_parent_ready=self.warm_parent_ready,
            at=now,
        )
