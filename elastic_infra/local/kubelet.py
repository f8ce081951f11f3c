"""Pods as processes: starts, signals and reaps them, without decisions."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import os
import shutil
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from elastic_infra.config.mount_paths import SHARED_MEMORY
from elastic_infra.launcher.processes import become_subreaper
from elastic_infra.local import cgroups, cleanup
from elastic_infra.local.container import Place, Program, program
from elastic_infra.local.job import LocalJob, container, fields, memory_bytes
from elastic_infra.local.pod_environment import PodEnvironment, overrides, store_argv
from elastic_infra.local.ports import LOOPBACK
from elastic_infra.local.state import STORE
from elastic_infra.local.volumes import Folders, Volume, mounts, volumes
from elastic_infra.local.workspace import Workspace

_HERE: Final = Path(__file__).parent
_HANDLED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE)


@dataclasses.dataclass(frozen=True)
class Ended:
    """A pod whose first process has ended."""

    name: str
    code: int
    signal: int | None


class Kubelet:
    """Runs the pods of one job."""

    def __init__(self, job: LocalJob, workspace: Workspace, environment: PodEnvironment) -> None:
        self._job = job
        self._workspace = workspace
        self._environment = environment
        self._pods: dict[int, str] = {}
        self._guard: int | None = None

    def open(self) -> None:
        """Adopt every orphan, and start a guard that cleans up if this process is killed.

        Raises:
            OSError: no process can be started.
        """
        become_subreaper()
        reader, self._guard = os.pipe2(os.O_CLOEXEC)
        groups = self._environment.cgroups.parent
        patterns = [str(self._workspace.memory), str(self._workspace.scratch)]
        patterns += [] if groups is None else [f"{groups}/{self._group('*')}"]
        os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", str(_HERE / "cleanup.py"), self._environment.run, *patterns],
            {},
            file_actions=[(os.POSIX_SPAWN_DUP2, reader, 0)],
            setsid=True,
        )
        os.close(reader)

    def close(self) -> None:
        """Kill the remaining processes and remove the run's scratch folders."""
        cleanup.kill(f"{self._environment.run}:")
        self.reap()
        if self._environment.cgroups.parent is not None:
            cleanup.remove([f"{self._environment.cgroups.parent}/{self._group('*')}"])
        self._workspace.remove_scratch()
        if self._guard is not None:
            os.close(self._guard)
            self._guard = None

    def start(self, name: str, *, is_new: bool) -> int:
        """Start a pod's container; returns the process id.

        Raises:
            OSError: a folder cannot be written or the process cannot be started.
        """
        template = self._template(name)
        known = volumes(template["spec"], self._folders(name))
        for volume in known.values():
            _prepare(volume, is_new=is_new)
        paths = mounts(container(template), known)
        shm = paths.pop(SHARED_MEMORY, "") if self._environment.owns_shared_memory else ""
        self._termination_log(name).write_bytes(b"")
        pid = self._spawn(name, self._program(name, template, paths), self._order(name, template, shm))
        self._pods[pid] = name
        return pid

    def terminate(self, name: str) -> None:
        """Send SIGTERM to a pod's first process."""
        for pid, pod in self._pods.items():
            if pod == name:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)

    def kill(self, name: str) -> None:
        """Send SIGKILL to every process of a pod."""
        cleanup.kill(self._mark(name))

    def signal_worker(self, name: str, pid: int | None, number: signal.Signals) -> bool:
        """Send a signal to a worker, if the process still belongs to the pod; the pod's launcher can read of it."""
        if pid is None or pid not in cleanup.marked(self._mark(name)):
            return False
        with self._fault_record(name).open("a") as record:
            record.write(f"{pid}\n")
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            return True
        return False

    def reap(self) -> tuple[Ended, ...]:
        """Pods that have ended without a process left; orphans are reaped too."""
        ended = []
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = found
                if pid in self._pods:
                    ended.append(self._ended(self._pods.pop(pid), os.waitstatus_to_exitcode(status)))
        return tuple(ended)

    def root_cause(self, name: str) -> str:
        """The reason of failure that a pod's launcher left; empty where it left none."""
        with contextlib.suppress(OSError):
            return self._termination_log(name).read_text(encoding="utf-8", errors="replace").strip()
        return ""

    def _ended(self, name: str, code: int) -> Ended:
        self.kill(name)
        return Ended(name, code if code >= 0 else 128 - code, -code if code < 0 else None)

    def _template(self, name: str) -> Mapping[str, Any]:
        return self._job.store if name == STORE and self._job.store is not None else self._job.node

    def _folders(self, name: str) -> Folders:
        work = self._workspace
        return Folders(
            work.claims, work.pod(name), work.memory / name, self._environment.volumes, self._job.config_maps
        )

    def _termination_log(self, name: str) -> Path:
        return self._workspace.logs / f"{name}.reason"

    def _fault_record(self, name: str) -> Path:
        return self._workspace.logs / f"{name}.faults"

    def _program(self, name: str, template: Mapping[str, Any], paths: Mapping[str, str]) -> Program:
        tmp = self._workspace.scratch / name
        tmp.mkdir(exist_ok=True)
        own = {
            cleanup.MARK: self._mark(name),
            "TMPDIR": str(tmp),
            "ELASTIC_INFRA_EVENTS": str(self._workspace.events / f"{name}.jsonl"),
            "ELASTIC_INFRA_TERMINATION_LOG": str(self._termination_log(name)),
            "ELASTIC_INFRA_FAULT_RECORD": str(self._fault_record(name)),
        }
        place = Place(
            name=name,
            fields=fields(self._job, template, name, LOOPBACK),
            folders=paths,
            home=str(self._environment.home),
            python=sys.executable,
            machine=self._environment.machine,
            values=self._environment.values if name != STORE else {},
            overrides={**overrides(self._job, name, self._environment), **own},
        )
        if name != STORE:
            return program(container(template), self._job.operator, place)
        found = program(container(template), {}, place)
        return dataclasses.replace(found, argv=store_argv(found.argv, self._job, self._environment))

    def _order(self, name: str, template: Mapping[str, Any], shm: str) -> dict[str, Any]:
        memory = memory_bytes(template)
        group = cgroups.make(self._environment.cgroups, self._group(name), memory) if memory else None
        return {
            "parent": os.getpid(),
            "join": [] if group is None else [str(group / "cgroup.procs")],
            "data_bytes": memory if group is None else None,
            "shm": shm,
        }

    def _spawn(self, name: str, found: Program, order: Mapping[str, Any]) -> int:
        text = json.dumps({**order, "folder": found.folder, "argv": found.argv})
        log = str(self._workspace.logs / f"{name}.log")
        return os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", str(_HERE / "pod_init.py"), text],
            dict(found.environ),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
            setsigdef=_HANDLED,
        )

    def _mark(self, name: str) -> str:
        return f"{self._environment.run}:{name}/"

    def _group(self, name: str) -> str:
        return f"elastic-infra-{self._environment.run}-{name}"


def _prepare(volume: Volume, *, is_new: bool) -> None:
    """Make the folder of a volume; a new pod's scratch volumes are empty."""
    if volume.is_scratch and is_new:
        shutil.rmtree(volume.folder, ignore_errors=True)
    volume.folder.mkdir(parents=True, exist_ok=True)
    for name, content in volume.files.items():
        (volume.folder / name).write_bytes(base64.b64decode(content))
