"""Lanes, marks and generations, from real recordings and from the smallest cases of each rule."""

from __future__ import annotations

import itertools
from pathlib import Path
from random import Random

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from elastic_infra.timeline import formatting
from elastic_infra.timeline.as_json import as_json
from elastic_infra.timeline.figures import figures
from elastic_infra.timeline.history import History, Lane, history, natural
from elastic_infra.timeline.page import page
from elastic_infra.timeline.records import Record
from elastic_infra.timeline.summary import lines
from tests.timeline.events import record, recording, start, steps, told

FAULTS, QUIET = recording("faults"), recording("quiet_faults")


def phases(lane: Lane) -> list[tuple[str, int, float, float]]:
    """A lane as plain values."""
    return [(part.phase, part.generation, part.begin, part.end) for part in lane.intervals]


def names(found: History, node: str) -> list[str]:
    """The phases of one node, one after the other."""
    return [part.phase for lane in found.lanes if lane.node == node for part in lane.intervals]


def test_the_life_of_one_node() -> None:
    """Each event begins the phase it tells of; training begins at the first step seen, not at the report of it."""
    found = history(
        [
            record(0, "launcher_started"),
            record(1, "rendezvous_started"),
            *start(2, "a", 1, 1),
            record(9, "progress", generation=1, first=0, highest=3, age_seconds=4.0),
            record(20, "worker_exited", generation=1, local_rank=0, exit_code=0, message=""),
            record(21, "succeeded", generation=1, exit_code=0),
            record(22, "job_succeeded", ""),
        ]
    )

    assert [phases(lane) for lane in found.lanes] == [
        [("rendezvous", 0, 0, 2), ("start", 1, 2, 5), ("train", 1, 5, 20), ("rendezvous", 1, 20, 21)]
    ]
    assert (found.outcome, found.seconds) == ("succeeded", 22)


def test_workers_that_keep_their_processes() -> None:
    """A move counts with its kind and as a move; workers that live on are still there when the first one ends."""
    move = {"mode": "move", "kept": 2, "first_rank": 0, "local_world_size": 2, "world_size": 4}
    cause = {"cause": "scale_up", "about": "b", "nodes": 2, "world_size": 4, "mode": "move"}
    found = history(
        [
            *start(0, "a", 1, 2, local=2), steps(1, "a", 1, 0, 4),
            record(5, "membership_change", "a", 2, **cause), record(5, "workers_started", "a", 2, **move),
            steps(7, "a", 2, 5, 6), record(8, "worker_exited", "a", 2, local_rank=1, exit_code=0),
            record(9, "worker_exited", "a", 2, local_rank=0, exit_code=0), record(10, "succeeded", "a", 2),
        ]
    )  # fmt: skip
    known = figures(found)

    assert names(found, "a") == ["start", "train", "start", "train", "stop", "rendezvous"]
    assert (known.moves, known.restarts["membership"], known.generations) == (1, 1, 2)
    assert dict(lines(known))["restarts"].endswith("; 1 in place")


def test_an_outage_says_where_the_state_came_from() -> None:
    """The farthest source of all nodes; words that this version does not know are ignored."""
    cause = {"cause": "node_lost", "about": "c", "nodes": 2, "world_size": 2}
    found = history(
        [
            *start(0, "a", 1, 2), *start(0, "b", 1, 2), steps(1, "a", 1, 0, 4),
            record(5, "membership_change", "a", 2, **cause), *start(5, "a", 2, 2), *start(5, "b", 2, 2),
            record(6, "state_restored", "a", 2, step=3, source="peer", steps_lost=2),
            record(6, "state_restored", "b", 2, step=3, source="memory", steps_lost=2),
            record(6, "state_restored", "b", 2, step=3, source="tape"),
            steps(7, "a", 2, 4, 6), record(10, "succeeded", "a", 2),
        ]
    )  # fmt: skip
    (outage,) = figures(found).outages

    assert (outage.source, outage.steps_lost) == ("peer", 1)
    assert formatting.resumed(outage.source, outage.steps_lost) == "; state from another node; 1 step repeated"


def test_a_hang_begins_at_the_last_step() -> None:
    """It is known later that it began earlier; a peer's hang is this node's too, for its group waits."""
    for verdict in (
        record(20, "hang_detected", generation=1, message="m"),
        record(20, "stopping", generation=1, first="stacks", reason="a peer hangs"),
    ):
        stopping = record(20, "stopping", generation=1, first="stacks", reason="hang")
        found = history([*start(0, "a", 1, 1), steps(5, "a", 1, 0, 3), verdict, stopping, record(22, "x")])

        assert phases(found.lanes[0])[:2] == [("start", 1, 0, 5), ("hang", 1, 5, 20)]


def test_a_script_that_reports_no_steps_runs() -> None:
    """Its healthy training is neither a start nor a hang, though a hang was seen: the mark says when."""
    found = history(
        [
            *start(0, "a", 1, 1),
            record(20, "hang_detected", generation=1, message="m"),
            record(21, "stopping", generation=1, first="stacks", reason="hang"),
            *start(25, "a", 2, 1),
            record(90, "x"),
        ]
    )

    assert phases(found.lanes[0]) == [("run", 1, 0, 21), ("stop", 1, 21, 25), ("run", 2, 25, 90)]
    assert [(mark.at, mark.kind) for mark in found.lanes[0].marks] == [(20, "hang")]
    assert dict(lines(figures(found)))["training"].endswith("elastic_infra.training.Progress does")


def test_a_node_that_dies_without_a_word() -> None:
    """The node's lane ends when peers miss it; without peers, at its last event before its next launcher."""
    peers = history(
        [*start(0, "a", 1, 2), *start(0, "b", 1, 2), record(7, "node_lost", "b", 1, lost="a"), record(9, "x")]
    )
    alone = history([*start(0, "a", 1, 1), steps(5, "a", 1, 0, 3), record(9, "launcher_started"), record(10, "x")])

    assert phases(peers.lanes[0]) == [("run", 1, 0, 7)]
    assert [mark.kind for mark in peers.lanes[0].marks] == ["lost"]
    assert phases(alone.lanes[0])[-1] == ("rendezvous", 1, 9, 10)
    assert not any(begin < 9 and end > 5 for _, _, begin, end in phases(alone.lanes[0]))


def test_a_launcher_without_a_name_makes_no_lane() -> None:
    """It tells of its start under its machine's name and of all else under its own."""
    found = history([record(0, "launcher_started", "host"), record(1, "rendezvous_started", "a"), record(2, "x", "a")])

    assert [lane.node for lane in found.lanes] == ["a"]


def test_nodes_are_in_the_order_of_their_numbers() -> None:
    """node-10 comes after node-9."""
    assert sorted(["node-10", "node-9", "b", "node-1"], key=natural) == ["b", "node-1", "node-9", "node-10"]


def test_generations_that_begin_anew() -> None:
    """All launchers and their store were replaced: the numbers begin again, the steps go on."""
    found = history(
        [
            *start(0, "a", 1, 1), steps(1, "a", 1, 0, 0), steps(5, "a", 1, 0, 4),
            record(6, "node_exited", signal=9), record(7, "launcher_started"),
            *start(8, "a", 1, 1), steps(10, "a", 1, 3, 3), steps(14, "a", 1, 3, 7), record(15, "x"),
        ]
    )  # fmt: skip

    assert [(entry.number, entry.kind, entry.cause and entry.cause.kind) for entry in found.generations] == [
        (1, None, None),
        (1, "failure", "relaunch"),
    ]
    assert [outage.steps_lost for outage in figures(found).outages] == [2]


def test_a_member_with_a_late_clock_joins_its_generation() -> None:
    """A start told some seconds after the next generation began is no new life."""
    found = history([*start(0, "a", 1, 2), *start(3, "a", 2, 2), *start(4, "b", 1, 2), *start(5, "b", 2, 2)])

    assert [(entry.number, entry.nodes) for entry in found.generations] == [(1, ("a", "b")), (2, ("a", "b"))]


def test_marks_of_the_local_runner() -> None:
    """A planned fault is on the lane of the node it strikes; a store's end after the job's is no mark and no time."""
    found = history(
        [
            *start(0, "node-0", 1, 2), *start(0, "node-1", 1, 2),
            record(1, "fault", "", fault="kill worker 1.0"), record(2, "fault", "", fault="preempt node 0"),
            record(3, "fault", "", fault="lose rendezvous"), record(3, "store_exited", "store", signal=9),
            record(8, "job_succeeded", ""), record(9, "store_exited", "store", exit_code=143),
        ]
    )  # fmt: skip

    assert [[mark.at for mark in lane.marks] for lane in found.lanes] == [[2], [1]]
    assert [mark.kind for mark in found.marks] == ["fault", "exit"]
    assert found.seconds == 8


def test_the_recorded_faults() -> None:
    """A scale-up, a killed worker, a killed node that comes back: what was done is what is told."""
    found = told("faults")
    causes = [entry.cause.kind for entry in found.generations[1:] if entry.cause]

    assert [lane.node for lane in found.lanes] == ["node-0", "node-1", "node-2"]
    assert found.outcome == "succeeded"
    assert causes[:3] == ["scale_up", "worker_failed", "node_lost"]
    assert set(causes[3:]) <= {"scale_up"}
    assert found.generations[0].world_size == 4
    assert found.generations[-1].world_size == 6
    assert [mark.text for mark in found.lanes[0].marks if mark.kind == "fault"] == ["fault: kill worker 0.1"]
    assert [mark.kind for mark in found.lanes[1].marks] == ["fault", "exit"]
    assert [mark.kind for mark in found.lanes[2].marks] == []


def test_the_recorded_run_without_a_runner() -> None:
    """From the launchers' own events alone: a hang on every node, a preemption, a node that is lost for good."""
    found = told("quiet_faults")

    assert [entry.kind for entry in found.generations] == [None, "hang", "preemption", "membership", "membership"]
    assert all("hang" in names(found, f"node-{index}") for index in range(3))
    assert [mark.kind for mark in found.lanes[2].marks] == ["exit", "lost"]
    assert found.lanes[2].intervals[-1].end < found.end - 1


@settings(max_examples=40, deadline=None, phases=[Phase.generate])  # a smaller case of lost lines is no simpler one
@given(st.sampled_from([FAULTS, QUIET]), st.integers(0, 2**32), st.floats(0.0, 1.0))
def test_lost_lines_never_break_the_story(records: tuple[Record, ...], seed: int, kept: float) -> None:
    """With any lines missing, intervals follow each other, shares are within 0 and 1, and all is drawn."""
    draw = Random(seed)
    chosen = [each for each in records if draw.random() < kept] or list(records[:1])
    found = history(chosen)
    known = figures(found)

    for lane in found.lanes:
        for part, after in itertools.pairwise(lane.intervals):
            assert part.end <= after.begin
        assert all(found.begin <= part.begin < part.end <= found.end for part in lane.intervals)
    assert known.goodput is None or 0 <= known.goodput <= (known.training_share or 0) <= 1
    assert all(outage.seconds >= 0 for outage in known.outages)
    assert as_json(found, known)["outcome"] == known.outcome
    assert page(found, known).count("<svg") == 1


def test_the_order_of_files_does_not_matter() -> None:
    """Records are put in order of time before they are folded."""
    assert history(tuple(reversed(FAULTS))).generations == history(FAULTS).generations


def test_recordings_name_no_machine() -> None:
    """What is committed holds no path of where it was made."""
    texts = [file.read_text() for file in Path(__file__).parent.glob("recordings/*/*.jsonl")]

    assert texts
    assert [text for text in texts if ': "/' in text] == []
