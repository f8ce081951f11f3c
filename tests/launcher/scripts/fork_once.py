"""Plays the supervisor: has the real fork server load, and fork two workers; prints what it said as JSON."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
import time

from elastic_infra.launcher import ipc, processes
from elastic_infra.launcher.command_line.plan import Entrypoint
from elastic_infra.launcher.run_dir import RunDir
from elastic_infra.launcher.supervisor.fork_server_client import Forked, ForkServer, Load
from elastic_infra.launcher.workers import specs

processes.become_subreaper()
folder, kind, target, *modules = sys.argv[1:]
run_dir = RunDir(folder, folder, sys.executable, 0)
shared = dict(os.environ)
load = Load(shared, Entrypoint(kind, target), tuple(modules), specs.DIFFERING, comes_first=False)  # type: ignore[arg-type]  # a literal
server = ForkServer(run_dir, load, time.monotonic())
server.start()
server.channel.settimeout(None)  # the supervisor reads only what is there
told = server.receive()
assert isinstance(told, ipc.ForkServerState)
codes = {}
if told.ready:
    for rank in (0, 1):
        argv = specs.command_line(Entrypoint(kind, target), sys.executable, run_dir.bootstrap, rank)  # type: ignore[arg-type]
        environ = {**shared, "RANK": str(rank), "ELASTIC_INFRA_MODULES": f"{run_dir.modules}/{rank}"}
        logs = [os.path.join(folder, f"{stream}-{rank}") for stream in ("stdout", "stderr")]
        assert server.request(1, ipc.WorkerSpec(rank, argv, environ, *logs))
        answer = server.receive()
        assert isinstance(answer, Forked)
        assert not isinstance(answer.request, int)
        server.release(answer.request)
        while rank not in codes:
            with contextlib.suppress(ChildProcessError):  # the process between this one and the worker has yet to end
                codes[rank] = os.waitstatus_to_exitcode(os.waitpid(answer.pid, 0)[1])
print(json.dumps({**dataclasses.asdict(told), "codes": list(codes.values())}))
server.close()
