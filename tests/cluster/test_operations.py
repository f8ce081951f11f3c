"""The commands that operate a job, on a real one: with the Roles of `docs/rbac.md` and nothing more."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.cluster import jobs
from tests.cluster.account import Account, account, roles
from tests.cluster.cluster import Namespace
from tests.cluster.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
JOB, PORT = "train", 9100


@pytest.fixture(scope="module")
def accounts(shared_space: Namespace, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Account]:
    """One account for each Role of the page, and one without any."""
    folder = tmp_path_factory.mktemp("accounts")
    pages = roles()
    given = {"viewer": pages["elastic-infra-view"], "operator": pages["elastic-infra-operate"], "stranger": None}
    return {name: account(shared_space, name, role, folder) for name, role in given.items()}


@pytest.fixture(scope="module")
def space(shared_space: Namespace) -> Iterator[Namespace]:
    """A namespace where a job of one to three nodes trains with three, with status ports and events in its logs."""
    settings = jobs.config(
        shared_space,
        jobs.Training(reports=True),
        elastic={"nnodes": "1:3", "nproc_per_node": 1},
        launcher={"metrics_port": PORT, "events": "-"},
    )
    jobs.submit(shared_space, JOB, settings, "ours")
    jobs.await_world(shared_space, 3)
    yield shared_space
    for manifest in jobs.objects(JOB, settings, "ours"):
        shared_space.api.delete(manifest)


def test_status_shows_the_launchers_own_state(space: Namespace, accounts: dict[str, Account]) -> None:
    """Through the API server's proxy; nothing is missing from the view, and so there is no note."""
    viewer = accounts["viewer"]
    until("three nodes in the view", lambda: "3 workers on 3 nodes" in viewer.run("status", JOB).out)
    seen = viewer.run("status", JOB)

    assert (seen.code, seen.err) == (0, "")
    assert f"{JOB} in namespace {space.name}: running for" in seen.out
    assert "3 of 3 nodes ready (1 to 3, set by `elastic-infra scale`)" in seen.out
    assert re.search(r"^step \d+", seen.out, re.MULTILINE)
    assert re.search(r"^goodput: \d", seen.out, re.MULTILINE)
    assert re.search(rf"^{JOB}-worker-2 +Running +monitoring +\d+ +\d+", seen.out, re.MULTILINE)
    assert "note: " not in seen.out


def test_logs_finds_the_node_of_a_rank(space: Namespace, accounts: dict[str, Account]) -> None:
    """And of all nodes each line has its pod."""
    viewer, last = accounts["viewer"], f"{JOB}-worker-2"
    of_rank = viewer.run("logs", JOB, "--rank", "2")

    assert (of_rank.code, of_rank.err) == (0, "")
    assert f'"node": "{last}"' in of_rank.out
    assert f'"node": "{JOB}-worker-0"' not in of_rank.out
    assert all(f"pod/{pod}" in viewer.run("logs", JOB, "--tail", "1").out for pod in space.uids(JOB))
    assert "the job's ranks are 0 to 2 now" in viewer.run("logs", JOB, "--rank", "3").err


def test_scale_moves_the_job_within_its_range(space: Namespace, accounts: dict[str, Account]) -> None:
    """By the right to the subresource alone; outside of the range nothing changes."""
    refused, outside = accounts["viewer"].run("scale", JOB, "2"), accounts["operator"].run("scale", JOB, "4")

    assert (refused.code, outside.code) == (2, 2)
    assert f"may not patch pytorchjobs/scale.kubeflow.org in namespace {space.name}" in refused.err
    assert size(space) == 3
    assert accounts["operator"].run("scale", JOB, "2").code == 0
    assert size(space) == 2
    jobs.await_world(space, 2)


def test_cancel_suspends_the_job_and_watch_sees_it(space: Namespace, accounts: dict[str, Account]) -> None:
    """Its pods go, the object stays, a second time changes nothing; `watch` ends with the object."""
    viewer, operator = accounts["viewer"], accounts["operator"]
    with watching(viewer) as watch:
        lines = iter(watch.stdout or ())
        assert "running for" in next(lines)
        refused, done = viewer.run("cancel", JOB), operator.run("cancel", JOB)
        assert any("suspended for" in line for line in lines)
        until("no pod", lambda: not space.pods(JOB), describe=space.describe)
        again = operator.run("cancel", JOB)
        assert space.api.find(space.job(JOB)) is not None
        space.api.delete(space.job(JOB))
        assert [line for line in lines if "running for" in line] == []

    assert (refused.code, done.code, again.code, watch.returncode) == (2, 0, 0, 1)
    assert f"may not patch pytorchjobs.kubeflow.org in namespace {space.name}" in refused.err
    assert again.err.endswith("is suspended already.\n")


def test_a_single_pod_is_operated_as_well(shared_space: Namespace, accounts: dict[str, Account]) -> None:
    """A batch/v1 Job has no size to move, and its own switch; teed, its two ranks are told apart."""
    talk = {"command": ["sh", "-c", "echo I am rank $RANK; sleep infinity"], "env": {"PET_TEE": "3"}}
    changes = {**talk, "elastic": {"nnodes": 1, "nproc_per_node": 2}}
    settings = {**jobs.config(shared_space, jobs.Training(), **changes), "script": None}
    viewer, operator, job = accounts["viewer"], accounts["operator"], shared_space.named("batch/v1", "Job", "single")
    for manifest in jobs.objects("single", settings, "ours"):
        shared_space.apply(manifest)
    until("the pod", lambda: "1 of 1 node ready" in viewer.run("status", "single").out, describe=shared_space.describe)
    until("the last rank's line", lambda: "I am rank 1" in viewer.run("logs", "single").out)
    logs, refused = viewer.run("logs", "single", "--rank", "1"), operator.run("scale", "single", "2")
    done = operator.run("cancel", "single")
    until("no pod", lambda: "0 of 1 node ready" in viewer.run("status", "single").out, describe=shared_space.describe)
    is_suspended = shared_space.api.get(job)["spec"]["suspend"]
    for manifest in jobs.objects("single", settings, "ours"):
        shared_space.api.delete(manifest)

    assert (logs.code, refused.code, done.code, is_suspended) == (0, 2, 0, True)
    assert "has 1 node, no range of them" in refused.err
    assert "[default1]:I am rank 1" in logs.out
    assert "I am rank 0" not in logs.out


def test_what_is_not_there_or_not_allowed_is_named(shared_space: Namespace, accounts: dict[str, Account]) -> None:
    """Exit code 2 and one line."""
    missing, refused = accounts["viewer"].run("status", "other"), accounts["stranger"].run("status", "other")

    assert (missing.code, missing.out, refused.code, refused.out) == (2, "", 2, "")
    assert missing.err.startswith("There is no job other in this namespace.")
    assert f"may not get pytorchjobs.kubeflow.org in namespace {shared_space.name}. Ask for a Role" in refused.err


def size(space: Namespace) -> int:
    """The number of nodes that there should be."""
    replicas: int = space.api.get(space.job(JOB))["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"]
    return replicas


@contextmanager
def watching(viewer: Account) -> Iterator[subprocess.Popen[str]]:
    """`watch` on the job, which ends by itself when the job ends."""
    command = viewer.command("watch", JOB, "--interval", "1")
    with subprocess.Popen(command, env=viewer.environ(), stdout=subprocess.PIPE, text=True) as watch:
        try:
            yield watch
            watch.wait(60)
        finally:
            watch.kill()
