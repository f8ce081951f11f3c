"""What a pod meets here instead of in a cluster."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from elastic_infra.config import JobConfig
from elastic_infra.local.cgroups import Cgroups
from elastic_infra.local.container import Place, program
from elastic_infra.local.job import LocalJob, container, fields, local_job, on_cpu
from elastic_infra.local.pod_environment import PodEnvironment, overrides, store_argv
from elastic_infra.local.start import Prepared
from elastic_infra.local.state import STORE
from elastic_infra.local.summary import opening
from elastic_infra.local.workspace import Workspace

ENVIRONMENT = PodEnvironment(
    run="r",
    home=Path("/job"),
    python="/venv/bin/python",
    machine={"PATH": "/bin"},
    values={},
    volumes={},
    store_port=5000,
    store_token="secret",
    status_ports=(6000, 6001, 6002),
    cpus=12,
    cgroups=Cgroups(),
    owns_shared_memory=False,
)


def job(**settings: Any) -> LocalJob:
    """A job of one to three nodes with these settings."""
    given = {"image": "i", "script": "s.py", "elastic": {"nnodes": "1:3"}, **settings}
    return local_job("toy", JobConfig.from_mapping(given), 2)


def test_dedicated_store() -> None:
    """Every node finds the store on the port that is free; the store listens there and to this machine only."""
    found = overrides(job(), "node-1", ENVIRONMENT)
    assert found["PET_RDZV_ENDPOINT"] == "127.0.0.1:5000"
    assert "PET_RDZV_CONF" not in found
    argv = store_argv(("python3", "-m", "store", "--port", "29400"), job(), ENVIRONMENT)
    assert argv == ("python3", "-m", "store", "--port", "5000", "--host", "127.0.0.1")
    assert overrides(job(), STORE, ENVIRONMENT) == {"PATH": "/venv/bin:/bin", "ELASTIC_INFRA_STORE_TOKEN": "secret"}
    assert found["ELASTIC_INFRA_STORE_TOKEN"] == "secret"
    assert "secret" not in repr(ENVIRONMENT)


def test_store_on_the_first_node() -> None:
    """All nodes have one address here, so each is told whether it serves the store."""
    settings = {"rendezvous": {"host": "worker0"}}
    hosts = [
        overrides(job(**settings), f"node-{index}", ENVIRONMENT)["PET_RDZV_CONF"].split(",")[-1] for index in range(2)
    ]
    assert hosts == ["is_host=true", "is_host=false"]


def test_single_node() -> None:
    """A job of one pod has no store to be told of."""
    single = local_job("toy", JobConfig.from_mapping({"image": "i", "script": "s.py"}), None)
    assert single.rules.workload == "Job"
    assert single.operator == {}
    assert overrides(single, "node-0", ENVIRONMENT).keys() & {"PET_RDZV_ENDPOINT", "ELASTIC_INFRA_STORE_TOKEN"} == set()


@pytest.mark.parametrize("host", ["dedicated", "worker0"])
def test_an_indexed_job(host: str) -> None:
    """Nodes have their index as in a cluster, and the name that this run has for them; the store as any job's."""
    settings = {"target": "job", "rendezvous": {"host": host}}
    indexed, several = job(**settings), job(rendezvous={"host": host})
    found = overrides(indexed, "node-1", ENVIRONMENT)

    assert indexed.rules.workload == "Job"
    assert indexed.rules.permanent == {1, 2, 93}
    assert found["JOB_COMPLETION_INDEX"] == "1"
    assert found["ELASTIC_INFRA_NODE_NAME"] == "node-1"
    assert {name: value for name, value in found.items() if name.startswith("PET_")} == {
        name: value for name, value in overrides(several, "node-1", ENVIRONMENT).items() if name.startswith("PET_")
    }
    place = fields(indexed, indexed.node, "node-1", "127.0.0.1")
    assert place["metadata.labels['batch.kubernetes.io/job-completion-index']"] == "1"


def test_each_node_has_its_own_devices_and_status_port() -> None:
    """Nodes share neither accelerators nor ports."""
    found = overrides(job(resources={"gpu": 2}, launcher={"metrics_port": 8080}), "node-2", ENVIRONMENT)
    assert found["CUDA_VISIBLE_DEVICES"] == "4,5"
    assert found["ELASTIC_INFRA_METRICS_PORT"] == "6002"


def test_threads() -> None:
    """A fair share for the largest number of workers, unless the job says otherwise."""
    assert overrides(job(), "node-0", ENVIRONMENT)["OMP_NUM_THREADS"] == "4"
    assert "OMP_NUM_THREADS" not in overrides(job(env={"OMP_NUM_THREADS": "2"}), "node-0", ENVIRONMENT)
    assert overrides(job(), "node-0", dataclasses.replace(ENVIRONMENT, cpus=1))["OMP_NUM_THREADS"] == "1"


def test_on_the_cpu() -> None:
    """Without GPUs one worker stands for all of a node's, unless their number was given; none may find a GPU."""
    config = JobConfig.from_mapping({"image": "i", "script": "s.py", "resources": {"gpu": 8}})
    assert on_cpu(config).nproc_per_node == 1
    assert on_cpu(config).env["CUDA_VISIBLE_DEVICES"].value == ""
    given = config.model_copy(update={"elastic": config.elastic.model_copy(update={"nproc_per_node": "4"})})
    assert on_cpu(given).nproc_per_node == 4


def test_rules_of_a_job() -> None:
    """Life and end come from the manifests."""
    rules = job(run_policy={"restart_policy": "ExitCode", "backoff_limit": -1}).rules
    assert (rules.workload, rules.restart_policy, rules.backoff_limit) == ("PyTorchJob", "ExitCode", None)
    single = local_job("toy", JobConfig.from_mapping({"image": "i", "script": "s.py"}), None).rules
    assert single.permanent == {1, 2, 93}


def test_shared_launcher() -> None:
    """A ConfigMap of the cluster cannot be mounted here: the job runs with this package's launcher."""
    shared = job(launcher={"config_map": "team-launcher"})
    (own,) = shared.config_maps
    assert shared.node["spec"]["volumes"] == job().node["spec"]["volumes"]
    assert own in str(shared.node["spec"]["volumes"])


OVERLAYS: dict[str, Any] = {
    "initContainers": [{"name": "wait", "image": "i"}, {"name": "ship", "image": "i", "restartPolicy": "Always"}],
    "containers": [
        {"name": "beside", "image": "i"},
        {
            "name": "pytorch",
            "env": [{"name": "TEAM", "value": "vision"}],
            "envFrom": [{"configMapRef": {"name": "defaults"}}, {"prefix": "T_", "secretRef": {"name": "tokens"}}],
        },
    ],
}


@pytest.mark.parametrize("target", ["pytorchjob", "job", "trainjob"])
def test_a_variable_of_an_overlay_reaches_the_pod(target: str) -> None:
    """As those of `env`: the container of the run is the rendered one, overlay included."""
    patched = job(target=target, overlays={"pod": {"spec": OVERLAYS}})
    place = Place("node-0", {}, {}, "/job", "/venv/bin/python", {}, {}, {})

    assert program(container(patched.node), patched.operator, place).environ["TEAM"] == "vision"


def test_what_an_overlay_adds_in_vain_is_told() -> None:
    """One line at the start names what only a cluster runs or reads; without such parts there is none."""

    def told(settings: dict[str, Any]) -> list[str]:
        workspace = Workspace(Path("/w"), Path("/m"), Path("/s"), lock=-1)
        lines = opening(Prepared(job(**settings), (), ENVIRONMENT, workspace), None)
        return [line for line in lines if line.startswith("left out here")]

    assert told({}) == []
    (line,) = told({"overlays": {"pod": {"spec": OVERLAYS}}})
    assert line.removeprefix("left out here: ").split(", ") == [
        "init container wait",
        "sidecar ship",
        "container beside",
        "variables of ConfigMap defaults (give them with --env)",
        "variables of Secret tokens (give them with --env)",
    ]
