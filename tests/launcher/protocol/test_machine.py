"""The machine's rules about time and money, each on states built for it; what nodes do to each other is the model's."""

from __future__ import annotations

import collections
import sys
from dataclasses import replace

import pytest

from elastic_infra.launcher.protocol import change, commit, events, machine
from elastic_infra.launcher.protocol.actions import Action, CompareAndSet, Exit, StopWorkers, Tell
from elastic_infra.launcher.protocol.apply_event import apply_event
from elastic_infra.launcher.protocol.events import Peer
from elastic_infra.launcher.protocol.limits import Limits
from elastic_infra.launcher.protocol.records import Budget, Cause, Generation, Member
from elastic_infra.launcher.protocol.state import LocalWorkers, Node, State
from tests.launcher.protocol.states import ALONE, FAILURE, PAIR, connected, peer, ready


def compare_and_sets(state: State, now: float, event: events.Event | None = None) -> list[Generation | None]:
    _, actions = machine.step(state, event or events.Tick(), now)
    return [action.generation for action in actions if isinstance(action, CompareAndSet)]


def of_kind(actions: tuple[Action, ...], kind: type) -> list[Action]:
    return [action for action in actions if isinstance(action, kind)]


@pytest.mark.parametrize(
    ("limits", "others", "now", "is_complete"),
    [
        (Limits(min_nodes=1, max_nodes=3, initial_nodes=3), 2, 0.0, True),
        (Limits(min_nodes=1, max_nodes=3, initial_nodes=3), 1, 1.9, False),
        (Limits(min_nodes=1, max_nodes=3, initial_nodes=3), 1, 2.0, True),
        (Limits(min_nodes=3, max_nodes=3, initial_nodes=3), 1, 999.0, False),
        (Limits(min_nodes=1, max_nodes=4, initial_nodes=2, startup_wait=120), 1, 0.0, True),
        (Limits(min_nodes=1, max_nodes=4, initial_nodes=3, startup_wait=120), 1, 119.0, False),
        (Limits(min_nodes=1, max_nodes=4, initial_nodes=3, startup_wait=120), 1, 120.0, True),
    ],
)
def test_first_round_waits_for_whom_it_hopes(limits: Limits, others: int, now: float, is_complete: bool) -> None:
    """All places taken or ``initial_nodes`` there: at once; else the last call, or the start-up wait where it is on."""
    state = connected(limits, None, *(ready(f"n{place + 1}") for place in range(others)))

    assert commit.first_round_is_complete(state, now) == is_complete
    assert bool(compare_and_sets(state, now)) == is_complete


def test_peer_events_in_a_row_lead_to_one_step() -> None:
    """All peers of the row are in the state, only the last event gets a step, and other events keep their order."""
    seen = [events.PeerSeen(ready(uuid)) for uuid in ("n1", "n2", "n3")]
    waiting: collections.deque[events.Event] = collections.deque([*seen, events.Tick(), seen[0]])

    state, event = machine.next_event(connected(Limits(), None), waiting, 0.0)

    assert event == seen[2]
    assert [each.record.uuid for each in state.store.peers] == ["n1", "n2"]
    assert list(waiting) == [events.Tick(), seen[0]]
    assert machine.next_event(state, waiting, 0.0) == (state, events.Tick())


def test_peer_events_in_a_row_are_taken_down_as_one_after_the_other() -> None:
    """The last word of each node counts, a newcomer has its place by uuid, and lookups find what was said last."""
    before = connected(Limits(), None, ready("n1"), ready("n3"))
    said = [peer("n3", "warming"), ready("n2"), peer("n1", "warming"), peer("n3", "member")]
    waiting: collections.deque[events.Event] = collections.deque(map(events.PeerSeen, said))
    apart = before
    for each in said:
        apart = apply_event(apart, events.PeerSeen(each), 1.0)

    state, event = machine.next_event(before, waiting, 1.0)
    state = apply_event(state, event, 1.0)

    assert state.store.peers == apart.store.peers == (said[2], said[1], said[3])
    assert [state.store.peer(uuid) for uuid in ("n1", "n2", "n3")] == [said[2], said[1], said[3]]
    assert [each.uuid for each in state.store.ready()] == ["n2"]
    assert before.store.peer("n2") is None, "a lookup in an earlier picture finds the earlier peers"


def test_a_step_without_a_change_costs_the_same_with_any_number_of_members() -> None:
    """A beat makes a step: among thousands of nodes each calls no function once for each member."""
    assert calls_of_idle_step(256) == calls_of_idle_step(64)


def calls_of_idle_step(nodes: int) -> int:
    """Calls of Python functions, steps of generators included, in a step of a member among so many."""
    told: list[str] = []

    def note(*of_interpreter: object) -> None:
        told.append(str(of_interpreter[1]))

    uuids = sorted(f"n{number}" for number in range(nodes))
    generation = replace(PAIR, members=tuple(Member(uuid, uuid, 1) for uuid in uuids))
    limits = Limits(max_nodes=nodes, startup_patience=0.0, planned_gap=0.0)
    state = connected(limits, generation, *(peer(uuid, "member", name=uuid) for uuid in uuids), phase="running")
    state, _ = machine.step(replace(state, node=replace(state.node, name="n0")), events.Tick(), 100.0)
    former = sys.getprofile()
    sys.setprofile(note)
    try:
        machine.step(state, events.Tick(), 101.0)
    finally:
        sys.setprofile(former)
    return told.count("call")


def test_nobody_to_train_with_ends_after_join_timeout() -> None:
    """A node that finds no generation leaves with 200, not earlier."""
    state = connected(Limits(min_nodes=2, max_nodes=2, join_timeout=60.0), None)
    early, late = machine.step(state, events.Tick(), 59.9)[1], machine.step(state, events.Tick(), 60.0)[1]

    assert of_kind(early, Exit) == []
    assert [action.code for action in late if isinstance(action, Exit)] == [200]


@pytest.mark.parametrize(("exit_code", "age"), [(0, 0.0), (0, 59.0), (1, 30.0), (93, 1.0)])
def test_late_joiner_leaves_with_the_jobs_code(exit_code: int, age: float) -> None:
    """A node that comes after the job's end leaves with the job's exit code."""
    final = replace(PAIR, phase="final", exit_code=exit_code, ended_at=1000)
    state, actions = machine.step(connected(Limits(max_nodes=2), final), events.Tick(), age)

    assert state.exited
    assert [action.code for action in actions if isinstance(action, Exit)] == [exit_code]


def test_old_end_without_a_live_member_is_forgotten() -> None:
    """A job that is recreated under the same id trains; a live member of the old job keeps its final record."""
    members = (Member("n8", "", 1), Member("n9", "", 1))
    final = replace(PAIR, members=members, phase="final", exit_code=0, ended_at=1000)
    limits = Limits(max_nodes=2)

    assert compare_and_sets(connected(limits, final), 60.0) == [None]
    assert compare_and_sets(connected(limits, final, peer("n9", "finished", final)), 60.0) == []


def test_forgotten_end_is_not_brought_back() -> None:
    """A second joiner that still knows the old end does not restore it."""
    final = replace(PAIR, members=(Member("n8", "", 1),), phase="final", exit_code=0, ended_at=1000)
    state = connected(Limits(min_nodes=2, max_nodes=2), final)

    assert compare_and_sets(state, 60.0, events.GenerationSeen(None, 0)) == []


def test_sigterm_without_a_store_stops_at_once() -> None:
    """Nothing can be agreed: SIGTERM now, with the whole grace."""
    state = connected(Limits(max_nodes=2), PAIR, peer("n1", "member"), phase="running")
    state, _ = machine.step(state, events.StoreLost(fresh=True), 1.0)
    _, actions = machine.step(state, events.SignalSeen(15), 2.0)

    assert of_kind(actions, StopWorkers) == [StopWorkers(1, 30.0, "SIGTERM", "this node was told to end")]


def test_sigterm_gives_up_the_agreement_in_time() -> None:
    """While peers do not answer the leaving node waits until 5 s before its grace ends, then stops alone; exit 143."""
    generation = replace(PAIR, phase="proposed", stop_step=9)
    state = connected(Limits(max_nodes=2), generation, peer("n1", "member"), phase="running")
    state, _ = machine.step(state, events.SignalSeen(15), 0.0)
    state, early = machine.step(state, events.Tick(), 24.9)
    state, late = machine.step(state, events.Tick(), 25.0)
    state, last = machine.step(state, events.WorkersGone(1), 27.0)

    assert of_kind(early, StopWorkers) == []
    assert [(a.first, a.grace_seconds) for a in late if isinstance(a, StopWorkers)] == [("SIGTERM", 5.0)]
    assert [action.code for action in last if isinstance(action, Exit)] == [143]


def test_newcomers_are_batched() -> None:
    """A planned change comes 30 s after the last one, or with the next checkpoint."""
    group = LocalWorkers(ALONE.identity, "running", highest=5, checkpoint=3, first_checkpoint=3, stepped_at=0.0)
    state = replace(connected(Limits(max_nodes=3), ALONE, ready("n1")), workers=group, planned_since=0.0)

    assert change.propose(state, 29.9) is None
    assert change.propose(state, 30.0) is not None
    assert change.propose(replace(state, workers=replace(group, checkpoint=4)), 1.0) is not None


@pytest.mark.parametrize(
    ("highest", "stepped", "age", "is_due"),
    [
        (None, False, 599.9, False),
        (None, False, 600.0, True),
        (None, True, 29.9, False),
        (None, True, 30.0, True),
        (0, True, 0.0, True),
        (7, True, 29.9, True),
    ],
)
def test_newcomer_waits_until_the_others_have_trained(
    highest: int | None, stepped: bool, age: float, is_due: bool
) -> None:
    """A reported step is enough; an unreported one counts after 30 s; without any newcomers wait for 600 s."""
    stepped_at = 100.0 if stepped else None
    group = LocalWorkers(ALONE.identity, "running", started=100.0, highest=highest, stepped_at=stepped_at)
    state = replace(connected(Limits(max_nodes=3), ALONE, ready("n1")), workers=group)

    assert (change.propose(state, 100.0 + age) is not None) is is_due


@pytest.mark.parametrize(
    ("longest", "patience", "due_after"), [(5, None, 30), (60, None, 180), (60, 10, 10), (None, 10, 10), (None, 0, 0)]
)
def test_patience_follows_from_the_longest_start(longest: int | None, patience: float | None, due_after: float) -> None:
    """Three times the longest start seen, 30 s at least; or what the user set."""
    generation = replace(ALONE, startup_seconds=longest)
    group = LocalWorkers(generation.identity, "running", started=0.0)
    limits = Limits(max_nodes=3, startup_patience=patience)
    state = replace(connected(limits, generation, ready("n1")), workers=group)

    assert change.propose(state, due_after) is not None
    assert due_after == 0 or change.propose(state, due_after - 0.1) is None


def test_longest_start_travels_in_the_generation_record() -> None:
    """What this node and its peers measured is kept over generations, rounded up."""
    state = connected(Limits(max_nodes=2), replace(PAIR, startup_seconds=7), phase="running")
    assert state.workers is not None
    state, _ = machine.step(state, events.StepsSeen(1, None, None, stepped_at=11.2), 12.0)
    broken = replace(PAIR, phase="broken", startup_seconds=7, cause=Cause("node_lost", "n9", "n9"))
    stopped = connected(Limits(max_nodes=2), broken, peer("n1", "stopped", startup_seconds=9), phase="stopped")
    own = replace(stopped, workers=replace(state.workers, phase="stopped")) if state.workers else stopped

    assert [after.startup_seconds for after in compare_and_sets(stopped, 13.0) if after] == [9]
    assert [after.startup_seconds for after in compare_and_sets(own, 13.0) if after] == [12]


def test_node_that_keeps_failing_alone_is_left_out() -> None:
    """The second failure in a row of one node costs that node and not the budget; it leaves with 200."""
    spent = Budget(restarts=1, charged=1, culprit="n1", culprit_failures=1)
    broken = replace(PAIR, phase="broken", cause=FAILURE, budget=spent)
    (after,) = compare_and_sets(
        connected(Limits(max_nodes=2, max_restarts=3), broken, peer("n1", "stopped"), phase="stopped"), 0.0
    )
    assert after is not None
    evicted = replace(connected(Limits(max_nodes=2), after), node=Node("n1"), latest_seen=after)
    _, actions = machine.step(evicted, events.Tick(), 0.0)

    assert ([member.uuid for member in after.members], after.budget.charged, after.evicted) == (["n0"], 1, "n1")
    assert [action.code for action in actions if isinstance(action, Exit)] == [200]


REFUSED = replace(PAIR, phase="broken", cause=replace(FAILURE, message="AssertionError"), trained=(1,))


def test_size_that_two_nodes_cannot_start_with_is_refused() -> None:
    """The job falls back to the size that has trained, charged once and with no node evicted, and says so."""
    state = connected(
        Limits(max_nodes=2), REFUSED, peer("n1", "stopped", REFUSED, failure="1 AssertionError"), phase="stopped"
    )
    assert state.workers is not None
    state = replace(state, workers=replace(state.workers, start_failure="1 AssertionError"))
    (after,) = compare_and_sets(state, 0.0)
    assert after is not None
    state, _ = machine.step(state, events.Tick(), 0.0)
    _, actions = machine.step(state, events.GenerationSeen(after, 2), 0.0)
    lines = [action.line for action in actions if isinstance(action, Tell)]

    assert ([member.uuid for member in after.members], after.refused, after.evicted) == (["n0"], (2,), "")
    assert (after.budget.charged, after.budget.restarts) == (1, 0)
    assert any("does not start with 2 workers" in line for line in lines), lines


@pytest.mark.parametrize(
    ("other", "trained"), [("1 OSError", (1,)), ("", (1,)), ("1 AssertionError", ()), ("1 AssertionError", (1, 2))]
)
def test_other_failures_are_charged_as_ever(other: str, trained: tuple[int, ...]) -> None:
    """Two causes, one node only, a script that has never trained, or a size that has: no size is to blame."""
    broken = replace(REFUSED, trained=trained)
    state = connected(
        Limits(max_nodes=2, max_restarts=3), broken, peer("n1", "stopped", broken, failure=other), phase="stopped"
    )
    assert state.workers is not None
    state = replace(state, workers=replace(state.workers, start_failure="1 AssertionError"))

    assert [(after.refused, after.budget.restarts) for after in compare_and_sets(state, 0.0) if after] == [((), 1)]


def test_peers_of_a_bad_start_are_left_to_fail_alike() -> None:
    """Where the size is in question workers are not stopped before they have had time to fail as the first did."""
    state = connected(Limits(max_nodes=2), replace(REFUSED, phase="running"), peer("n1", "member"), phase="running")
    state, _ = machine.step(state, events.Tick(), 0.0)
    state, at_once = machine.step(state, events.GenerationSeen(replace(REFUSED, revision=2), 2), 1.0)
    state, late = machine.step(state, events.Tick(), 3.1)

    assert of_kind(at_once, StopWorkers) == []
    assert len(of_kind(late, StopWorkers)) == 1


@pytest.mark.parametrize(
    ("limits", "newcomers", "proposes"),
    [
        (Limits(max_nodes=4, node_unit=2), 0, False),
        (Limits(max_nodes=4, node_unit=2), 1, False),
        (Limits(max_nodes=4, node_unit=2), 2, True),
        (Limits(max_nodes=4, world_sizes=(2, 4)), 1, False),
        (Limits(max_nodes=4, world_sizes=(2, 3)), 2, True),
    ],
)
def test_newcomers_are_taken_only_where_the_job_grows(limits: Limits, newcomers: int, proposes: bool) -> None:
    """A node that makes up no whole unit, or no size that the script can use, ends no generation."""
    others = [ready(f"n{place + 2}") for place in range(newcomers)]
    group = LocalWorkers(PAIR.identity, "running", highest=5, stepped_at=0.0)
    state = replace(connected(limits, PAIR, peer("n1", "member"), *others), workers=group)

    assert (change.propose(state, 60.0) is not None) is proposes


def test_charge_of_a_node_lost_a_moment_later_is_taken_back() -> None:
    """A worker that died just before its node did was the first sign of that and no failure."""
    charged = replace(PAIR, number=2, phase="broken", charged=True, budget=Budget(1, 1, culprit="n1"))
    charged = replace(charged, cause=Cause("node_lost", "n1", "n1"))
    lost = Peer(peer("n1", "member", charged).record, "ended", 0.0)
    state = connected(Limits(max_nodes=2, max_restarts=3), charged, lost, phase="stopped")
    seen = (charged.identity, "broken")
    soon = replace(state, seen=seen, committed_since=0.0, phase_since=1.5)
    late = replace(soon, phase_since=60.0)

    assert [after.budget.restarts for after in compare_and_sets(soon, 60.0) if after] == [0]
    assert [after.budget.restarts for after in compare_and_sets(late, 60.0) if after] == [1]


def test_job_fails_only_after_the_members_status_is_known() -> None:
    """With the budget spent the end waits 2 s for news that a member was lost; a single node ends at once."""
    broken = replace(PAIR, phase="broken", cause=FAILURE)
    state = connected(Limits(max_nodes=2), broken, peer("n1", "stopped"), phase="stopped")
    state = replace(state, seen=(broken.identity, "broken"))
    alone = replace(ALONE, phase="broken", cause=replace(FAILURE, uuid="n0"))

    assert compare_and_sets(state, 1.9) == []
    assert [(after.phase, after.exit_code) for after in compare_and_sets(state, 2.0) if after] == [("final", 1)]
    assert [after.phase for after in compare_and_sets(connected(Limits(), alone, phase="stopped"), 0.0) if after] == [
        "final"
    ]


def test_failure_under_a_reborn_store_is_not_charged() -> None:
    """The name of the member that broke the generation first died with the store: the failure costs nothing."""
    broken = replace(PAIR, phase="broken", cause=FAILURE, incarnation="before", confirmed=True)
    stopped = replace(peer("n1", "stopped").record, incarnation="before")
    state = connected(Limits(max_nodes=2), broken, Peer(stopped, "live", 0.0), phase="stopped")

    assert [(after.number, after.budget.charged) for after in compare_and_sets(state, 0.0) if after] == [(2, 0)]


def test_hang_is_killed_without_sigterm() -> None:
    """After a hang verdict: stacks, then SIGKILL, on this node and on its peers."""
    state = connected(Limits(max_nodes=2), PAIR, peer("n1", "member"), phase="running")
    _, own = machine.step(state, events.HangSeen(1, 0, "rank 0 hangs"), 0.0)
    broken = replace(PAIR, phase="broken", cause=Cause("hang", "n1", "n1"), revision=2)
    _, others = machine.step(state, events.GenerationSeen(broken, 2), 0.0)

    for actions in (own, others):
        assert [a.first for a in actions if isinstance(a, StopWorkers)] == ["stacks"]


def test_a_lost_peer_shortens_the_grace() -> None:
    """Workers whose peer is lost cannot save together any more: 5 s; those of a failed one get the whole grace."""
    lost = replace(peer("n1", "member"), presence="ended")
    for member, grace in ((lost, 5.0), (peer("n1", "member"), 30.0)):
        broken = replace(PAIR, phase="broken", cause=FAILURE)
        state = connected(Limits(max_nodes=2), broken, member, phase="running")
        _, actions = machine.step(state, events.Tick(), 1.0)

        assert [(a.first, a.grace_seconds) for a in actions if isinstance(a, StopWorkers)] == [("SIGTERM", grace)]


ANNOUNCED = [
    (
        replace(FAILURE, message="Rank 1 exited with code 1: boom."), True, "warning",
        "Rank 1 exited with code 1: boom. (Restart 1 of 3 since the last progress.) Workers start again: 2 on 2 nodes.",
    ),
    (
        Cause("node_lost", "n7", "n7"), False, "warning",
        "Node n7 is lost. (Not charged to max_restarts.) Workers start again: 2 on 2 nodes.",
    ),
    (
        Cause("scale_up", "n1", "n1"), False, "info",
        "Node n1 joined. (Not charged to max_restarts.) Workers start again: 2 on 2 nodes.",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("cause", "is_charged", "level", "line"), ANNOUNCED, ids=["failure", "loss", "newcomer"])
def test_a_restart_is_told_in_one_line(cause: Cause, is_charged: bool, level: str, line: str) -> None:
    """What ended the generation and what comes next, once; a failure and a loss at the default level."""
    limits = Limits(max_nodes=2, max_restarts=3)
    state, _ = machine.step(connected(limits, PAIR, peer("n1", "member"), phase="stopped"), events.Tick(), 1.0)
    following = replace(PAIR, number=2, revision=2, cause=cause, charged=is_charged, budget=Budget(restarts=1))
    state, actions = machine.step(state, events.GenerationSeen(following, 2), 2.0)
    _, later = machine.step(state, events.Tick(), 3.0)

    assert of_kind(actions, Tell) == [Tell(level, line)]  # type: ignore[arg-type]  # a level
    assert of_kind(later, Tell) == []


def test_lone_node_of_a_unit_says_what_it_waits_for() -> None:
    """The minimum alone would not tell why one node of one does not start."""
    state = connected(Limits(max_nodes=4, node_unit=2, world_sizes=(2, 4)), None)
    state, _ = machine.step(state, events.Tick(), 100.0)

    assert compare_and_sets(state, 100.0) == []
    assert "up to 4, in multiples of 2, with 2 or 4 workers in all" in machine.waiting_for(state, 100.0)


@pytest.mark.parametrize(("own", "others", "warnings"), [(2, 1, 1), (1, 2, 0)], ids=["later", "earlier"])
def test_connected_namesakes_are_both_admitted_with_one_warning(own: int, others: int, warnings: int) -> None:
    """The first round takes both launchers of one name; the one that came later warns, once."""
    namesakes = [
        replace(ready(uuid), record=replace(ready(uuid).record, name="pod"), arrived=arrived)
        for uuid, arrived in (("n0", own), ("n1", others))
    ]
    state = connected(Limits(min_nodes=2, max_nodes=2, initial_nodes=2), None, *namesakes)
    state = replace(state, node=Node("n0", "pod"))
    told = []
    for now in (0.0, 1.0, 2.0):
        state, actions = machine.step(state, events.Tick(), now)
        told += [action for action in of_kind(actions, Tell) if "pod" in str(action)]
        for generation in (action.generation for action in actions if isinstance(action, CompareAndSet)):
            state, _ = machine.step(state, events.GenerationSeen(generation, 1), now)

    assert state.generation is not None
    assert {member.uuid for member in state.generation.members} == {"n0", "n1"}
    assert [getattr(each, "level", "") for each in told] == ["warning"] * warnings
