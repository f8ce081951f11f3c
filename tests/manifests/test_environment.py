"""What the launcher needs comes first and sorted; what the user says stays as it is, at the end."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings

from elastic_infra import JobConfig
from elastic_infra.launcher.settings import LauncherSettings
from elastic_infra.manifests.environment import launcher_settings
from tests import jobs, strategies
from tests.strategies import Data

Make = Callable[..., JobConfig]


def test_the_environment_of_a_node_is_complete() -> None:
    """Everything that a node of two to four gets with the defaults."""
    assert jobs.environment(jobs.elastic(autoscaling={"metrics": [{"type": "pods", "name": "q", "target": 1}]})) == {
        "ELASTIC_INFRA_INITIAL_NODES": "2",
        "ELASTIC_INFRA_NODE_NAME": {"fieldRef": {"fieldPath": "metadata.name"}},
        "ELASTIC_INFRA_REPLICA_INDEX": {
            "fieldRef": {"fieldPath": "metadata.labels['training.kubeflow.org/replica-index']"}
        },
        "ELASTIC_INFRA_STARTUP_WAIT_SECONDS": "120",
        "ELASTIC_INFRA_STORE_TOKEN": {"secretKeyRef": {"name": "job-store", "key": "token", "optional": True}},
        "HOME": "/home/elastic",
        "LOGNAME": "elastic",
        "PET_MONITOR_INTERVAL": "3",
        "PET_START_METHOD": "spawn",
        "POD_IP": {"fieldRef": {"fieldPath": "status.podIP"}},
        "PYTHONFAULTHANDLER": "1",
        "PYTHONUNBUFFERED": "1",
        "TORCHINDUCTOR_CACHE_DIR": "/home/elastic/.cache/torchinductor",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "3",
        "TORCH_NCCL_ENABLE_MONITORING": "1",
        "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "300",
        "TRITON_CACHE_DIR": "/home/elastic/.cache/triton",
        "USER": "elastic",
        "XDG_CACHE_HOME": "/home/elastic/.cache",
    }


def test_a_single_pod_has_torchruns_options_itself() -> None:
    """No operator adds them there; and there is no node to wait for and no replica index."""
    environment = jobs.environment(jobs.job(elastic={"nproc_per_node": 2, "max_restarts": 5}))

    assert environment.keys() & {"ELASTIC_INFRA_REPLICA_INDEX", "ELASTIC_INFRA_STARTUP_WAIT_SECONDS"} == set()
    assert {
        name: value for name, value in environment.items() if name.startswith("PET_") and name != "PET_RDZV_ID"
    } == {
        "PET_MAX_RESTARTS": "5",
        "PET_MONITOR_INTERVAL": "3",
        "PET_NPROC_PER_NODE": "2",
        "PET_START_METHOD": "spawn",
    }
    assert environment["PET_RDZV_ID"].startswith("job-")


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("HOME", {}),
        ("PYTHONUNBUFFERED", {}),
        ("OMP_NUM_THREADS", {"elastic": {"nproc_per_node": 2}}),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", {}),
        ("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", {"runtime": {"nccl_heartbeat_timeout_sec": 7}}),
        ("TORCH_NCCL_ENABLE_MONITORING", {"runtime": {"nccl_enable_monitoring": False}}),
    ],
)
def test_what_the_user_sets_is_never_overridden(name: str, fields: dict[str, Any]) -> None:
    """The default is there without the user's variable, and gone with it, an empty one included."""
    assert jobs.environment(jobs.job(**fields))[name] != "user"
    for value in ("user", ""):
        names = [entry["name"] for entry in jobs.container(jobs.job(**fields, env={name: value}))["env"]]
        assert names.count(name) == 1
        assert jobs.environment(jobs.job(**fields, env={name: value}))[name] == value


def test_an_older_name_counts_as_set() -> None:
    """Torch still reads NCCL_ASYNC_ERROR_HANDLING, so it is the user's choice."""
    assert "TORCH_NCCL_ASYNC_ERROR_HANDLING" not in jobs.environment(jobs.job(env={"NCCL_ASYNC_ERROR_HANDLING": "1"}))


@pytest.mark.parametrize(("nproc", "wanted", "threads"), [(1, None, None), (2, None, "1"), (1, 4, "4"), (2, 4, "4")])
def test_threads_of_a_worker(nproc: int, wanted: int | None, threads: str | None) -> None:
    """1 as soon as a node runs more than one worker, as torchrun; the field wins."""
    runtime = {} if wanted is None else {"omp_num_threads": wanted}
    environment = jobs.environment(jobs.job(elastic={"nproc_per_node": nproc}, runtime=runtime))

    assert environment.get("OMP_NUM_THREADS") == threads


def test_adding_a_variable_changes_one_entry() -> None:
    """A preview then shows one line."""
    before = jobs.container(jobs.job(env={"Z": "1", "A": "2"}))["env"]
    after = jobs.container(jobs.job(env={"Z": "1", "A": "2", "M": "3"}))["env"]
    ids = {"PET_RDZV_ID"}  # a changed workload is another run

    assert [entry["name"] for entry in after] == [*(entry["name"] for entry in before), "M"]
    assert [entry for entry in after[:-1] if entry["name"] not in ids] == [e for e in before if e["name"] not in ids]


@settings(max_examples=40)
@given(strategies.job_configs())
def test_the_container_reads_back_what_the_config_says(data: Data) -> None:
    """Both ends of the wire agree: variables in the manifest are the launcher's settings."""
    config = JobConfig.from_mapping(data)
    environment = {name: value for name, value in jobs.environment(config).items() if isinstance(value, str)}
    environment.pop("ELASTIC_INFRA_NODE_NAME", None)  # made of an index that the pod's own fields tell

    read, sent = LauncherSettings.from_env(environment), launcher_settings(config)

    applied = {
        "nccl_async_error_handling",
        "nccl_enable_monitoring",
        "nccl_heartbeat_timeout_seconds",
        "omp_num_threads",
    }
    assert {k: v for k, v in vars(read).items() if k not in applied} == {
        k: v for k, v in vars(sent).items() if k not in applied
    }


@pytest.mark.parametrize(("given", "key"), [({}, "url"), ({"key": "training"}, "training")])
@pytest.mark.parametrize("make", [jobs.job, jobs.elastic, jobs.indexed, jobs.train_job])
def test_a_webhook_is_a_reference_that_holds_no_pod_up(make: Make, given: Data, key: str) -> None:
    """The manifest has the Secret's name and not the URL; without the Secret the job trains and tells nobody."""
    found = jobs.environment(make(launcher={"webhook": {"secret": "hooks", **given}}))

    assert found["ELASTIC_INFRA_WEBHOOK_URL"] == {"secretKeyRef": {"name": "hooks", "key": key, "optional": True}}


def test_the_checkpoint_folder_is_told_to_the_script() -> None:
    """Where it is mounted, so that a script needs no path of its own."""
    config = jobs.job(storage={"checkpoint": {"claim": "c", "mount_path": "/save"}})

    assert jobs.environment(config)["ELASTIC_INFRA_CHECKPOINT_DIR"] == "/save"
    assert json.dumps(jobs.environment(jobs.job())).count("CHECKPOINT_DIR") == 0


def test_numbers_that_the_script_can_use_reach_the_launcher() -> None:
    """Sizes sorted, so that their order in the file changes nothing."""
    environment = jobs.environment(jobs.job(elastic={"nnodes": "2:4", "node_unit": 2, "world_sizes": [4, 2, 4]}))

    assert (environment["ELASTIC_INFRA_NODE_UNIT"], environment["ELASTIC_INFRA_WORLD_SIZES"]) == ("2", "2,4")
