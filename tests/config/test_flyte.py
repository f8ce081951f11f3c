"""A Flyte task's config gives the PyTorchJob that Flyte would make, less what we do better on purpose."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from elastic_infra import JobConfig
from elastic_infra.config import ConfigError
from tests import jobs

GOLDEN = Path(__file__).parent / "flyte"
REST = {"image": jobs.IMAGE, "script": "train.py"}

Json = dict[str, Any]


@pytest.fixture(scope="module")
def plugin() -> Any:
    """The real plugin, from PyPI."""
    return pytest.importorskip("flytekitplugins.kfpytorch")


def _two_at_most(plugin: Any) -> tuple[Any, Json]:
    resources = {"cpu": "1000m", "memory": "1Gi", "gpu": 4}
    return plugin.Elastic(nnodes="1:2", nproc_per_node=4), {"resources": resources, "env": {"Env_Var": "Env_Val"}}


def _fixed_with_run_policy(plugin: Any) -> tuple[Any, Json]:
    policy = plugin.RunPolicy(
        clean_pod_policy=plugin.CleanPodPolicy.ALL,
        ttl_seconds_after_finished=60,
        active_deadline_seconds=3600,
        backoff_limit=2,
    )
    task = plugin.Elastic(nnodes=4, nproc_per_node=8, max_restarts=3, run_policy=policy)
    return task, {"resources": {"gpu": 8}}


def _empty_run_policy(plugin: Any) -> tuple[Any, Json]:
    return plugin.Elastic(nnodes="2", increase_shared_mem=False, run_policy=plugin.RunPolicy()), {}


CASES = {
    "two_at_most": _two_at_most,
    "fixed_with_run_policy": _fixed_with_run_policy,
    "empty_run_policy": _empty_run_policy,
}
every_case = pytest.mark.parametrize("case", sorted(CASES))


@every_case
def test_our_pytorchjob_is_flytes_after_the_named_normalisations(plugin: Any, case: str) -> None:
    """Row by row of the mapping: equal, or normalised by name; nothing of Flyte's is lost."""
    theirs = yaml.safe_load((GOLDEN / f"{case}.yaml").read_text())
    task, rest = CASES[case](plugin)
    ours = jobs.objects(JobConfig.from_flyte(task, {**REST, **rest}))["workload"]

    assert _comparable(ours, keep=theirs) == _comparable(theirs, keep=theirs)


def _comparable(job: Json, keep: Json) -> Json:
    spec = job["spec"]
    (worker,) = spec["pytorchReplicaSpecs"].values()
    return {
        "kind": (job["apiVersion"], job["kind"]),
        "elasticPolicy": _without_our_rendezvous(_with_nproc_per_node(spec)),
        "runPolicy": _what_flyte_gives(spec["runPolicy"], keep["spec"]["runPolicy"]),
        "replicas": (list(spec["pytorchReplicaSpecs"]), worker["replicas"]),
        "evict": worker["template"]["metadata"]["annotations"]["cluster-autoscaler.kubernetes.io/safe-to-evict"],
        "shared memory": _shared_memory(worker["template"]["spec"]),
        "container": _container(worker["template"]["spec"]),
    }


def _with_nproc_per_node(spec: Json) -> Json:
    """Flyte uses the operator's deprecated field; both give the container the same PET_NPROC_PER_NODE."""
    given = spec["nprocPerNode"] if "nprocPerNode" in spec else str(spec["elasticPolicy"]["nProcPerNode"])
    return {**spec["elasticPolicy"], "nProcPerNode": given}


def _without_our_rendezvous(policy: Json) -> Json:
    """Flyte passes budgets and the run id inside the process; ours are in the manifest, with our own store."""
    return {name: value for name, value in policy.items() if name not in {"rdzvConf", "rdzvHost", "rdzvId", "rdzvPort"}}


def _what_flyte_gives(policy: Json, theirs: Json) -> Json:
    """Where Flyte is silent we free GPUs and bound restarts (`cleanPodPolicy: Running`, a backoff limit)."""
    return {name: policy.get(name) for name in theirs}


def _shared_memory(pod: Json) -> Json | None:
    """Flyte's two volumes for it differ in name, and a limit of 0 means none."""
    (container,) = pod["containers"]
    names = [mount["name"] for mount in container.get("volumeMounts", []) if mount["mountPath"] == "/dev/shm"]
    volumes = [volume["emptyDir"] for volume in pod.get("volumes", []) if volume["name"] in names]
    return next(({k: v for k, v in volume.items() if (k, v) != ("sizeLimit", "0")} for volume in volumes), None)


def _container(pod: Json) -> Json:
    """Command and security are each side's own; of the environment the user's variables count."""
    (container,) = pod["containers"]
    user = [entry for entry in container.get("env", []) if entry["name"] == "Env_Var"]
    return {name: container.get(name) for name in ("name", "image", "resources")} | {"env": user}


@every_case
def test_our_elastic_policy_is_what_the_plugin_serializes(plugin: Any, case: str) -> None:
    """The message that the real plugin sends to Flyte's backend, field by field."""
    from flytekitplugins.kfpytorch.task import PytorchElasticFunctionTask

    task, rest = CASES[case](plugin)
    ours = jobs.objects(JobConfig.from_flyte(task, {**REST, **rest}))["workload"]["spec"]
    task.increase_shared_mem = False  # the plugin warns that it is deprecated; it is not part of this message
    sent = PytorchElasticFunctionTask(task, _train).get_custom(None)

    assert sent["workerReplicas"]["replicas"] == ours["pytorchReplicaSpecs"]["Worker"]["replicas"]
    assert sent["elasticConfig"] == {
        "rdzvBackend": ours["elasticPolicy"]["rdzvBackend"],
        "minReplicas": ours["elasticPolicy"]["minReplicas"],
        "maxReplicas": ours["elasticPolicy"]["maxReplicas"],
        "nprocPerNode": int(ours["nprocPerNode"]),
        **_unless_zero("maxRestarts", ours["elasticPolicy"]["maxRestarts"]),
    }


def _unless_zero(name: str, value: int) -> Json:
    return {name: value} if value else {}


def _train() -> None:
    """A task needs a function."""


def test_one_node_is_a_single_pod_as_in_flyte(plugin: Any) -> None:
    """Flyte's plain pod is our batch/v1 Job, which is retried when its cluster node is lost."""
    policy = plugin.RunPolicy(clean_pod_policy=plugin.CleanPodPolicy.ALL, backoff_limit=0)
    config = JobConfig.from_flyte(plugin.Elastic(run_policy=policy), REST)

    assert jobs.objects(config)["workload"]["kind"] == "Job"
    assert jobs.objects(config)["workload"]["spec"]["backoffLimit"] == 0


def test_what_flyte_sets_in_the_process_is_in_our_environment(plugin: Any) -> None:
    """Monitor interval, start method and budgets reach the launcher through the manifest."""
    task = plugin.Elastic(nnodes=2, start_method="fork", rdzv_configs={"timeout": 60, "read_timeout": 60})
    config = JobConfig.from_flyte(task, REST)
    environment = jobs.environment(config)
    conf = jobs.objects(config)["workload"]["spec"]["elasticPolicy"]["rdzvConf"]

    assert environment["PET_MONITOR_INTERVAL"] == "5"
    assert environment["PET_START_METHOD"] == "fork"
    assert {"key": "timeout", "value": "60"} in conf
    assert "read_timeout" not in {entry["key"] for entry in conf}


@pytest.mark.parametrize(("policy", "name"), [("NONE", "None"), ("ALL", "All"), ("RUNNING", "Running")])
def test_every_clean_pod_policy_is_its_own(plugin: Any, policy: str, name: str) -> None:
    """The plugin's enum members compare equal to each other, so they go by name."""
    task = plugin.Elastic(nnodes=2, run_policy=plugin.RunPolicy(clean_pod_policy=plugin.CleanPodPolicy[policy]))

    assert JobConfig.from_flyte(task, REST).run_policy.clean_pod_policy == name


def test_what_is_given_beside_the_task_wins(plugin: Any) -> None:
    """Part by part, so that one field of a part does not cost the others."""
    config = JobConfig.from_flyte(
        plugin.Elastic(nnodes="2:4", nproc_per_node=2, max_restarts=1),
        {**REST, "elastic": {"max_restarts": 7, "initial_nodes": 3}, "shared_memory": {"size": "1Gi"}},
    )

    assert (config.elastic.max_restarts, config.elastic.initial_nodes, config.elastic.nnodes) == (7, 3, "2:4")
    assert config.shared_memory.size == "1Gi"


def test_another_task_config_is_refused(plugin: Any) -> None:
    """A Master and Workers have no elastic counterpart to guess."""
    with pytest.raises(ConfigError, match=r"write elastic\.nnodes yourself"):
        JobConfig.from_flyte(plugin.PyTorch(num_workers=2), REST)


def test_an_unknown_budget_is_refused() -> None:
    """It would be lost silently."""
    task = SimpleNamespace(
        nnodes=2,
        nproc_per_node=1,
        start_method="spawn",
        monitor_interval=5,
        max_restarts=0,
        rdzv_configs={"keep_alive_interval": 5},
        increase_shared_mem=True,
        run_policy=None,
    )

    with pytest.raises(ConfigError, match=r"elastic\.rdzv_configs\.keep_alive_interval: is not a known key"):
        JobConfig.from_flyte(task, REST)
