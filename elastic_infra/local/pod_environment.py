"""The differences of a pod's environment on this machine from a cluster: ports, network, devices, threads. Pure."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from elastic_infra.launcher.settings import env_name
from elastic_infra.local.cgroups import Cgroups
from elastic_infra.local.job import LocalJob, container
from elastic_infra.local.ports import LOOPBACK
from elastic_infra.local.state import STORE, node

_DEVICES: Final = {"nvidia": "CUDA_VISIBLE_DEVICES", "amd": "HIP_VISIBLE_DEVICES", "intel": "ZE_AFFINITY_MASK"}


@dataclasses.dataclass(frozen=True)
class PodEnvironment:
    """The parts of this machine that one run uses.

    Attributes:
        run: a unique name for the run.
        home: the folder that stands for the image's working dir: that of the job file.
        python: the interpreter of the pods.
        machine: the environment that stands for the image's.
        values: variables given by the user.
        volumes: folders given by the user.
        store_port: port of the rendezvous store.
        store_token: the store's token, made for this run.
        status_ports: ports of the nodes' status pages.
        cpus: processors of this machine.
        cgroups: how memory is limited.
        owns_shared_memory: whether each node can have its own /dev/shm.
    """

    run: str
    home: Path
    python: str
    machine: Mapping[str, str]
    values: Mapping[str, str]
    volumes: Mapping[str, Path]
    store_port: int
    store_token: str = dataclasses.field(repr=False)
    status_ports: tuple[int, ...]
    cpus: int
    cgroups: Cgroups
    owns_shared_memory: bool


def overrides(job: LocalJob, pod: str, environment: PodEnvironment) -> dict[str, str]:
    """Variables that a pod needs to run here; they override the manifest's and the operator's."""
    path = os.pathsep.join(filter(None, (str(Path(environment.python).parent), environment.machine.get("PATH", ""))))
    if pod == STORE:
        return {"PATH": path, env_name("store_token"): environment.store_token}
    index = int(pod.removeprefix("node-"))
    return {
        "PATH": path,
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "lo",
        **_threads(job, environment),
        **_rendezvous(job, pod, environment),
        **({env_name("metrics_port"): str(environment.status_ports[index])} if job.metrics_port else {}),
        **_devices(job, index),
        **_identity(job, pod, index),
    }


def _identity(job: LocalJob, pod: str, index: int) -> dict[str, str]:
    """What the Job controller tells a pod of an Indexed Job, and the name that this run has for the node."""
    return {"JOB_COMPLETION_INDEX": str(index), env_name("node_name"): pod} if job.is_indexed else {}


def _threads(job: LocalJob, environment: PodEnvironment) -> dict[str, str]:
    """Threads for each worker: equal for any number of nodes, since sums of floats depend on that number."""
    variables = job.node["spec"]["containers"][0].get("env", ())
    given = {variable["name"] for variable in variables} | environment.values.keys()
    share = environment.cpus // (job.shape.max_nodes * job.shape.workers)
    return {} if "OMP_NUM_THREADS" in given else {"OMP_NUM_THREADS": str(max(1, share))}


def _rendezvous(job: LocalJob, pod: str, environment: PodEnvironment) -> dict[str, str]:
    """The store's address, and whether this node serves it: here all nodes would take the address for their own."""
    if job.store is None and not job.store_on_node_0:
        return {}
    found = {
        "PET_RDZV_ENDPOINT": f"{LOOPBACK}:{environment.store_port}",
        env_name("store_token"): environment.store_token,
    }
    if job.store_on_node_0:
        conf = {**_plain_variables(job), **job.operator}.get("PET_RDZV_CONF", "")
        host = f"is_host={str(pod == node(0)).lower()}"
        found["PET_RDZV_CONF"] = ",".join(filter(None, (conf, host)))
    return found


def _plain_variables(job: LocalJob) -> dict[str, str]:
    return {each["name"]: each["value"] for each in container(job.node).get("env", ()) if "value" in each}


def _devices(job: LocalJob, index: int) -> dict[str, str]:
    """The accelerators of this node alone."""
    if not job.gpus:
        return {}
    mine = range(index * job.gpus, (index + 1) * job.gpus)
    return {_DEVICES[job.gpu_vendor]: ",".join(map(str, mine))}


def store_argv(argv: tuple[str, ...], job: LocalJob, environment: PodEnvironment) -> tuple[str, ...]:
    """The store's command with a free port, on loopback, so that other machines cannot reach it."""
    port = str(job.rendezvous_port)
    return (*(str(environment.store_port) if word == port else word for word in argv), "--host", LOOPBACK)
