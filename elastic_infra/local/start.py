"""From a job file's config to a run: all checks that need this machine, with all errors at once, then the run."""

from __future__ import annotations

import dataclasses
import datetime as dt
import importlib.util
import os
import posixpath
import secrets
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from elastic_infra.config import ConfigError, JobConfig
from elastic_infra.config.errors import Fault
from elastic_infra.local import cgroups, ports, workspace
from elastic_infra.local.chaos import chaos
from elastic_infra.local.container import unresolved
from elastic_infra.local.faults import FaultError, Scale
from elastic_infra.local.job import DEVICE_FILES, LocalJob, container, local_job, on_cpu
from elastic_infra.local.journal import Journal
from elastic_infra.local.kubelet import Kubelet
from elastic_infra.local.plan import Plan, check_plan, read_plan
from elastic_infra.local.pod_environment import PodEnvironment
from elastic_infra.local.runner import Options, Runner, View
from elastic_infra.local.state import Outcome
from elastic_infra.local.volumes import Folders, unknown_volumes
from elastic_infra.manifests.workdir import VOLUME as WORKDIR
from elastic_infra.timeline.files import Reader

_NEEDED: Final = "linux"


@dataclasses.dataclass(frozen=True)
class Request:
    """The user's options on the command line.

    Attributes:
        nodes: number of nodes at first; None for the fewest that the job allows.
        faults: a plan, or the path of one.
        seed: seed of random faults; None for none.
        folder: the work folder; None for a new one.
        cpu: whether to run a job for GPUs without them.
        values: variables for references that only a cluster can resolve.
        volumes: folders for volumes that only a cluster has.
        port_range: range of ports to use; empty for any.
    """

    nodes: int | None = None
    faults: str | None = None
    seed: int | None = None
    folder: Path | None = None
    timeout_seconds: float | None = None
    cpu: bool = False
    values: Mapping[str, str] = dataclasses.field(default_factory=dict)
    volumes: Mapping[str, Path] = dataclasses.field(default_factory=dict)
    port_range: str = ""


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A checked run that can begin."""

    job: LocalJob
    plan: Plan
    pod_environment: PodEnvironment
    workspace: workspace.Workspace


def prepare(name: str, config: JobConfig, home: Path, request: Request, environ: Mapping[str, str]) -> Prepared:
    """Check the job and this machine, then make the work folder.

    Args:
        home: the job file's folder, which stands for the image's working dir.
        environ: this machine's environment, which stands for the image's.

    Raises:
        ConfigError: the job cannot run here; the message has every reason.
    """
    job = local_job(name, on_cpu(config) if request.cpu else config, request.nodes)
    faults = list(_faults(job, config, home, request))
    plan: Plan = ()
    try:
        plan = _plan(job, request)
        faults += _device_faults(job, plan)
    except FaultError as error:
        faults.append(Fault("--faults", str(error)))
    if faults:
        raise ConfigError(faults)
    try:
        pod_environment = _pod_environment(job, home, request, environ)
        stamp = dt.datetime.now(tz=dt.timezone.utc).strftime("%Y%m%d-%H%M%S")
        work = workspace.make(request.folder.absolute() if request.folder else workspace.default_folder(name, stamp))
    except (ports.PortsError, workspace.WorkspaceError) as error:
        raise ConfigError([Fault("", str(error))]) from None
    volumes = {**_code(config, home, work), **pod_environment.volumes}
    return Prepared(job, plan, dataclasses.replace(pod_environment, volumes=volumes), work)


def run(prepared: Prepared, request: Request, view: View, *, reads_faults: bool) -> tuple[Outcome, Runner]:
    """Run a job to its end.

    Raises:
        OSError: a process cannot be started.
    """
    kubelet = Kubelet(prepared.job, prepared.workspace, prepared.pod_environment)
    events = prepared.workspace.events
    runner = Runner(prepared.job, kubelet, Reader([events]), Journal(events), view)
    options = Options(
        plan=prepared.plan,
        origin="plan" if request.seed is None else "chaos",
        timeout_seconds=request.timeout_seconds,
        reads_faults=reads_faults,
    )
    return runner.run(options), runner


def _plan(job: LocalJob, request: Request) -> Plan:
    if request.seed is not None:
        return chaos(request.seed, job.shape)
    plan = read_plan(request.faults) if request.faults else ()
    check_plan(plan, job.shape)
    return plan


def _faults(job: LocalJob, config: JobConfig, home: Path, request: Request) -> Iterator[Fault]:
    shape = job.shape
    if not shape.min_nodes <= shape.nodes <= shape.max_nodes:
        yield Fault("--nodes", f"elastic.nnodes allows {shape.min_nodes} to {shape.max_nodes} nodes.")
    if request.faults and request.seed is not None:
        yield Fault("--chaos", "cannot be given together with --faults: it makes its own plan.")
    if request.timeout_seconds is not None and not request.timeout_seconds > 0:
        yield Fault("--timeout", "must be more than 0 s.")
    if sys.platform != _NEEDED:
        yield Fault("", "Jobs run on Linux only: the launcher uses its process table. Use a container or a VM.")
    yield from _program_faults(config, home)
    yield from unresolved(container(job.node), request.values)
    folders = Folders(Path(), Path(), Path(), request.volumes, job.config_maps)
    yield from unknown_volumes(job.node["spec"], folders)


def _code(config: JobConfig, home: Path, work: workspace.Workspace) -> dict[str, Path]:
    """The folder of local code, used as it is; files that the job file holds itself are written."""
    workdir = config.workdir
    if workdir is None:
        return {}
    if workdir.path is not None:
        return {WORKDIR: (home / workdir.path).resolve()}
    for path, content in (workdir.files or {}).items():
        file = work.folder / WORKDIR / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return {WORKDIR: work.folder / WORKDIR}


def _program_faults(config: JobConfig, home: Path) -> Iterator[Fault]:
    if not config.command and importlib.util.find_spec("torch") is None:
        reason = (
            f"torch is missing in {sys.prefix}, whose Python runs the workers. "
            "Install it there: pip install 'elastic-infra[launcher]'."
        )
        yield Fault("", reason)
    script = config.script
    if script is None or Path(script).is_absolute():
        return
    if config.workdir is not None and config.working_dir is None:
        if posixpath.normpath(script) not in (config.workdir.files or {}):
            yield Fault("script", f"({script}) is not among the files of workdir, from which it starts.")
    elif not (home / script).is_file():
        yield Fault("script", f"{home / script} is missing. The job file's folder stands for the image's working dir.")


def _device_faults(job: LocalJob, plan: Plan) -> Iterator[Fault]:
    if not job.gpus:
        return
    if job.gpu_vendor not in DEVICE_FILES:
        reason = f"accelerators of {job.gpu_vendor} are not shared out among nodes here. Run without them: --cpu."
        yield Fault("resources.gpu", reason)
        return
    nodes = max([job.shape.nodes, *(entry.fault.nodes for entry in plan if isinstance(entry.fault, Scale))])
    there = len(list(Path("/dev").glob(DEVICE_FILES[job.gpu_vendor])))
    if there < nodes * job.gpus:
        reason = (
            f"{nodes} nodes with {job.gpus} {job.gpu_vendor} GPUs each need {nodes * job.gpus}, and this machine has "
            f"{there}. Run with fewer --nodes, or without GPUs: --cpu."
        )
        yield Fault("resources.gpu", reason)


def _pod_environment(job: LocalJob, home: Path, request: Request, environ: Mapping[str, str]) -> PodEnvironment:
    among: Sequence[int] = ports.port_range(request.port_range) if request.port_range else ()
    count = 1 + (job.shape.max_nodes if job.metrics_port else 0)
    store, *status = ports.free_ports(count, among)
    return PodEnvironment(
        run=uuid.uuid4().hex[:12],
        home=home,
        python=sys.executable,
        machine=environ,
        values=request.values,
        volumes={name: folder.absolute() for name, folder in request.volumes.items()},
        store_port=store,
        store_token=secrets.token_hex(32),
        status_ports=tuple(status),
        cpus=len(os.sched_getaffinity(0)),
        cgroups=cgroups.find(),
        owns_shared_memory=cgroups.can_mount(),
    )
