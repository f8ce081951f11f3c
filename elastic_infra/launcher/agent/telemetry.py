"""The agent's telemetry: event lines, and the snapshot behind ``/metrics``, ``/healthz`` and ``/status``.

Reads the machine's state and changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, cast

from .. import console, event_log
from ..command_line.plan import Plan
from ..protocol.events import StepsSeen
from ..protocol.state import State
from ..settings import LauncherSettings
from ..workers.progress import Slot
from . import restores, saves, status_server

PROGRESS_SECONDS: Final = (1.0, 10.0)
"""Seconds between two ``progress`` events, since steps are many: every second in a young generation, whose first steps
end an outage and which may be short, and ten times less often in an old one."""


class Pace:
    """Chooses which reports of steps become events: a generation's first, its last, and some between."""

    def __init__(self) -> None:
        self._untold: StepsSeen | None = None
        self._last: tuple[int | None, ...] = ()
        self._since = 0.0
        self._next = 0.0
        self.seen_at = 0.0
        """When the steps of the last event were seen, by the agent's clock."""

    def see(self, seen: StepsSeen, now: float) -> None:
        """Take down the steps seen at this moment; a change of the speed alone gives no event."""
        steps = (seen.generation, seen.lowest, seen.highest, seen.checkpoint)
        if seen.highest is None or steps == self._last:
            return
        if steps[0] not in self._last[:1]:
            self._since = self._next = now
        self._last, self._untold, self.seen_at = steps, seen, now

    def due(self, now: float) -> StepsSeen | None:
        """The steps for an event, if one is due now."""
        return self.take(now) if now >= self._next else None

    def take(self, now: float) -> StepsSeen | None:
        """The steps that no event has reported yet, whether an event is due or not."""
        untold, self._untold = self._untold, None
        if untold is not None:
            shortest, longest = PROGRESS_SECONDS
            self._next = now + min(longest, max(shortest, (now - self._since) / 10))
        return untold


class Observer:
    """Writes events and serves the newest snapshot."""

    def __init__(
        self,
        plan: Plan,
        settings: LauncherSettings,
        node: str,
        lines: console.Console,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plan = plan
        self._node = settings.node_name or node
        self._log = event_log.EventLog(settings.events, self._node, lines)
        self._port = settings.metrics_port
        self._clock = clock
        self._newest: status_server.Snapshot | None = None
        self._membership_changes = 0
        self._moves = 0
        self._restores = restores.Watch()
        self._restore: restores.Restore | None = None
        self._steps_lost = 0
        self._saves = saves.Watch()
        self._samples: int | None = None
        self._pace = Pace()
        self.fork_server_ready = False

    def serve(self) -> None:
        """Serve the status pages where a port is set."""
        if self._port:
            status_server.serve(self._port, lambda: self._newest)

    def emit(self, event: str, state: State, fields: Mapping[str, object]) -> None:
        """Write one event line with its generation and attempt, after an event for steps that are not reported yet."""
        self._tell(state, self._pace.take(self._clock()))
        if event == "membership_change":
            self._membership_changes += 1
        if event == "workers_started" and fields.get("mode") == "move":
            self._moves += 1
        self._write(event, state, state.workers.identity[0] if state.workers else 0, fields)

    def look(self, state: State, generation: int, slots: Sequence[Slot]) -> None:
        """Take down saves and samples, and write an event once all workers have said from where they go on."""
        self._saves.look(slots)
        self._samples = max((slot.samples for slot in slots if slot.samples is not None), default=self._samples)
        found = self._restores.look(generation, slots)
        if found is None:
            return
        self._restore = found
        self._steps_lost += found.steps_lost
        self._tell(state, self._pace.take(self._clock()))
        fields = {"step": found.step, "source": found.source, "steps_lost": found.steps_lost}
        self._write("state_restored", state, generation, fields)

    def progress(self, state: State, seen: StepsSeen, now: float) -> None:
        """Take down the steps seen; a ``progress`` event follows now or soon."""
        self._pace.see(seen, now)
        self._tell(state, self._pace.due(now))

    def _tell(self, state: State, seen: StepsSeen | None) -> None:
        if seen is None:
            return
        steps = {"first": seen.first, "lowest": seen.lowest, "highest": seen.highest, "checkpoint": seen.checkpoint}
        ages = {"age_seconds": self._age(self._pace.seen_at), "first_age_seconds": self._age(seen.stepped_at)}
        pace = {"steps_per_second": seen.per_second, **ages}
        kept = {"memory_step": self._saves.memory_step, "samples": self._samples}
        self._write("progress", state, seen.generation, {**steps, **kept, **pace})

    def _age(self, at: float | None) -> float | None:
        return None if at is None else round(max(0.0, self._clock() - at), 3)

    def _write(self, event: str, state: State, generation: int, fields: Mapping[str, object]) -> None:
        attempt = state.generation.attempt if state.generation else 0
        self._log.write(cast(event_log.Name, event), generation=generation, attempt=attempt, fields=fields)

    def update(self, state: State, phase: str, workers_running: int, now: float) -> None:
        """Once a round of the agent: replace the snapshot, and write a ``progress`` event where one is due."""
        self._tell(state, self._pace.due(now))
        if not self._port:
            return
        generation, group = state.generation, state.workers
        members = generation.members if generation else ()
        ours = [index for index, member in enumerate(members) if member.uuid == state.node.uuid]
        self._newest = status_server.Snapshot(
            node=self._node,
            run_id=self._plan.run_id,
            phase=phase,
            generation=group.identity[0] if group else 0,
            attempt=generation.attempt if generation else 0,
            restart_count=generation.budget.charged if generation else 0,
            max_restarts=self._plan.max_restarts,
            membership_changes=self._membership_changes,
            moves=self._moves,
            world_size=sum(member.local_world_size for member in members),
            group_rank=ours[0] if ours else None,
            nodes=tuple(member.name or member.uuid for member in members),
            workers_running=workers_running,
            lowest_step=group.lowest if group else None,
            highest_step=group.highest if group else None,
            samples=self._samples,
            checkpoint_step=group.checkpoint if group else None,
            memory_step=self._saves.memory_step,
            save_seconds=self._saves.seconds,
            failed_saves=self._saves.failed,
            restored_step=self._restore.step if self._restore else None,
            restored_from=self._restore.source if self._restore else "",
            steps_lost=self._steps_lost,
            store_connected=state.store.connected,
            fork_server_ready=self.fork_server_ready,
            at=now,
        )
