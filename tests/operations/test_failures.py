"""The last failure in one line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastic_infra.launcher import log
from elastic_infra.launcher.protocol.limits import Limits
from elastic_infra.launcher.protocol.records import Cause
from elastic_infra.launcher.protocol.report import announce
from elastic_infra.operations.failures import LONGEST, last_failure
from tests.launcher.protocol.states import PAIR, connected, peer
from tests.operations import kube

EARLIER, LATER = "2026-01-02T03:05:00Z", "2026-01-02T03:15:00.123456789Z"


def announced(kind: str, message: str, *, charged: bool) -> str:
    """The launcher's own line about a generation that came after one of two nodes."""
    before = replace(connected(Limits(max_nodes=2), PAIR, peer("n1", "member")), seen=(PAIR.identity, "running"))
    cause = Cause(kind, "n1", "n1", message=message)  # type: ignore[arg-type]  # a case
    new = replace(PAIR, number=PAIR.number + 1, phase="running", cause=cause, charged=charged)
    after = replace(connected(Limits(max_nodes=2), new), seen=(new.identity, "running"))
    (told,) = announce(before, after)
    return f"{log.PROGRAM}: {told.line}"


def said(*logs: str, pods: tuple[object, ...] = (), conditions: tuple[str, ...] = ("Running",)) -> str | None:
    """The last failure's text."""
    found = last_failure(kube.workload(*conditions), pods, [("job-worker-0", "\n".join(logs))])  # type: ignore[arg-type]
    return found.what if found else None


def test_a_worker_that_is_started_again_is_found_in_the_log() -> None:
    """The launcher's line, whatever it says beside; the newest counts, and other lines do not."""
    first = announced("worker_failed", "Rank 1 exited with code 1: ValueError: first.", charged=True)
    second = announced("worker_failed", "Rank 1 exited with code 1: ValueError: second.", charged=True)
    lines = (f"{EARLIER} {first}", f"{LATER} {second}", f"{LATER} a script that says elasticrun: and so on")

    assert said(*lines) == "Rank 1 exited with code 1: ValueError: second."


def test_a_lost_node_is_a_failure_of_the_job() -> None:
    """The loss is charged to no node, and costs the others a step all the same."""
    assert said(f"{LATER} {announced('node_lost', '', charged=False)}") == "Node n1 is lost."


@pytest.mark.parametrize("kind", ["scale_up", "leaving"])
def test_a_change_that_was_asked_for_is_no_failure(kind: str) -> None:
    """Nodes come and go."""
    assert said(f"{LATER} {announced(kind, '', charged=False)}") is None


def test_a_pod_that_ended_tells_the_launchers_report() -> None:
    """Of the container before its restart, and of one that stays ended; a told end is none."""
    failed = kube.pod(0, lastState=kube.terminated(1, kube.report("Rank 0 was killed by SIGKILL. Out of memory.")))
    left = kube.pod(1, "Failed", state=kube.terminated(143, "bye", LATER))

    assert said(pods=(failed, left)) == "exited with code 1 (Error): Rank 0 was killed by SIGKILL. Out of memory."


@pytest.mark.parametrize(
    ("message", "what"),
    [
        ("Traceback\nOSError: no such file\n", "exited with code 1 (Error): OSError: no such file"),
        ("", "exited with code 1 (Error)"),
        ("[1]", "exited with code 1 (Error): [1]"),
        ("\x1b[31mred\x07", "exited with code 1 (Error): [31mred"),
        ("x" * 5000, f"exited with code 1 (Error): {'x' * (LONGEST - 29)}…"),
    ],
)
def test_any_termination_message_is_one_line(message: str, what: str) -> None:
    """An image that cannot start the launcher leaves its last lines of output; a terminal must survive them."""
    assert said(pods=(kube.pod(0, lastState=kube.terminated(1, message)),)) == what


def test_an_init_container_that_failed_is_named() -> None:
    """A node that is not fit to train says so in the pod's status, whatever the training container waits for."""
    unfit = "health: cluster node gpu-7 is not fit to train: it shows 7 of 8 GPUs."
    pod = kube.initializing(0, "health", lastState=kube.terminated(200, unfit))

    assert said(pods=(pod,)) == f"init container health exited with code 200 (Error): {unfit}"


def test_an_evicted_pod_says_why() -> None:
    """The kubelet's word: no container of it ended by itself."""
    pod = kube.pod(0, "Failed")
    pod["status"] |= {"reason": "Evicted", "message": "The node was low on resource: memory."}

    assert said(pods=(pod,)) == "Evicted: The node was low on resource: memory."


def test_the_controllers_word_is_the_last_resort() -> None:
    """Where the pods are gone."""
    job = kube.workload()
    job["status"]["conditions"] = [kube.condition("Failed", "1 Worker replica(s) failed.")]
    found = last_failure(job, (), ())

    assert found is not None
    assert (found.about, found.what) == ("job", "1 Worker replica(s) failed.")


def test_a_job_without_a_failure_has_none() -> None:
    """No line is shown."""
    assert said("", pods=(kube.pod(0), kube.pod(1))) is None
