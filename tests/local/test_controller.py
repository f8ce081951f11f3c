"""The pure machine, held against a simulated machine room in which anything may end at any time."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_infra.local import controller
from elastic_infra.local.faults import (
    Fault,
    KillNode,
    KillWorker,
    LoseRendezvous,
    PreemptNode,
    Scale,
    StopWorker,
)
from elastic_infra.local.state import (
    STORE,
    Action,
    Event,
    Exited,
    Interrupted,
    Judged,
    Kill,
    Missed,
    Rules,
    Signal,
    Start,
    State,
    Struck,
    Terminate,
    Tick,
    TimedOut,
    node,
)

ELASTIC = Rules("PyTorchJob", "OnFailure", 6, frozenset(), 30.0, 5.0)
EXIT_CODE = dataclasses.replace(ELASTIC, restart_policy="ExitCode")
SINGLE = Rules("Job", "Never", 2, frozenset({1, 2, 93}), 30.0, 0.0)


class Room:
    """The processes that the machine's actions make, and its clock."""

    def __init__(self, rules: Rules, nodes: int = 2, *, has_store: bool = True) -> None:
        self.state: State = controller.begin(rules, nodes, has_store=has_store)
        self.now = 0.0
        self.alive: set[str] = set()
        self.terminated: set[str] = set()
        self.actions: list[Action] = []
        self.tell(Tick())

    def tell(self, event: Event) -> tuple[Action, ...]:
        """Give the machine an event and carry out its actions; a killed pod's end is told at once."""
        self.state, actions = controller.step(self.state, event, self.now)
        self.actions += actions
        for action in actions:
            match action:
                case Start(name):
                    assert name not in self.alive
                    assert self.state.outcome is None
                    self.alive.add(name)
                    self.terminated.discard(name)
                case Terminate(name):
                    assert name in self.alive
                    self.terminated.add(name)
                case Kill(name):
                    self.exit(name, 137)
                case Signal(name):
                    assert name in self.alive
                case Judged() | Missed():
                    pass
        return actions

    def exit(self, name: str, code: int) -> None:
        """The state after a pod has ended."""
        if name in self.alive:
            self.alive.remove(name)
            self.tell(Exited(name, code))

    def strike(self, fault: Fault) -> tuple[Action, ...]:
        """A fault is due."""
        return self.tell(Struck(fault))

    def wait(self, seconds: float) -> None:
        """Let time pass, with a tick at every deadline, and no pod that ends by itself."""
        end = self.now + seconds
        while (due := controller.deadline(self.state)) is not None and due <= end:
            before = self.state
            self.now = max(self.now, due)
            self.tell(Tick())
            assert self.state != before, "a tick at its deadline does something"
        self.now = end
        self.tell(Tick())

    @property
    def nodes(self) -> set[str]:
        """Names of the nodes that run."""
        return self.alive - {STORE}

    def verdicts(self, name: str) -> list[str]:
        """What was made of the ends of a pod."""
        return [action.verdict for action in self.actions if isinstance(action, Judged) and action.name == name]


def test_begins_with_every_pod() -> None:
    """A new job has its nodes and its store, all of them new."""
    room = Room(ELASTIC, 3)
    assert room.alive == {STORE, node(0), node(1), node(2)}
    assert controller.is_settled(room.state)


def test_killed_node_comes_back() -> None:
    """A killed node is a new pod with its index 2 s later, and counts against nothing."""
    room = Room(ELASTIC)
    room.strike(KillNode(1))
    assert room.nodes == {node(0)}
    room.wait(1.9)
    assert room.nodes == {node(0)}
    room.wait(0.2)
    assert room.nodes == {node(0), node(1)}
    assert room.actions[-1] == Start(node(1), is_new=True)
    assert all(pod.restarts == 0 for pod in room.state.pods)


def test_preempted_node_has_its_grace() -> None:
    """SIGTERM, then SIGKILL when the pod's grace has passed; the node comes back."""
    room = Room(ELASTIC)
    assert room.strike(PreemptNode(0)) == (Terminate(node(0)),)
    room.wait(29.9)
    assert node(0) in room.alive
    room.wait(0.2)
    assert node(0) not in room.alive
    room.wait(2.0)
    assert node(0) in room.alive


def test_preempted_node_that_leaves_in_time() -> None:
    """A node that ends within its grace is not killed."""
    room = Room(ELASTIC)
    room.strike(PreemptNode(0))
    room.exit(node(0), 143)
    room.wait(40)
    assert Kill(node(0)) not in room.actions
    assert room.nodes == {node(0), node(1)}


def test_lost_store_comes_back() -> None:
    """The store's Deployment starts it anew."""
    room = Room(ELASTIC)
    room.strike(LoseRendezvous())
    assert STORE not in room.alive
    assert not controller.is_settled(room.state)
    room.wait(2.0)
    assert STORE in room.alive


def test_scale_up_and_down() -> None:
    """New nodes start at once; the highest indexes are told to go and do not come back."""
    room = Room(ELASTIC)
    room.strike(Scale(4))
    room.wait(0)
    assert room.nodes == {node(index) for index in range(4)}
    room.strike(Scale(1))
    assert room.terminated == {node(1), node(2), node(3)}
    for name in sorted(room.terminated):
        room.exit(name, 143)
    room.wait(10)
    assert room.nodes == {node(0)}


def test_scale_up_onto_a_node_that_is_leaving() -> None:
    """An index is used again only when its pod is gone."""
    room = Room(ELASTIC)
    room.strike(Scale(1))
    room.strike(Scale(2))
    room.wait(5)
    assert node(1) in room.terminated
    room.exit(node(1), 143)
    room.wait(2)
    assert room.nodes == {node(0), node(1)}


def test_fault_on_a_node_that_is_away() -> None:
    """It is missed, and said so."""
    room = Room(ELASTIC)
    room.strike(KillNode(1))
    assert room.strike(KillWorker(1, 0)) == (Missed(KillWorker(1, 0), "node-1 is not running"),)


def test_worker_faults_are_signals() -> None:
    """A worker is killed or stopped; its pod is not touched."""
    room = Room(ELASTIC)
    assert room.strike(KillWorker(0, 1)) == (Signal(node(0), 1, "SIGKILL"),)
    assert room.strike(StopWorker(1, 0)) == (Signal(node(1), 0, "SIGSTOP"),)


@pytest.mark.parametrize("code", [1, 2, 93, 137, 200])
def test_on_failure_restarts_in_place(code: int) -> None:
    """After any code the container starts again with its files, until the restarts are used up."""
    room = Room(ELASTIC, 1)
    for restart in range(1, 6):
        room.exit(node(0), code)
        room.wait(2.0)
        assert room.actions[-1] == Start(node(0), is_new=False)
        assert next(pod.restarts for pod in room.state.pods if pod.name == node(0)) == restart
    room.exit(node(0), code)
    assert room.verdicts(node(0)) == ["retry"] * 5 + ["permanent"]
    assert room.state.outcome is not None
    assert "backoff_limit (6)" in room.state.outcome.reason


def test_restarts_are_summed_over_nodes_and_forgotten_with_the_pod() -> None:
    """The limit is for all pods together; a pod that is replaced starts to count anew."""
    room = Room(ELASTIC)
    for _ in range(4):
        room.exit(node(0), 1)
        room.wait(2)
    room.strike(KillNode(0))
    room.wait(2)
    for _ in range(5):
        room.exit(node(1), 1)
        room.wait(2)
    assert room.state.outcome is None
    room.exit(node(0), 1)
    assert room.state.outcome is not None


@pytest.mark.parametrize(("code", "verdict"), [(1, "permanent"), (127, "permanent"), (128, "retry"), (200, "retry")])
def test_exit_code_policy(code: int, verdict: str) -> None:
    """Codes from 128 give a new pod without end, lower ones fail the job."""
    room = Room(EXIT_CODE)
    room.exit(node(1), code)
    assert room.verdicts(node(1)) == [verdict]
    assert (room.state.outcome is None) == (verdict == "retry")
    room.wait(2)
    assert (node(1) in room.alive) == (verdict == "retry")


def test_exit_code_policy_has_no_limit() -> None:
    """Retries under ExitCode are not counted."""
    room = Room(EXIT_CODE)
    for _ in range(30):
        room.exit(node(0), 200)
        room.wait(2)
    assert room.state.outcome is None


@pytest.mark.parametrize("code", [1, 2, 93])
def test_job_fails_at_once(code: int) -> None:
    """The launcher's permanent codes fail a Job."""
    room = Room(SINGLE, 1, has_store=False)
    room.exit(node(0), code)
    assert room.verdicts(node(0)) == ["permanent"]


def test_job_retries_up_to_its_limit() -> None:
    """Other codes give a new pod, one more than the limit fails; a preemption does not count."""
    room = Room(SINGLE, 1, has_store=False)
    for _ in range(5):
        room.strike(PreemptNode(0))
        room.exit(node(0), 143)
        room.wait(2)
    for _ in range(2):
        room.exit(node(0), 200)
        room.wait(2)
        assert room.actions[-1] == Start(node(0), is_new=True)
    room.exit(node(0), 200)
    assert room.verdicts(node(0)) == ["retry"] * 7 + ["permanent"]


def test_first_success_ends_the_job() -> None:
    """The others are told soon, the store when they are gone."""
    room = Room(ELASTIC)
    room.exit(node(1), 0)
    assert room.state.outcome is not None
    assert room.state.outcome.succeeded
    assert not room.terminated
    room.wait(2)
    assert room.terminated == {node(0)}
    room.exit(node(0), 143)
    room.wait(0)
    assert room.terminated == {node(0), STORE}
    room.exit(STORE, 143)
    assert controller.is_over(room.state)


def test_interrupt_is_a_preemption_of_all() -> None:
    """Once: every node is told and has its grace. Twice: everything is killed."""
    room = Room(ELASTIC)
    room.tell(Interrupted())
    room.wait(1)
    assert room.terminated == {node(0), node(1)}
    assert room.alive == {node(0), node(1), STORE}
    room.tell(Interrupted())
    assert not room.alive
    assert controller.is_over(room.state)
    assert room.state.outcome is not None
    assert room.state.outcome.interrupted


def test_failed_job_does_not_wait_for_its_grace() -> None:
    """What is left of a job that ran out of time has 15 s at most."""
    room = Room(ELASTIC)
    room.tell(TimedOut(60))
    room.wait(16)
    room.wait(6)
    assert controller.is_over(room.state)
    assert room.state.outcome is not None
    assert room.state.outcome.reason == "it took longer than 60 s"


def test_success_beats_a_later_interrupt() -> None:
    """The first outcome stays."""
    room = Room(ELASTIC)
    room.exit(node(0), 0)
    room.tell(Interrupted())
    assert room.state.outcome is not None
    assert room.state.outcome.succeeded


names = st.sampled_from([STORE, *(node(index) for index in range(4))])
faults: st.SearchStrategy[Fault] = st.one_of(
    st.builds(Scale, st.integers(1, 4)),
    st.builds(KillNode, st.integers(0, 3)),
    st.builds(PreemptNode, st.integers(0, 3)),
    st.builds(KillWorker, st.integers(0, 3), st.integers(0, 1)),
    st.just(LoseRendezvous()),
)
happenings = st.one_of(
    st.tuples(st.just("fault"), faults),
    st.tuples(st.just("exit"), names, st.sampled_from([0, 1, 93, 137, 143, 200])),
    st.tuples(st.just("wait"), st.floats(0, 40)),
    st.tuples(st.just("interrupt")),
    st.tuples(st.just("timeout")),
)
rules = st.sampled_from([ELASTIC, EXIT_CODE, dataclasses.replace(ELASTIC, backoff_limit=None)])


def live_through(room: Room, happening: tuple[object, ...]) -> None:
    """Apply one drawn event to the job."""
    match happening:
        case ("fault", fault):
            room.strike(fault)  # type: ignore[arg-type]  # drawn as one
        case ("exit", str(name), int(code)):
            room.exit(name, code)
        case ("wait", float(seconds)):
            room.wait(seconds)
        case ("interrupt",):
            room.tell(Interrupted())
        case ("timeout",):
            room.tell(TimedOut(9.0))
        case _:
            raise AssertionError(happening)


@given(rules, st.lists(happenings, max_size=25))
def test_any_history(rules: Rules, history: list[tuple[object, ...]]) -> None:
    """A live job gets back all its nodes, an ended one loses all its pods; nothing is ever started twice."""
    room = Room(rules)
    for happening in history:
        live_through(room, happening)
        assert {pod.name for pod in room.state.pods if pod.phase in {"running", "leaving"}} == room.alive
    room.wait(300)
    if room.state.outcome is None:
        assert room.alive == {STORE, *(node(index) for index in range(room.state.nodes))}
        assert controller.is_settled(room.state)
    else:
        assert not room.alive
        assert controller.is_over(room.state)
        assert controller.deadline(room.state) is None
