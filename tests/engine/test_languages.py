"""The component for programs in other languages: as a plugin that the engine starts, over the wire."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pulumi
import pytest

from tests.engine.engine import Engine, Stack
from tests.engine.jobs import WORKLOAD
from tests.engine.plugin import TOKEN, VERSION, installed

SCHEMA: Final = Path(__file__).parent / "schema.json"

JOB: Final = {
    "image": "registry.example.com/train:1",
    "script": "train.py",
    "env": {
        "DATASET": {"value": "/data"},
        "HF_TOKEN": {"secret": "hf", "key": "token"},
        **{f"OPTION_{index}": {"value": str(index)} for index in range(8)},
    },
    "elastic": {"nnodes": "2:4", "maxRestarts": 8.0, "rdzvConfigs": {"joinTimeout": 600}},
    "resources": {"cpu": "2", "memory": "4Gi", "gpu": {"count": 2}},
    "sharedMemory": {"size": "1Gi"},
    "storage": {"checkpoint": {"claim": "checkpoints"}},
    "placement": {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}},
}
"""As a program in another language says it: camelCase, no shorthands."""


@pytest.fixture(scope="module")
def plugin(engine: Engine) -> Path:
    """The plugin, where the engine finds it."""
    return installed(engine.home)


def remote(late: Callable[[], dict[str, Any]] = dict, /, **changes: Any) -> Callable[[], None]:
    """A program that asks the plugin for a job, as generated SDKs do."""

    def program() -> None:
        made = pulumi.ComponentResource(
            TOKEN,
            "train",
            {**JOB, "jobName": None, "rendezvousEndpoint": None, "minNodes": None, **changes, **late()},
            pulumi.ResourceOptions(version=VERSION),
            remote=True,
        )
        for output in ("jobName", "rendezvousEndpoint", "minNodes"):
            pulumi.export(output, getattr(made, output))

    return program


def test_the_engine_reads_the_schema(engine: Engine, plugin: Path) -> None:
    """`pulumi package get-schema` gives what is committed, in the engine's own words, and the version."""
    environ = {**os.environ, **engine.environ}
    done = subprocess.run(
        ["pulumi", "package", "get-schema", str(plugin)],
        cwd=engine.home,
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )
    found, committed = json.loads(done.stdout), json.loads(SCHEMA.read_text())
    resource, expected = found["resources"][TOKEN], committed["resources"][TOKEN]

    assert (found["name"], found["version"]) == ("elastic-infra", VERSION)
    assert resource["requiredInputs"] == expected["requiredInputs"]
    assert resource["inputProperties"].keys() == expected["inputProperties"].keys()
    assert resource["properties"].keys() == expected["properties"].keys()
    assert found["types"].keys() == committed["types"].keys()
    assert resource["inputProperties"]["target"]["$ref"] == "#/types/elastic-infra:index:JobTarget"


@pytest.mark.usefixtures("plugin")
def test_another_language_gets_the_same_job(stack: Stack) -> None:
    """Names are translated, floats are counts, outputs come back; a second look changes nothing.

    The wire keeps no order of variables, so there are enough of them to come in another one.
    """
    made = stack.up(remote())
    spec = made.inputs(WORKLOAD)["spec"]
    container = spec["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]

    assert not made.failed, made.text
    assert spec["elasticPolicy"]["maxRestarts"] == 8
    assert {"key": "join_timeout", "value": "600"} in spec["elasticPolicy"]["rdzvConf"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] in {2, "2"}
    assert stack.outputs() == {
        "jobName": "train",
        "minNodes": 2,
        "rendezvousEndpoint": "train-rdzv.default.svc:29400",
    }
    assert stack.preview(remote()).ops() == {}


@pytest.mark.usefixtures("plugin")
def test_another_language_has_secrets(scratch: Stack) -> None:
    """A secret that crosses the wire is masked at its own place."""
    token = lambda: {"env": {"TOKEN": {"value": pulumi.Output.secret("hunter2-secret")}}}  # noqa: E731 - made late
    shown = scratch.preview(remote(token), diff=True)

    assert not shown.failed, shown.text
    assert "hunter2" not in shown.text
    assert shown.inputs("train")["image"] == JOB["image"]
    assert "[secret]" in shown.text
    assert shown.inputs(WORKLOAD)["spec"]["elasticPolicy"]["maxReplicas"] == 4


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"elastic": {"nnodes": "4:2"}}, "elastic.nnodes: the minimum (4)"),
        ({"elastic": {"maxRestarts": 2.5}}, "elastic.max_restarts: must be a whole number."),
    ],
)
def test_another_language_reads_every_fault(scratch: Stack, change: dict[str, Any], fault: str) -> None:
    """The same lines as in Python, without our source and without the value.

    What Python's own SDK prints after it, as the caller, is another language's business.
    """
    outcome = scratch.preview(remote(**change))

    assert outcome.failed
    assert f"- {fault}" in outcome.text
    assert "component.py" not in outcome.text
    assert "with value" not in outcome.text


@pytest.mark.usefixtures("plugin")
def test_another_language_is_guarded(stack: Stack) -> None:
    """`on_restart: refuse` works across the wire."""
    guard = {"runPolicy": {"onRestart": "refuse"}}
    stack.up(remote(**guard))
    changed = stack.preview(remote(**guard, image="registry.example.com/train:2"))

    assert changed.failed
    assert "on_restart is 'refuse'" in changed.text


@pytest.mark.usefixtures("plugin")
def test_another_language_has_namesakes(scratch: Stack) -> None:
    """Two jobs of one name below parents of two types, each with a guard, come to one plugin."""

    def program() -> None:
        for team in ("vision", "speech"):
            options = pulumi.ResourceOptions(
                parent=pulumi.ComponentResource(f"acme:index:{team}", "team"), version=VERSION
            )
            config = {**JOB, "namespace": team, "runPolicy": {"onRestart": "refuse"}}
            pulumi.ComponentResource(TOKEN, "train", config, options, remote=True)

    shown = scratch.preview(program)

    assert not shown.failed, shown.text
    assert [step.name for step in shown.steps].count(WORKLOAD) == 2


@pytest.mark.usefixtures("plugin")
def test_another_language_is_told_of_names_that_clash(scratch: Stack) -> None:
    """Each job has its own connection to the engine, and the jobs' names are compared all the same."""

    def program() -> None:
        for name in ("one", "two"):
            pulumi.ComponentResource(
                TOKEN, name, {**JOB, "name": "llm"}, pulumi.ResourceOptions(version=VERSION), remote=True
            )

    refused = scratch.preview(program)

    assert refused.failed
    assert "both have children called after 'llm'" in refused.text
    assert all(f"ElasticTrainingJob '{name}'" in refused.text for name in ("one", "two"))


@pytest.mark.usefixtures("plugin")
def test_another_language_has_local_code(scratch: Stack, engine: Engine) -> None:
    """Of a folder beside the program, where the engine starts the plugin; or as files, whose names stay as they are."""
    lacking = scratch.preview(remote(workdir={"path": "nowhere/src"}))
    given = scratch.preview(remote(workdir={"files": {"lib/train_it.py": "MQ=="}}))

    assert f"workdir.path: is no folder: {engine.home.parent}/{scratch.name}/nowhere/src." in lacking.text
    assert not given.failed, given.text
    assert given.inputs("train-workdir")["data"] == {"files": "lib/train_it.py: 1 byte (6b86b273)\n"}
