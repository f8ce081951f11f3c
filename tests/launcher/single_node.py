"""A launcher whose agent knows one node only: drives the supervisor over its channel, without store or membership.

``python -m tests.launcher.single_node [torchrun options] script`` is the process side of the launcher alone.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Mapping

from elastic_infra.launcher import ipc, launch
from elastic_infra.launcher.agent.worker_group import WorkerGroup
from elastic_infra.launcher.command_line.plan import Plan
from elastic_infra.launcher.protocol.actions import StartWorkers
from elastic_infra.launcher.run_dir import RunDir
from elastic_infra.launcher.settings import LauncherSettings
from elastic_infra.launcher.signals import Signals
from tests.ports import free_port

BEAT_SECONDS = 0.5


class SingleNodeAgent:
    """Starts a generation, restarts it after a failure, leaves after success, a spent budget or a signal."""

    def __init__(self, channel: ipc.Channel, plan: Plan, group: WorkerGroup) -> None:
        self.channel = channel
        self.plan = plan
        self.group = group
        self.generation = 0
        self.running: set[int] = set()
        self.failures = 0
        self.leave: ipc.Leave | None = None
        self.phase: ipc.AgentPhase = "starting"

    def run(self) -> None:
        """Start the workers, then beat and handle what the supervisor says, until the end."""
        self.start()
        while True:
            self.channel.send(ipc.AgentBeat(self.phase))
            if select.select([self.channel], [], [], BEAT_SECONDS)[0]:
                for message in self.channel.receive():
                    self.handle(message)

    def start(self) -> None:
        """Begin the next generation."""
        self.generation += 1
        start = StartWorkers(
            generation=self.generation,
            attempt=self.generation - 1,
            restart_count=self.failures,
            first_rank=0,
            local_world_size=self.plan.nproc_per_node,
            world_size=self.plan.nproc_per_node,
            group_rank=0,
            group_world_size=1,
            master_address="127.0.0.1",
            master_port=free_port(),
            cause=None,
        )
        spawn = self.group.start(start)
        self.running = set(range(self.plan.nproc_per_node))
        self.channel.send(spawn)
        self.phase = "monitoring"

    def handle(self, message: ipc.Message) -> None:
        """React to the supervisor."""
        if isinstance(message, ipc.WorkerEnded):
            self.on_ended(message)
        elif isinstance(message, ipc.GroupGone):
            self.group.close()
            if self.leave:
                self.channel.send(self.leave)
                self.group.deliver(1.0)
                sys.exit(0)
            self.start()
        elif isinstance(message, ipc.ForkServerState):
            print(f"fork server: {message.ready} {message.message}", file=sys.stderr, flush=True)
        elif isinstance(message, ipc.SignalCaught):
            self.leave = ipc.Leave(128 + message.signal, "stopped by a signal")
            self.stop("SIGTERM")

    def on_ended(self, ended: ipc.WorkerEnded) -> None:
        """Handle the end of a worker: success of all, or a failure."""
        self.running.discard(ended.local_rank)
        if self.phase == "stopping":
            return
        if ended.exit_code:
            self.failures += 1
            failure = self.group.failure(ended)
            self.channel.send(ipc.Note(self.group.root_cause()))
            if self.failures > self.plan.max_restarts:
                self.leave = ipc.Leave(1, failure.message)
            self.stop("SIGTERM")
        elif not self.running:
            self.leave = ipc.Leave(0, "succeeded")
            self.stop("SIGTERM")

    def stop(self, first: str) -> None:
        """Have the supervisor end the workers of the generation."""
        self.phase = "stopping"
        grace = self.plan.shutdown_grace_seconds
        self.channel.send(ipc.Stop(self.group.spawn, grace, first, "test"))  # type: ignore[arg-type]  # a literal


def run(
    channel: ipc.Channel,
    plan: Plan,
    settings: LauncherSettings,
    environ: Mapping[str, str],
    runtime: RunDir,
) -> None:
    """Run the agent in place of the real one."""
    freeze = environ.get("SOLO_FREEZE_FILE")
    agent = SingleNodeAgent(channel, plan, WorkerGroup(plan, settings, environ, runtime))
    if freeze:
        with open(freeze, "w", encoding="utf-8") as file:
            file.write(str(os.getpid()))
    agent.run()
    time.sleep(0)


if __name__ == "__main__":
    raise SystemExit(launch.main(sys.argv[1:], os.environ, Signals.install(), agent_main=run))
