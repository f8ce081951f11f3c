"""Runs one soak: injects the planned faults one by one, lets the job recover in between, and ends it.

A fault is due once training has recovered from all before it: every wanted node is there, the world has its full size
and is past every step made so far. A paired fault is due a moment after the fault before it, in any state.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from elastic_infra.launcher.protocol.limits import Limits
from tests.launcher.soak import network, nodes, plan, process_inventory, verdict
from tests.launcher.soak.lines import Lines

RECOVERY_SECONDS: Final = 300.0
"""Recovery takes seconds; machines that run tests are slow at times."""
STEPS: Final = 3
WARM_SECONDS: Final = 8.0
"""How long training that has recovered goes on for the sake of fork server: most faults of a job find them ready."""
FOR_GOOD: Final = {0, 1, 2, 93}
"""Exit codes after which a kubelet would not bring the node back: none may come before the job is told to finish."""


class SoakError(Exception):
    """The job did not reach the expected state; the message has its state."""


class Soak:
    """One job under faults."""

    def __init__(self, folder: Path, faults: Sequence[plan.Fault], workers: int, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._faults = faults
        self._workers = workers
        self._network = network.Network()
        self._nodes = nodes.Nodes(folder, self._network, most=plan.MOST_NODES, workers=workers, say=self._say)
        self._print = say
        self._heals: list[tuple[float, str, Callable[[], None]]] = []
        self._began = time.monotonic()
        self._quiet_since = self._began
        """The last fault or its end."""
        self._furthest = 0
        """The highest step made when it came."""
        self._recovered_at: float | None = None
        self._generation = 0
        """The generation that must be over before training counts as recovered."""
        self.journal = Lines(folder / "journal")
        self.events = Lines(folder / "events")
        self.injections: list[verdict.Injection] = []

    @property
    def exits(self) -> list[tuple[str, int]]:
        """Node and exit code of every launcher."""
        return self._nodes.ends

    @property
    def left_behind(self) -> list[str]:
        """Orphans and zombies of launchers that ended."""
        return self._nodes.left_behind

    @property
    def unasked(self) -> list[str]:
        """Launchers that gave up though no fault was to end them."""
        return self._nodes.unasked

    def run(self) -> None:
        """From the first node to the end of the job.

        Raises:
            SoakError: training did not recover, or a launcher ended for good.
        """
        (self._folder / "alive").mkdir(parents=True)
        nodes.adopt_orphans()
        try:
            self._open()
            for fault in self._faults:
                self._until(lambda fault=fault: self._is_due(fault), f"fault {fault.number} to be due")  # type: ignore[misc]
                self._until(lambda fault=fault: self._inject(fault), f"something for {fault.kind} to hit")  # type: ignore[misc]
            self._until(self._is_settled, "recovery from the last fault")
            self._finish()
        finally:
            self._nodes.end()
            self._network.close()

    def _open(self) -> None:
        self._network.open()
        for index in range(plan.MOST_NODES):
            self._network.add(f"node-{index}", index + 2)
        self._nodes.start_store()
        for index in range(plan.FIRST_NODES):
            self._nodes.add(f"node-{index}")

    def _finish(self) -> None:
        self._say("finish")
        (self._folder / "finish").touch()
        self._until(lambda: not self._nodes.nodes, "the end of all nodes", finishing=True)

    def _until(self, condition: Callable[[], bool], what: str, *, finishing: bool = False) -> None:
        deadline = time.monotonic() + RECOVERY_SECONDS
        while True:
            self._tick(finishing=finishing)
            if condition():
                return
            if time.monotonic() > deadline:
                message = f"waited {RECOVERY_SECONDS:g} s for {what}; {self._where()}"
                raise SoakError(message)
            time.sleep(0.05)

    def _tick(self, *, finishing: bool) -> None:
        now = time.monotonic()
        for heal in [heal for heal in self._heals if heal[0] <= now]:
            self._heals.remove(heal)
            self._say(f"   over: {heal[1]}")
            heal[2]()
            self._quiet_since = now
        self._nodes.tick(now)
        ended_for_good = [end for end in self._nodes.ends if end[1] in FOR_GOOD]
        if ended_for_good and not finishing:
            message = f"ended for good: {ended_for_good}; {self._where()}"
            raise SoakError(message)
        self.journal.read()
        self.events.read()

    def _is_due(self, fault: plan.Fault) -> bool:
        if fault.after is not None and self.injections:
            return time.monotonic() >= self.injections[-1].at + fault.after
        return self._is_settled()

    def _is_settled(self) -> bool:
        """Training has recovered, and the next restart will be a warm one unless that takes too long."""
        if not self._has_recovered():
            self._recovered_at = None
            return False
        now = time.monotonic()
        self._recovered_at = now if self._recovered_at is None else self._recovered_at
        return now - self._recovered_at >= WARM_SECONDS or all(self._is_warm(name) for name in self._wanted())

    def _has_recovered(self) -> bool:
        recent = self.journal.last("step", STEPS)
        if self._heals or len(recent) < STEPS:
            return False
        if len(self._nodes.running) != len(self._nodes.nodes) or self._nodes.nodes.keys() != self._wanted():
            return False
        return all(
            line["world"] == len(self._nodes.nodes) * self._workers
            and line["time"] > self._quiet_since
            and line["step"] > self._furthest
            and line["generation"] != self._generation
            for line in recent
        )

    def _is_warm(self, name: str) -> bool:
        """Whether a node's fork server is ready, as it is at nearly any moment of a job."""
        for line in reversed(self.events.all):
            if line["node"] == name and line["event"] in {"fork_server", "launcher_started"}:
                return bool(line.get("ready"))
        return False

    def _wanted(self) -> set[str]:
        return {node.name for node in self._nodes.wanted}

    def _inject(self, fault: plan.Fault) -> bool:
        """Inject a fault; False where it has no target right now."""
        self._generation = 0
        target = self._actions[fault.kind](self, fault)
        if not target:
            return False
        now = time.monotonic()
        steps = self.journal.last("step", 50)
        self._furthest = max([self._furthest, *(line["step"] for line in steps)])
        self._quiet_since = now
        self.injections.append(verdict.Injection(fault.number, fault.kind, target, now, fault.after is not None))
        state = f"world {steps[-1]['world']}, generation {steps[-1]['generation']}, step {self._furthest}"
        lasting = f" for {fault.seconds:g} s" if fault.seconds else ""
        self._say(f"#{fault.number}{'+' if fault.after is not None else ''} {fault.kind} {target}{lasting} ({state})")
        return True

    def _kill_worker(self, fault: plan.Fault) -> str:
        alive = process_inventory.take(self._folder / "alive")
        newest = sorted(
            (worker for worker in alive if worker.group == self._newest_group()), key=lambda each: each.rank
        )
        if not newest:
            return ""
        worker = newest[int(fault.pick * len(newest))]
        self._generation = worker.generation
        os.kill(worker.pid, signal.SIGKILL)
        return f"rank {worker.rank} on {worker.node}"

    def _newest_group(self) -> tuple[int, str] | None:
        return next(((line["generation"], line["meeting"]) for line in self.journal.last("start", 1)), None)

    def _kill_agent(self, fault: plan.Fault) -> str:
        node = self._pick(fault, self._bears_one_more_fault)
        return node.name if node is not None and self._nodes.kill_agent(node) else ""

    def _kill_node(self, fault: plan.Fault) -> str:
        node = self._pick(fault)
        if node is None:
            return ""
        self._nodes.kill(node)
        return node.name

    def _freeze(self, fault: plan.Fault) -> str:
        node = self._pick(fault)
        if node is None:
            return ""
        self._nodes.signal_all(node, signal.SIGSTOP)
        self._heal(fault, node.name, lambda: self._nodes.signal_all(node, signal.SIGCONT))
        return node.name

    def _partition(self, fault: plan.Fault) -> str:
        node = self._pick(fault)
        if node is None:
            return ""
        self._network.drop_store(node.name)
        self._heal(fault, node.name, lambda: self._network.heal_store(node.name))
        return node.name

    def _cut(self, fault: plan.Fault) -> str:
        node = self._pick(fault)
        if node is None:
            return ""
        self._network.cut(node.name)
        self._heal(fault, node.name, lambda: self._network.join(node.name))
        return node.name

    def _restart_store(self, fault: plan.Fault) -> str:
        self._nodes.stop_store()
        self._heal(fault, "store", self._nodes.start_store)
        return "store"

    def _scale_up(self, _: plan.Fault) -> str:
        free = [name for name in (f"node-{index}" for index in range(plan.MOST_NODES)) if name not in self._nodes.nodes]
        if not free:
            return ""
        self._nodes.add(free[0])
        return free[0]

    def _scale_down(self, _: plan.Fault) -> str:
        node = max(self._nodes.wanted, key=lambda node: node.name)
        node.wanted, node.doomed = False, True
        if node.process is not None:
            node.process.terminate()
        return node.name

    def _bears_one_more_fault(self, node: nodes.Node) -> bool:
        """Whether the others will not leave the node out, as they should after that many dead agents."""
        kills = [each.at for each in self.injections if (each.kind, each.target) == ("kill_agent", node.name)]
        recent = [at for at in kills if time.monotonic() - at < Limits.node_faults_window]
        return len(recent) < Limits.node_faults - 1

    def _pick(self, fault: plan.Fault, bears: Callable[[nodes.Node], bool] = lambda _: True) -> nodes.Node | None:
        running = sorted(
            (node for node in self._nodes.running if node.wanted and bears(node)), key=lambda node: node.name
        )
        return running[int(fault.pick * len(running))] if running else None

    def _heal(self, fault: plan.Fault, target: str, heal: Callable[[], None]) -> None:
        self._heals.append((time.monotonic() + fault.seconds, f"{fault.kind} {target}", heal))

    def _where(self) -> str:
        last = self.journal.all[-1:] or "nothing"
        pods = {node.name: (node.process and node.process.pid, node.doomed) for node in self._nodes.nodes.values()}
        return f"nodes {pods}; the journal ends with {last}; logs in {self._folder}"

    def _say(self, line: str) -> None:
        self._print(f"{time.monotonic():.3f} {time.monotonic() - self._began:7.1f} s  {line}")

    _actions: Final[dict[plan.Kind, Callable[[Soak, plan.Fault], str]]] = {
        "kill_worker": _kill_worker,
        "kill_agent": _kill_agent,
        "kill_node": _kill_node,
        "freeze": _freeze,
        "partition": _partition,
        "cut": _cut,
        "restart_store": _restart_store,
        "scale_up": _scale_up,
        "scale_down": _scale_down,
    }
