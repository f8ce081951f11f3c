"""The rules by which a soak is drawn and judged."""

from __future__ import annotations

import itertools
import pathlib
import signal
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.launcher.loopback import ROOT
from tests.launcher.soak import plan, process_inventory, verdict

Line = dict[str, Any]


def worker(node: str, generation: int, rank: int = 0, world: int = 1) -> Line:
    meeting = f"10.99.0.2:{4000 + generation}"
    return {
        "node": node,
        "generation": generation,
        "meeting": meeting,
        "rank": rank,
        "world": world,
        "pid": 10 * generation + rank,
    }


def started(worker: Line, *others: Line) -> Line:
    return {"event": "start", "time": 1.0, **worker, "alive": [worker, *others]}


@given(st.integers(), st.integers(1, 300))
def test_plan_is_fair_and_bearable(seed: int, count: int) -> None:
    """A seed gives one plan; no three faults at once; scaling stays within the range of nodes."""
    faults = plan.draw(seed, count)

    assert faults == plan.draw(seed, count)
    assert [fault.number for fault in faults] == list(range(count))
    pairs = [fault.after is not None for fault in faults]
    assert not any(first and second for first, second in itertools.pairwise(pairs))
    assert all(second.after is None or first.kind != second.kind for first, second in itertools.pairwise(faults))
    nodes = plan.FIRST_NODES
    for fault in faults:
        nodes += {"scale_up": 1, "scale_down": -1}.get(fault.kind, 0)
        assert plan.LEAST_NODES <= nodes <= plan.MOST_NODES


def test_plan_holds_all_kinds_equally_often() -> None:
    """Of 180 faults 20 are of each kind, and of those that scale 40."""
    kinds = Counter(fault.kind for fault in plan.draw(7, 180))

    assert kinds.pop("scale_up") + kinds.pop("scale_down") == 40
    assert set(kinds.values()) == {20}


def test_two_complete_generations_are_seen() -> None:
    """The last worker of generation 2 starts while all of generation 1 run elsewhere."""
    old = worker("a", 1, 0, 2), worker("b", 1, 1, 2)

    assert verdict.guarantee([started(worker("c", 2), *old)])
    assert not verdict.guarantee([started(worker("c", 2), old[0])])
    assert not verdict.guarantee([started(worker("c", 2, 0, 2), *old)])


def test_start_beside_own_older_worker_is_seen() -> None:
    """A node that starts a generation has nothing left of the last one; others may."""
    assert verdict.guarantee([started(worker("a", 2), worker("a", 1, 0, 2))])
    assert not verdict.guarantee([started(worker("a", 2), worker("b", 1, 0, 2))])


def test_events_out_of_order_are_seen() -> None:
    """Workers started before the last ones were reported as ended; a new launcher begins anew."""
    first = [{"node": "a", "event": "worker_started", "generation": 1}]
    again = [{"node": "a", "event": "workers_started", "generation": 2}]

    assert verdict.told_order([*first, *again])
    assert not verdict.told_order([*first, {"node": "a", "event": "worker_exited", "generation": 1}, *again])
    for event in ("launcher_started", "agent_replaced"):
        assert not verdict.told_order([*first, {"node": "a", "event": event, "generation": 0}, *again])


def test_wrong_weight_is_seen() -> None:
    """A step that lost a worker's share leaves another weight."""
    step = {"event": "step", "step": 1, "generation": 1, "weight": 8}

    assert verdict.exact([step], [1, 7])
    assert not verdict.exact([step], [1, 8])


def generations(*restarts: int) -> list[dict[str, int]]:
    """The first line of each generation, which tells the charges so far."""
    return [{"generation": number, "restarts": count} for number, count in enumerate(restarts, 1)]


def test_charges_add_up_over_lives_of_the_store() -> None:
    """A store that lost every node counts from nothing again."""
    assert verdict.charged(generations(0, 1, 1, 3, 0, 0, 2)) == 5


def test_charge_given_back_is_none() -> None:
    """A failure that was the first sign of a lost node costs nothing in the end."""
    assert verdict.charged(generations(0, 1, 2, 1, 2, 3)) == 3


def test_late_word_of_an_old_generation_counts_once() -> None:
    """Workers of a node that was cut off write on after the next generation has begun."""
    assert verdict.charged([*generations(4, 5), *generations(4, 5)]) == 5


def test_outage_lasts_from_the_fault_to_the_next_step() -> None:
    """The longest time without a step belongs to the fault before it."""
    steps = [{"event": "step", "time": time} for time in (1.0, 2.0, 5.0, 6.0, 6.5)]
    faults = [
        verdict.Injection(0, "freeze", "a", 2.5, paired=False),
        verdict.Injection(1, "cut", "a", 6.1, paired=False),
    ]

    assert verdict.outages(steps, faults) == [2.5, pytest.approx(0.4)]


def test_the_inventory_knows_the_dead(tmp_path: pathlib.Path) -> None:
    """A worker counts while its process lives, frozen or not, and no longer."""
    code = (
        "import pathlib, sys; from tests.launcher.soak import process_inventory as inventory;"
        "inventory.enter(pathlib.Path(sys.argv[1]), inventory.Worker('a', 1, 'm', 0, 1, 1)); print(flush=True); input()"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGSTOP)
        assert [seen.node for seen in process_inventory.take(tmp_path)] == ["a"]
        process.kill()
        process.wait()
        assert process_inventory.take(tmp_path) == ()
