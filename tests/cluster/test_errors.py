"""What a user reads when the cluster is not as the program expects it."""

from __future__ import annotations

import pytest

from tests.cluster import jobs
from tests.cluster.cluster import Namespace
from tests.cluster.stack import job_stack
from tests.engine.engine import Engine

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


def test_a_namespace_that_does_not_exist_is_named(space: Namespace, engine: Engine) -> None:
    """`up` fails with the namespace's name and that it was not found."""
    settings = {**jobs.config(space, jobs.Training()), "namespace": "nowhere"}

    with job_stack(engine, "lost", "ours") as stack, pytest.raises(AssertionError, match=r'"nowhere" not found'):
        stack.up(settings)


def test_a_name_that_is_too_long_creates_nothing(space: Namespace, engine: Engine) -> None:
    """A name that the rendered Service could not have is refused before anything is created."""
    too_long = "j" * 60

    with job_stack(engine, too_long, "ours") as stack, pytest.raises(AssertionError, match=r"cannot be deployed"):
        stack.up(jobs.config(space, jobs.Training()))

    assert not space.api.list("kubeflow.org/v1", "PyTorchJob", space.name)
