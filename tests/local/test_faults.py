"""Words for faults, and plans of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_infra.local.chaos import chaos
from elastic_infra.local.faults import (
    Fault,
    FaultError,
    KillNode,
    KillWorker,
    LoseRendezvous,
    PreemptNode,
    Scale,
    Shape,
    StopWorker,
    check,
    parse_fault,
)
from elastic_infra.local.plan import Entry, Plan, check_plan, format_plan, parse_plan, read_plan

SHAPE = Shape(nodes=2, min_nodes=1, max_nodes=4, workers=2, has_store=True)

numbers = st.integers(0, 99_999)
faults: st.SearchStrategy[Fault] = st.one_of(
    st.builds(Scale, numbers),
    st.builds(KillNode, numbers),
    st.builds(PreemptNode, numbers),
    st.builds(KillWorker, numbers, numbers),
    st.builds(StopWorker, numbers, numbers),
    st.just(LoseRendezvous()),
)
times = st.integers(0, 9_999).map(lambda tenths: tenths / 10)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Plans whose times do not go back."""
    entries = draw(st.lists(st.builds(Entry, times, faults, st.booleans()), max_size=6))
    moments = iter(sorted(entry.seconds for entry in entries if not entry.after_recovery))
    return tuple(
        entry if entry.after_recovery else Entry(next(moments), entry.fault, after_recovery=False) for entry in entries
    )


shapes = st.builds(
    lambda low, extra, more, workers, has_store, restarts: Shape(
        low + min(extra, more), low, low + extra, workers, has_store, restarts
    ),
    st.integers(1, 5),
    st.integers(0, 4),
    st.integers(0, 4),
    st.integers(1, 4),
    st.booleans(),
    st.integers(0, 5),
)


@given(faults)
def test_words_of_a_fault(fault: Fault) -> None:
    """What is written is read back as the same fault."""
    assert parse_fault(str(fault)) == fault


@given(plans())
def test_line_of_a_plan(plan: Plan) -> None:
    """What is written is read back as the same plan."""
    assert parse_plan(format_plan(plan)) == plan


@given(plans())
def test_list_of_a_plan(plan: Plan) -> None:
    """The same entries as a YAML list are the same plan, as text and as mappings."""
    as_text = "".join(f"- {entry}\n" for entry in plan)
    as_mappings = "".join(
        f"- {{{'after' if entry.after_recovery else 'at'}: {entry.seconds:g}s, fault: {entry.fault}}}\n"
        for entry in plan
    )
    assert parse_plan(as_text) == plan
    assert parse_plan(as_mappings) == plan


def test_minutes_and_plain_numbers() -> None:
    """Seconds need no unit, minutes have one."""
    assert [entry.seconds for entry in parse_plan("30 scale 3; 1.5m scale 2")] == [30, 90]


def test_plan_in_a_file(tmp_path: Path) -> None:
    """What does not begin as a plan is the path of one."""
    (tmp_path / "plan.yaml").write_text("# two faults\n- 1s kill node 0\n- {at: 2, fault: scale 3}\n")
    assert format_plan(read_plan(str(tmp_path / "plan.yaml"))) == "1s kill node 0; 2s scale 3"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1s kill node 0; 2s kil node 1", "column 17: unknown fault 'kil node 1'. Did you mean 'kill node I'?"),
        ("1s kill node 0;\n  scale 3", "line 2, column 3: 'scale 3' does not begin with a time."),
        ("1s", "column 1: unknown fault ''. Known: scale N,"),
        ("5s scale 3; 2s scale 2", "`2s scale 2` comes after 5s in the plan."),
        ("- 1s scale 3\n- {at: 1s}", "entry 2: must be text such as"),
        ("- 1s scale 3\n- {at: 1s, fault: scale 2, more: 1}", "entry 2: must be text such as"),
        ("no such file", "'no such file' is neither a plan nor a file that can be read."),
        ("[1s scale 3", "is not valid YAML at line 2"),
    ],
)
def test_unreadable_plan(text: str, said: str) -> None:
    """A plan that cannot be read is refused with the place and with what is known."""
    with pytest.raises(FaultError) as caught:
        read_plan(text)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1s kill node 2", "there is no node 2: the job then has 2 nodes, from 0 on."),
        ("1s scale 3; 2s kill node 3", "there is no node 3: the job then has 3 nodes"),
        ("1s scale 1; 2s preempt node 1", "the job then has 1 node,"),
        ("1s scale 5", "elastic.nnodes allows 1 to 4 nodes"),
        ("1s kill worker 0.2", "there is no worker 0.2: a node has 2 workers"),
    ],
)
def test_impossible_plan(text: str, said: str) -> None:
    """Every fault is held against the job as it then is."""
    with pytest.raises(FaultError) as caught:
        check_plan(parse_plan(text), SHAPE)
    assert said in str(caught.value)


def test_nodes_that_come_later() -> None:
    """A node exists after the scale-up that brings it."""
    check_plan(parse_plan("1s scale 4; 2s stop worker 3.1; 3s lose rendezvous"), SHAPE)


@given(st.integers(), shapes)
def test_chaos_is_replayed(seed: int, shape: Shape) -> None:
    """A seed gives one plan, which reads back from its text."""
    plan = chaos(seed, shape)
    assert plan == chaos(seed, shape)
    assert parse_plan(format_plan(plan)) == plan


@given(st.integers(), shapes)
def test_chaos_can_be_survived(seed: int, shape: Shape) -> None:
    """Random faults are possible, wait for recovery, and leave a restart of the budget unused."""
    plan = chaos(seed, shape)
    check_plan(plan, shape)
    charged = [entry for entry in plan if isinstance(entry.fault, KillWorker | StopWorker)]
    assert all(entry.after_recovery for entry in plan)
    assert len(charged) <= max(0, shape.max_restarts - 1)


@given(faults)
def test_checked_faults_keep_the_bounds(fault: Fault) -> None:
    """A fault that is accepted leaves a number of nodes that the job may have."""
    try:
        nodes = check(fault, SHAPE, SHAPE.nodes)
    except FaultError:
        return
    assert SHAPE.min_nodes <= nodes <= SHAPE.max_nodes
