"""What the three workload objects say besides their pods."""

from __future__ import annotations

from typing import Any

import pytest

from elastic_infra import ConfigError
from tests.importing.objects import TORCHRUN, batch_job, imported, noted, pytorch_job

RDZV_CONF = [{"key": "timeout", "value": "7"}, {"key": "read_timeout", "value": "60"}]


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        (
            pytorch_job(runPolicy={"schedulingPolicy": {"minAvailable": 2, "minResources": {"cpu": 1}}}),
            "drops runPolicy.schedulingPolicy.minResources",
        ),
        (pytorch_job(elasticPolicy={"rdzvConf": RDZV_CONF}), "drops read_timeout of elasticPolicy.rdzvConf"),
        (pytorch_job(elasticPolicy={"standalone": True}), "drops elasticPolicy.standalone"),
        (pytorch_job(elasticPolicy={"rdzvId": "x"}), "drops elasticPolicy.rdzvId"),
        (batch_job(podReplacementPolicy="Failed"), "drops spec.podReplacementPolicy"),
        (pytorch_job(replica={"restartPolicy": "Never"}), "changes restartPolicy Never"),
    ],
)
def test_what_has_no_field_is_told(manifest: dict[str, Any], said: str) -> None:
    """The rest of its mapping is read all the same."""
    assert noted(imported(manifest), said)


def test_settings_that_are_read_are_not_told() -> None:
    """Nor is what is off by default."""
    conf = [{"key": "timeout", "value": "7"}]
    found = imported(pytorch_job(elasticPolicy={"maxRestarts": 1, "rdzvConf": conf, "standalone": False}))

    assert not noted(found, "drops read_timeout")
    assert not noted(found, "drops elasticPolicy")


@pytest.mark.parametrize("restart", [None, "OnFailure"])
def test_a_restart_policy_that_is_missing_is_the_operators(restart: str | None) -> None:
    """This package's default is another: a failed script would end the job."""
    found = imported(pytorch_job(replica={"restartPolicy": restart}))

    assert found.job["run_policy"] == {"restart_policy": "OnFailure"}
    assert not noted(found, "changes restartPolicy")


def test_nulls_of_a_pytorch_job_are_no_values() -> None:
    """As to Kubernetes: one replica, and no Master."""
    found = imported(
        pytorch_job(
            replica={"replicas": None}, elasticPolicy={"maxRestarts": None}, runPolicy={"schedulingPolicy": None}
        )
    )
    manifest = pytorch_job()
    manifest["spec"]["pytorchReplicaSpecs"]["Master"] = None

    assert found.job["elastic"]["nnodes"] == "1"
    assert not noted(imported(manifest), "has no Master")


@pytest.mark.parametrize(
    ("manifest", "place"),
    [
        (pytorch_job(replica={"replicas": "two"}), "spec.pytorchReplicaSpecs.Worker.replicas"),
        (batch_job(parallelism="two"), "spec.parallelism"),
        (batch_job(completions=True), "spec.completions"),
        (pytorch_job({"env": ["A=1"]}), "env"),
    ],
)
def test_what_kubernetes_would_refuse_is_refused(manifest: dict[str, Any], place: str) -> None:
    """By the name of the place, and no traceback."""
    with pytest.raises(ConfigError) as error:
        imported(manifest)

    assert [fault.path for fault in error.value.faults] == [place]


def test_a_budget_that_is_refused_is_left_out() -> None:
    """The size of the job is what an import cannot do without."""
    conf = [{"key": "last_call_timeout", "value": "0"}, {"key": "timeout", "value": "7"}]
    found = imported(pytorch_job(elasticPolicy={"rdzvConf": conf, "maxRestarts": -2}))

    assert found.job["elastic"] == {"nnodes": "2", "nproc_per_node": "auto", "rdzv_configs": {"timeout": 7}}
    assert noted(found, "leaves out elastic.rdzv_configs.last_call_timeout")
    assert noted(found, "leaves out elastic.max_restarts")


@pytest.mark.parametrize(
    "manifest",
    [
        pytorch_job(nprocPerNode="many"),
        pytorch_job(replica={"replicas": 0}),
        pytorch_job(elasticPolicy={"minReplicas": 1, "maxReplicas": 1}),
    ],
)
def test_a_size_that_is_refused_refuses_the_import(manifest: dict[str, Any]) -> None:
    """A job of another size is none that somebody asked for."""
    with pytest.raises(ConfigError, match=r"elastic\.(nnodes|nproc_per_node|initial_nodes)"):
        imported(manifest)


ENTRYPOINT = "drops the image's own ENTRYPOINT"


@pytest.mark.parametrize("arguments", [TORCHRUN, ["python", "t.py"], ["bash", "-c", "torchrun t.py"]])
def test_args_that_are_a_command_are_run(arguments: list[str]) -> None:
    """As with an entrypoint that starts what it is given."""
    found = imported(pytorch_job({"command": None, "args": arguments}))

    assert found.job["script"] == "t.py"
    assert noted(found, ENTRYPOINT)
    assert not noted(imported(pytorch_job({"args": ["--x"]})), ENTRYPOINT)


@pytest.mark.parametrize("arguments", [["--backend", "nccl"], ["train.py"], []])
def test_args_of_an_unknown_entrypoint_are_refused(arguments: list[str]) -> None:
    """Only the image tells what they are given to."""
    with pytest.raises(ConfigError, match="what the image runs is not known"):
        imported(pytorch_job({"command": [], "args": arguments}))
