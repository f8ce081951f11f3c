"""Runs one soak in place: strikes the faults one by one, starts successors of killed nodes, and ends the job."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.launcher.launched import kill
from tests.launcher.loopback import Job, kill_tree, tree
from tests.launcher.soak.lines import Lines
from tests.launcher.soak.verdict import Injection
from tests.launcher.soak_in_place import plan
from tests.launcher.soak_in_place.holdings import holdings

SCRIPT: Final = Path(__file__).with_name("train.py")
CONF: Final = ("last_call_timeout=1", "join_timeout=300")
PATIENCE_SECONDS: Final = 180.0
"""For states that must come; they take seconds, and machines that run tests are slow at times."""
POINT_SECONDS: Final = 30.0
"""A victim that has not come to its point by then has been moved or replaced meanwhile, and another one is chosen."""
MAX_RESTARTS: Final = 3
"""The default: every restart must be earned by progress."""
LAST_STEPS: Final = 60
"""Steps after the last fault, so many that all workers know the last one before they reach it."""
RECENT: Final = 10
"""Lines of each worker, at most, in which the present members are looked for."""


class SoakError(Exception):
    """The job did not reach the expected state; the message has its state."""


class Soak:
    """One job under faults.

    Args:
        folder: of the job's files.
        faults: strike one by one; without one the job is left alone.
        nodes: of the job.
        workers: of each node.
        say: told of each fault.
        sharded: whether the model is built anew and sharded in each group.
        fixed: whether training waits until all nodes are there.
        steps: that the job makes at least.
    """

    def __init__(
        self,
        folder: Path,
        faults: Sequence[plan.Fault],
        nodes: int,
        workers: int,
        say: Callable[[str], None],
        *,
        sharded: bool = False,
        fixed: bool = False,
        steps: int = 0,
    ) -> None:
        self._folder = folder
        self._nodes = nodes
        self._world = nodes * workers
        self._faults = faults
        self._say = say
        options = ("--nproc-per-node", str(workers), "--max-restarts", str(MAX_RESTARTS))
        self._steps = steps
        modes = [name for name, is_on in (("sharded", sharded), ("fixed", fixed)) if is_on]
        least = nodes if fixed else 1
        self._job = Job(folder, f"{least}:{nodes}", options, (str(SCRIPT), str(folder), *modes))
        self._back: list[tuple[float, str]] = []
        """When the successors of killed nodes start, and their names."""
        self._names: dict[int, str] = {}
        """Of each launcher, by its process."""
        self._failed: tuple[subprocess.Popen[bytes], float] | None = None
        """The node whose worker was the last to be killed, and when."""
        self._furthest = 0
        """The newest step when the last fault struck."""
        self._since: dict[int, float] = {}
        """When each process first wrote to the journal."""
        self.journal = Lines(folder / "journal")
        self.injections: list[Injection] = []
        self.struck: dict[int, float] = {}
        """When faults killed each process. A later one may have its pid, since thousands come and go."""
        self.unasked: list[str] = []
        """Launchers that ended though no fault struck them."""
        self.launchers: list[dict[str, Any]] = []
        """What the launchers' processes held before each fault that struck no change."""
        self.ends: list[int] = []
        """Exit codes of the launchers that saw the end of the job."""

    def run(self) -> None:
        """From the first node to the end of the job.

        Raises:
            SoakError: training did not recover, or a launcher ended by itself.
        """
        try:
            self._job.start_store()
            for index in range(self._nodes):
                self._start_node(f"node-{index}")
            self._until(self._is_whole, "the first group")
            for fault in self._faults:
                self._until(partial(self._is_due, fault), f"{fault} to be due")
                if fault.after is None:
                    self._read_launchers()
                self._until(partial(self._strike, fault), f"something for {fault} to strike")
            self._until(self._is_whole, "recovery from the last fault")
            self._finish()
        finally:
            self._job.end()

    def _finish(self) -> None:
        (self._folder / "finish.new").write_text(str(max(self._newest_step() + LAST_STEPS, self._steps)))
        (self._folder / "finish.new").rename(self._folder / "finish")
        living = self._living()
        self._until(lambda: not self._living(), "the end of all nodes", finishing=True)
        self.ends = [node.returncode for node in living]

    def _until(self, condition: Callable[[], bool], what: str, *, finishing: bool = False) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            self._tick(finishing=finishing)
            if condition():
                return
            if time.monotonic() > deadline:
                message = f"waited {PATIENCE_SECONDS:g} s for {what}; {self._where()}"
                raise SoakError(message)
            time.sleep(0.02)

    def _tick(self, *, finishing: bool) -> None:
        read = len(self.journal.all)
        self.journal.read()
        for line in self.journal.all[read:]:
            if self._since.get(line["pid"], 0) <= self.struck.get(line["pid"], 0) < line["time"]:
                self._since[line["pid"]] = line["time"]
        for successor in [each for each in self._back if each[0] <= time.monotonic()]:
            self._back.remove(successor)
            self._start_node(successor[1])
        if finishing:
            return
        for node in [node for node in self._job.nodes if node.poll() is not None and node.pid not in self.struck]:
            self.struck[node.pid] = time.monotonic()
            self.unasked.append(f"a launcher ended with {node.returncode}; {self._where()}")
            self._back.append((time.monotonic() + 1, self._names[node.pid]))

    def _start_node(self, name: str) -> None:
        """Start a node; a successor has the name of the one before, as a pod that is made again has."""
        self._job.environ["ELASTIC_INFRA_NODE_NAME"] = name
        self._names[self._job.start_node(*CONF).pid] = name

    def _is_due(self, fault: plan.Fault) -> bool:
        if fault.after is not None:
            return time.monotonic() >= self.injections[-1].at + fault.after
        if fault.eldest or fault.whole:
            return self._is_whole() and self._newest_step() >= self._furthest + fault.steps
        return self._newest_step() >= self._furthest + fault.steps

    def _is_whole(self) -> bool:
        """Whether all nodes are there and each worker has made steps with the others since the last fault."""
        mine = [line for line in self._recent() if line["step"] > self._furthest + 1]
        members = {line["pid"] for line in mine if line["world"] == self._world}
        return len(self._living()) == self._nodes and len(members & set(self._members())) == self._world

    def _read_launchers(self) -> None:
        """Note what each process of a node holds that has never trained: supervisor, agent and fork server."""
        world = self._recent()[-1]["world"]
        for pid in [pid for node in self._living() for pid in tree(node.pid) if pid not in self._since]:
            with contextlib.suppress(OSError):
                self.launchers.append({"event": "launcher", "pid": pid, "world": world, **holdings(pid)})

    def _strike(self, fault: plan.Fault) -> bool:
        """Let a fault happen; False where it has no victim right now."""
        strike = self._kill_worker if fault.kind == "kill_worker" else self._kill_node
        victim = strike(fault)
        if not victim:
            return False
        self._tick(finishing=False)
        self._furthest = max(self._furthest, self._newest_step())
        kind = f"{fault.kind} {fault.point}"
        self.injections.append(Injection(fault.number, kind, victim, time.monotonic(), fault.after is not None))
        self._say(f"#{fault.number}{'+' if fault.after is not None else ''} {kind} {victim} (step {self._furthest})")
        return True

    def _kill_worker(self, fault: plan.Fault) -> str:
        members = self._members()
        if len(members) < 2:
            return ""
        candidates = members[:1] if fault.eldest else members[1:]
        spared = self._would_be_left_out()
        candidates = [pid for pid in candidates if pid not in spared]
        if not candidates:
            return ""
        pid = candidates[int(fault.pick * len(candidates))]
        node = next((node for node in self._living() if pid in tree(node.pid)), None)
        if fault.point == "any":
            kill([pid])
        elif not self._ordered(pid, fault.point, "kill"):
            return ""
        self.struck[pid] = time.monotonic()
        self._failed = (node, time.monotonic()) if node is not None else None
        return f"process {pid}"

    def _would_be_left_out(self) -> set[int]:
        """The processes of a node that has made no step since its worker was killed: with two it is left out."""
        if self._failed is None:
            return set()
        node, struck = self._failed
        processes = set(tree(node.pid))
        has_stepped = any(line["pid"] in processes and line["time"] > struck for line in self._recent())
        return set() if has_stepped else processes

    def _kill_node(self, fault: plan.Fault) -> str:
        members = self._members()
        nodes = [(node, [pid for pid in members if pid in tree(node.pid)]) for node in self._living()]
        spared = [(node, pids) for node, pids in nodes if pids and (members[0] in pids) == fault.eldest]
        if not spared or sum(bool(pids) for _, pids in nodes) < 2:
            return ""
        node, pids = spared[int(fault.pick * len(spared))]
        if fault.point != "any" and not self._ordered(pids[int(fault.pick * len(pids))], fault.point, "wait"):
            return ""
        self._lose(node)
        self._back.append((time.monotonic() + fault.away, self._names[node.pid]))
        return f"node {node.pid}"

    def _lose(self, node: subprocess.Popen[bytes]) -> None:
        processes = tree(node.pid)
        kill_tree(node)
        self.struck.update(dict.fromkeys(processes, time.monotonic()))

    def _ordered(self, pid: int, point: str, action: str) -> bool:
        """Whether the victim has come to the point: it is dead there, or waits for the end of its node."""
        order, there = (self._folder / f"{name}-{pid}" for name in ("order", "there"))
        there.unlink(missing_ok=True)  # of an earlier process with this pid
        draft = self._folder / f"draft-{pid}"
        draft.write_text(f"{point} {action}")
        draft.rename(order)
        deadline = time.monotonic() + POINT_SECONDS
        while time.monotonic() < deadline:
            self._tick(finishing=False)
            lives = is_alive(pid)  # once: a victim that dies between two looks would have a second one beside it
            if there.exists() or not lives:
                return there.exists() or action == "kill"
            time.sleep(0.005)
        order.unlink(missing_ok=True)
        return False

    def _members(self) -> list[int]:
        """The living workers of the newest group, the one that has lived longest first."""
        recent = self._recent()
        newest = max((line["generation"] for line in recent), default=0)
        mine = [
            line for line in recent if line["generation"] == newest and line["time"] > self.struck.get(line["pid"], 0)
        ]
        pids = {line["pid"] for line in mine if is_alive(line["pid"])}
        return sorted(pids, key=lambda pid: self._since[pid])

    def _recent(self) -> list[dict[str, Any]]:
        return self.journal.last("step", RECENT * self._world)

    def _newest_step(self) -> int:
        return max((line["step"] for line in self._recent()), default=0)

    def _living(self) -> list[subprocess.Popen[bytes]]:
        return [node for node in self._job.nodes if node.poll() is None]

    def _where(self) -> str:
        last = self.journal.all[-3:]
        return f"{len(self._living())} nodes live; the journal ends with {last}; logs in {self._folder}"


def is_alive(pid: int) -> bool:
    """Whether a process runs, and is no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in {"Z", "X"}
