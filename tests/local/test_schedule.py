"""When faults are due: after the first step, or when training is back."""

from __future__ import annotations

from elastic_infra.local import controller
from elastic_infra.local.faults import parse_fault
from elastic_infra.local.plan import Entry, parse_plan
from elastic_infra.local.schedule import Schedule, advance
from elastic_infra.local.state import Exited, Rules, State, Struck, Tick
from elastic_infra.local.watch import SILENT_SECONDS, Training, apply_record
from elastic_infra.timeline.records import Record

RULES = Rules("PyTorchJob", "OnFailure", 6, frozenset(), 30.0, 5.0)


def running(nodes: int = 2) -> State:
    """A job whose pods run."""
    return controller.step(controller.begin(RULES, nodes, has_store=True), Tick(), 0.0)[0]


def record(event: str, generation: int, **fields: object) -> Record:
    """A record of node 0 with these fields."""
    return Record(0.0, event, "node-0", generation, 0, fields)


def training(*records: tuple[float, Record]) -> Training:
    """What is known after these."""
    known = Training()
    for now, each in records:
        known = apply_record(known, each, now)
    return known


STARTED = (10.0, record("workers_started", 1, world_size=2))
STEPPED = (15.0, record("progress", 1, highest=1))


def due(schedule: Schedule, state: State, known: Training, now: float) -> tuple[Schedule, Entry | None]:
    """One look, with one worker a node."""
    return advance(schedule, state, known, 1, now)


def test_times_count_from_the_first_step() -> None:
    """Not from the start of the processes, whose imports may take long."""
    schedule = Schedule(parse_plan("3s kill node 1"))
    assert due(schedule, running(), training(STARTED), 14.0)[1] is None
    assert due(schedule, running(), training(STARTED, STEPPED), 17.9)[1] is None
    assert due(schedule, running(), training(STARTED, STEPPED), 18.0)[1] == schedule.left[0]


def test_script_that_reports_no_steps() -> None:
    """It is taken to train some time after its workers were started."""
    schedule = Schedule(parse_plan("3s kill node 1"))
    assert due(schedule, running(), training(STARTED), 12.9 + SILENT_SECONDS)[1] is None
    assert due(schedule, running(), training(STARTED), 13.0 + SILENT_SECONDS)[1] is not None


def test_waits_for_recovery() -> None:
    """After a fault: every node runs, and all workers have done a step in a new generation."""
    state, known = running(), training(STARTED, STEPPED)
    schedule = Schedule(parse_plan("1s kill node 1; +2s scale 3"))
    schedule, struck = due(schedule, state, known, 16.0)
    assert struck is not None
    down = controller.step(state, Struck(struck.fault), 16.0)[0]
    schedule, early = due(schedule, down, apply_record(known, record("progress", 1), 16.1), 30.0)
    assert early is None
    smaller = apply_record(
        apply_record(known, record("workers_started", 2, world_size=1), 31.0), record("progress", 2), 32.0
    )
    down = controller.step(controller.step(down, Exited("node-1", 137), 16.0)[0], Tick(), 19.0)[0]
    schedule, early = due(schedule, down, smaller, 40.0)
    assert early is None
    whole = apply_record(
        apply_record(smaller, record("workers_started", 3, world_size=2), 41.0), record("progress", 3), 42.0
    )
    schedule, early = due(schedule, down, whole, 42.0)
    assert early is None
    assert due(schedule, down, whole, 44.0)[1] == Entry(2, parse_fault("scale 3"), after_recovery=True)


def test_old_steps_are_no_recovery() -> None:
    """Workers that have not noticed yet still report; only a generation begun after the fault counts."""
    state, known = running(), training(STARTED, STEPPED)
    schedule, struck = due(Schedule(parse_plan("1s kill worker 0.0; +0s scale 3")), state, known, 16.0)
    assert struck is not None
    assert due(schedule, state, apply_record(known, record("progress", 1), 17.0), 99.0)[1] is None


def test_lost_store_needs_no_new_generation() -> None:
    """Workers train on without the store; it is back when its pod runs and a step was done."""
    state, known = running(), training(STARTED, STEPPED)
    schedule, struck = due(Schedule(parse_plan("1s lose rendezvous; +0s scale 3")), state, known, 16.0)
    assert struck is not None
    assert due(schedule, state, known, 20.0)[1] is None
    assert due(schedule, state, apply_record(known, record("progress", 1), 21.0), 21.0)[1] is not None


def test_ended_job() -> None:
    """No fault comes any more."""
    ended = controller.step(running(), Exited("node-0", 0), 20.0)[0]
    assert due(Schedule(parse_plan("0s scale 3")), ended, training(STARTED, STEPPED), 99.0)[1] is None


def test_a_missed_fault_holds_nothing_up() -> None:
    """What hit nothing brings no new generation: the next entry waits only for the training to go on."""
    schedule = Schedule(parse_plan("0s kill worker 1.0; +3s kill node 1"))
    known = training(STARTED, STEPPED)
    schedule, entry = due(schedule, running(), known, 16.0)
    assert entry is not None
    schedule = schedule.missed()
    known = apply_record(known, record("progress", 1, highest=2), 17.0)
    schedule, entry = due(schedule, running(), known, 17.0)
    assert entry is None
    assert due(schedule, running(), known, 20.0)[1] is not None
