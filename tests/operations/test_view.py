"""The lines on a job in a cluster."""

from __future__ import annotations

import json
from typing import Any

import pytest

from elastic_infra.operations.view import Seen, happened, lines, node_name, nodes
from tests.operations import kube

LIVE = {"launcher": {"metrics_port": 9100, "events": "-"}}


def shown(job: dict[str, Any], *pods: dict[str, Any], **parts: Any) -> list[str]:
    """The view of a job."""
    return lines(Seen(job, pods, at=kube.NOW, **parts))


def event(second: int, name: str, **fields: Any) -> str:
    """An event line in a log with time stamps."""
    told = f"2026-01-02T03:10:{second:02}.000Z"
    head = {"time": told, "monotonic": second, "event": name, "node": "job-worker-0", "generation": 1, "attempt": 0}
    return f"{told} {json.dumps(head | fields)}"


def test_a_running_job_with_status_ports() -> None:
    """Nodes, generation, steps and restarts by the launchers' own word, and goodput by the event lines."""
    log = "\n".join(
        [
            event(0, "workers_started", first_rank=0, local_world_size=2, world_size=4),
            event(10, "progress", first=1, lowest=1, highest=1, steps_per_second=1.0, age_seconds=0),
            event(20, "progress", first=1, lowest=11, highest=11, steps_per_second=1.0, age_seconds=0),
            "2026-01-02T03:10:21Z a line of the script",
        ]
    )
    snapshots = {f"job-worker-{index}": kube.snapshot(index) for index in (0, 1)}
    pods = [kube.pod(1, restartCount=2), kube.pod(0)]

    assert shown(kube.workload("Running", **LIVE), *pods, snapshots=snapshots, logs={"job-worker-0": log}) == [
        "job in namespace default: running for 20:00, 2 of 4 nodes ready (2 to 4, set by `elastic-infra scale`)",
        "generation 3: 4 workers on 2 nodes",
        "step 41",
        "restarts: 1 of 3 charged, 1 change of members",
        "goodput: 50.0 % over 20.0 s of events",
        "",
        "pod           status   launcher    gen.  step  restarts",
        "job-worker-0  Running  monitoring  3     40",
        "job-worker-1  Running  monitoring  3     41    2",
    ]


def test_the_newest_pod_of_an_index_is_its_node() -> None:
    """The failed pods before it stay in the cluster, under names of their own; the node has that of its host."""
    pods = [
        kube.indexed_pod(10, "aaaaa"),
        kube.indexed_pod(2, "zzzzz", "Failed"),
        kube.indexed_pod(2, "bbbbb", made=kube.LATER),
    ]
    found = nodes(pods)

    assert [pod["metadata"]["name"] for pod in found] == ["job-2-bbbbb", "job-10-aaaaa"]
    assert [node_name(pod) for pod in found] == ["job-2", "job-10"]
    assert "2 of 4 nodes ready (2 to 4, set by `elastic-infra scale`)" in shown(kube.workload(target="job"), *pods)[0]


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (kube.train_job(), "waits for its pods for 20:00"),
        (kube.train_job(active=1), "running for 20:00"),
        (kube.train_job("Suspended"), "suspended for 10:00"),
        (kube.train_job("Complete"), "succeeded after 10:00"),
        (kube.train_job("Failed"), "failed after 10:00"),
    ],
)
def test_a_train_job_is_where_trainer_says(job: dict[str, Any], said: str) -> None:
    """Its pods are counted Job by Job, and all nodes of the maximum should be there."""
    assert shown(job)[0] == f"job in namespace default: {said}, 0 of 4 nodes ready (2 to 4, set by the config)"


@pytest.mark.parametrize(("condition", "said"), [("SuccessCriteriaMet", "succeeded"), ("FailureTarget", "failed")])
def test_a_job_whose_end_is_decided_has_ended(condition: str, said: str) -> None:
    """A Job waits for its last pod before it is complete, which a silent cluster node may hold for long."""
    assert shown(kube.workload(condition, target="job"))[0].startswith(f"job in namespace default: {said} after 10:00")


def test_moves_are_shown_beside_restarts() -> None:
    """Changes in which workers kept their processes are part of the changes of members."""
    snapshots = {"job-worker-0": kube.snapshot(0, membership_changes=3, moves=2)}
    found = shown(kube.workload("Running", **LIVE), kube.pod(0), snapshots=snapshots)

    assert "restarts: 1 of 3 charged, 3 changes of members, 2 in place" in found


def test_the_source_of_the_last_state_is_shown() -> None:
    """With the steps that were lost on the way; a fresh start is nothing to show."""
    fresh = {"job-worker-0": kube.snapshot(0, restored_step=0, restored_from="nothing", steps_lost=0)}
    again = {"job-worker-0": kube.snapshot(0, restored_step=38, restored_from="peer", steps_lost=3)}
    job, pod = kube.workload("Running", **LIVE), kube.pod(0)

    assert "went on from another node at step 38, 3 steps lost since the launcher began" in shown(
        job, pod, snapshots=again
    )
    assert not any("went on" in line for line in shown(job, pod, snapshots=fresh))


def test_failed_saves_are_shown_beside_the_steps() -> None:
    """All nodes fail to write to a full volume, so the highest count is that of the job; none is nothing to show."""
    fine = {"job-worker-0": kube.snapshot(0, checkpoint_step=30, failed_saves=0)}
    full = {f"job-worker-{index}": kube.snapshot(index, checkpoint_step=30, failed_saves=2) for index in (0, 1)}
    job, pods = kube.workload("Running", **LIVE), (kube.pod(0), kube.pod(1))

    assert "step 40, 30 saved" in shown(job, *pods, snapshots=fine)
    assert "step 41, 30 saved; 2 saves failed since the launcher began" in shown(job, *pods, snapshots=full)


def test_samples_and_the_snapshot_in_memory_are_shown_beside_the_steps() -> None:
    """The highest of all nodes; a script that reports none has no such words."""
    said = {f"job-worker-{index}": kube.snapshot(index, memory_step=38 + index, samples=20_992) for index in (0, 1)}
    job, pods = kube.workload("Running", **LIVE), (kube.pod(0), kube.pod(1))

    assert "step 41, 39 in memory, 20992 samples" in shown(job, *pods, snapshots=said)


def test_without_status_ports_the_pods_tell_and_the_view_says_so() -> None:
    """With what to set for more, and the warning that says why a pod waits."""
    waiting = kube.pod(1, "Pending")
    waiting["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    about = {"name": "job-worker-1", "uid": "uid-job-worker-1"}
    warnings = [
        {"involvedObject": about, "reason": "FailedScheduling", "message": "0/3 nodes\nfit", "lastTimestamp": kube.NOW},
        {"involvedObject": {"name": "other", "uid": "x"}, "reason": "BackOff", "message": "of another job"},
    ]
    found = shown(kube.workload("Running", elastic={"initial_nodes": 2}), kube.pod(0), waiting, warnings=warnings)

    assert found[0].endswith("1 of 2 nodes ready (2 to 4, set by the config)")
    assert found[2:7] == [
        "pod           status",
        "job-worker-0  Running",
        "job-worker-1  Pending (Unschedulable)",
        "",
        "job-worker-1: FailedScheduling: 0/3 nodes fit",
    ]
    assert [line.partition(": ")[2].partition(":")[0] for line in found[7:]] == [
        "steps and restarts are not known live",
        "goodput is not known",
    ]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"state": {"running": {"startedAt": kube.BEGAN}}}, "Pending (init container health)"),
        ({"state": {"waiting": {"reason": "CrashLoopBackOff"}}}, "Pending (init container health: CrashLoopBackOff)"),
        ({"state": {"waiting": {"reason": "PodInitializing"}}}, "Pending (PodInitializing)"),
        ({"restartPolicy": "Always", "state": {"running": {"startedAt": kube.BEGAN}}}, "Pending (PodInitializing)"),
    ],
)
def test_a_pod_that_initializes_says_where_it_is(fields: dict[str, Any], says: str) -> None:
    """The init container at work, or the one that fails; a sidecar that runs is none of them."""
    found = shown(kube.workload("Running"), kube.initializing(0, "health", **fields))

    assert any(says in line for line in found), found


def test_event_lines_stand_in_for_status_ports() -> None:
    """Generation and steps of the node whose log was read."""
    log = "\n".join(
        [
            event(0, "workers_started", first_rank=0, local_world_size=2, world_size=2),
            event(10, "progress", first=1, lowest=9, highest=9, steps_per_second=2.0, age_seconds=0),
        ]
    )
    found = shown(kube.workload("Running", launcher={"events": "-"}), kube.pod(0), logs={"job-worker-0": log})

    assert "step 9, 2 a second" in found
    assert any(line.startswith("generation 1: 2 workers") for line in found)


@pytest.mark.parametrize(
    ("job", "start"),
    [
        (kube.workload(), "job in namespace default: waits for its pods for 20:00, 0 of 4 nodes ready"),
        (kube.workload("Suspended"), "job in namespace default: suspended for 10:00"),
        (kube.workload("Suspended", placement={"queue": "gpu"}), "job in namespace default: waits in its queue for"),
        (kube.workload("Succeeded"), "job in namespace default: succeeded after 10:00, 0 of 4 nodes ready"),
        (kube.workload("Failed"), "job in namespace default: failed after 10:00"),
        (kube.workload("Complete", elastic={"nnodes": 1}), "job in namespace default: succeeded after 10:00, 0 of 1"),
    ],
)
def test_each_state_has_its_words(job: dict[str, Any], start: str) -> None:
    """And a job that does not run is asked for no ports."""
    found = shown(job)

    assert found[0].startswith(start)
    assert not any("metrics_port" in line for line in found)


def test_what_a_stranger_on_the_port_says_breaks_nothing() -> None:
    """Another program may listen there; its answer is text in one line."""
    odd = kube.snapshot(0, phase="\x1b[2J\nx", nodes="no list", world_size="many", highest_step=[1], generation="x")

    assert "job-worker-0  Running  [2J x" in "\n".join(
        shown(kube.workload("Running", **LIVE), kube.pod(0), snapshots={"job-worker-0": odd})
    )


def test_time_that_passes_is_no_news() -> None:
    """A reader of lines is told of what changes; steps are no change, a new generation is."""
    job, pods = kube.workload("Running", **LIVE), (kube.pod(0),)
    told = [
        happened(Seen(job, pods, {"job-worker-0": kube.snapshot(0, **fields)}, at=at))
        for fields, at in [({}, kube.NOW), ({"highest_step": 99}, kube.NOW + 9), ({"generation": 4}, kube.NOW + 9)]
    ]

    assert told[0] == told[1] != told[2]


def test_notes_come_last() -> None:
    """What could not be asked, and why."""
    assert shown(kube.workload("Succeeded"), notes=("events are not shown",))[-1] == "note: events are not shown"
