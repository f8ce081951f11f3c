"""A running job is moved to another workload object, by the steps that the documentation has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli import elastic_infra
from tests.cluster import jobs
from tests.cluster.account import Account
from tests.cluster.cluster import Namespace
from tests.cluster.stack import JobStack
from tests.cluster.targets import Target
from tests.cluster.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
JOB = "moved"


def settings(file: Path) -> dict[str, Any]:
    """What the job file says."""
    found: dict[str, Any] = yaml.safe_load(file.read_text())
    return {key: value for key, value in found.items() if key != "name"}


@pytest.mark.parametrize("target", ["job", "trainjob"], indirect=True)
def test_a_moved_job_goes_on_from_its_checkpoint(
    space: Namespace, stack: JobStack, operator: Account, target: Target, tmp_path: Path
) -> None:
    """The PyTorchJob is stopped, its file changed and deployed: no saved step is lost, and the old object is gone."""
    training, file = jobs.Training(), tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump({"name": JOB, **jobs.config(space, training)}))
    stack.up(settings(file))
    jobs.await_world(space, 2)
    jobs.await_step(space, 10)
    stopped = operator.run("cancel", JOB)
    until("no pods", lambda: not space.pods(JOB), describe=space.describe)
    saved = json.loads(space.read("checkpoint.json"))["step"]

    migrated = elastic_infra("migrate", file, "--to", target.name, "--write")
    done = stack.up(settings(file))
    jobs.await_step(space, saved + 10)
    nodes = target.nodes(space, JOB)
    again = stack.up(settings(file))
    jobs.tell_to_finish(space)
    target.await_end(space, JOB)

    assert (stopped.code, migrated.code) == (0, 0), stopped.err + migrated.err
    assert done["workload"] == "create"
    assert len(nodes) >= 2
    assert again == {}
    assert space.api.find(space.job(JOB)) is None
    jobs.check_result(space, training)
