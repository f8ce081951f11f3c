"""What the driver that follows capacity decides: laws over random clusters, and its steps one by one."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_infra.launcher.driver.decision import LONGEST_PAUSE, Limits, Memory, Observation, begin, decide

PROBE = 60.0
LOOK = 10.0
"""Seconds between two looks."""
LIMITS = Limits((1, 2, 3, 4, 5, 6), PROBE)
SIZES = st.sets(st.integers(1, 12), min_size=1).map(lambda sizes: tuple(sorted(sizes)))


def settled(size: int, **changes: object) -> Observation:
    """A job whose nodes all train."""
    return dataclasses.replace(Observation(size, frozenset(range(size)), is_settled=True, spare=size), **changes)  # type: ignore[arg-type]


@dataclasses.dataclass
class Driven:
    """A job that the driver moves, in a cluster of which a test says how many of its pods have a place."""

    limits: Limits
    size: int
    now: float = 0.0
    memory: Memory | None = None
    history: list[tuple[float, int]] = dataclasses.field(default_factory=list)

    def look(self, capacity: int, waiting: Sequence[str] = ()) -> int:
        """One look; pods beyond `capacity` have no place."""
        self.memory = self.memory or begin(self.limits, self.now)
        placed = frozenset(range(min(self.size, capacity)))
        seen = settled(self.size, placed=placed, waiting=frozenset(waiting))
        size, _, self.memory = decide(seen, self.limits, self.memory, self.now)
        if size != self.size:
            self.history.append((self.now, size))
        self.size, self.now = size, self.now + LOOK
        return size

    def run(self, seconds: float, capacity: Callable[[float], int], waiting: Sequence[str] = ()) -> Iterator[int]:
        """The size after each look."""
        end = self.now + seconds
        while self.now < end:
            yield self.look(capacity(self.now), waiting)


@given(
    SIZES,
    st.integers(0, 15),
    st.lists(
        st.tuples(st.integers(0, 15), st.frozensets(st.sampled_from("abc")), st.integers(0, 3), st.booleans()),
        max_size=60,
    ),
)
def test_a_size_is_one_that_the_config_allows(
    sizes: tuple[int, ...], size: int, looks: list[tuple[int, frozenset[str], int, bool]]
) -> None:
    """Whatever the cluster does, and whoever else set the size: within the bounds, and a number that can train."""
    limits, memory, now = Limits(sizes, PROBE), begin(Limits(sizes, PROBE), 0.0), 0.0
    for capacity, waiting, spare, is_settled in looks:
        seen = Observation(size, frozenset(range(min(size, capacity))), is_settled, waiting, spare)
        size, why, memory = decide(seen, limits, memory, now)
        now += LOOK

        assert size in sizes
        assert why


@given(SIZES, st.data())
def test_a_step_back_ends_no_node_that_trains(sizes: tuple[int, ...], data: st.DataObject) -> None:
    """Where pods have no place, only sizes are left of which the rest trains with as many nodes as before."""
    size = data.draw(st.sampled_from(sizes))
    placed = data.draw(st.frozensets(st.integers(0, size - 1), max_size=size - 1))
    memory = dataclasses.replace(begin(Limits(sizes, PROBE), 0.0), missing=0.0)

    after, _, _ = decide(settled(size, placed=placed), Limits(sizes, PROBE), memory, PROBE)

    def training(count: int) -> int:
        return max((each for each in sizes if each <= count), default=count)

    assert after <= size
    assert training(len([index for index in placed if index < after])) == training(len(placed))


@given(SIZES, st.integers(0, 15), st.integers(1, 10))
def test_a_job_comes_to_rest_in_a_cluster_that_does_not_change(sizes: tuple[int, ...], room: int, hours: int) -> None:
    """It has all the nodes that there is room for, from the minimum on, and asks ever more seldom."""
    capacity = max(room, sizes[0])
    job = Driven(Limits(sizes, PROBE), sizes[0])
    seen = list(job.run(3600 * hours, lambda _: capacity))
    best = max(each for each in sizes if each <= capacity)
    downs = [now for now, size in job.history if size <= best]

    assert all(size >= best for size in seen[int(len(sizes) * 4 * PROBE / LOOK) :])
    assert len(job.history) <= 2 * len(sizes) + 2 * (6 + hours * 3600 / (LONGEST_PAUSE * PROBE))
    assert len(downs) >= (best > sizes[0])


@given(st.lists(st.tuples(st.integers(1, 8), st.integers(1, 40)), min_size=1, max_size=25))
def test_no_growth_before_the_pause_is_over(changes: list[tuple[int, int]]) -> None:
    """After a step down the job waits for two probes at least, and twice as long after each that follows soon."""
    job = Driven(LIMITS, 1)
    for capacity, looks in changes:
        for _ in range(looks):
            before, memory = job.size, job.memory
            after = job.look(capacity)
            if after > before:
                assert memory is not None
                assert job.now - LOOK >= memory.down + max(2 * PROBE, memory.pause)
            elif after < before:
                assert memory is not None
                assert job.memory is not None
                soon = job.now - LOOK - memory.down < 2 * memory.pause
                assert job.memory.pause == (min(2 * memory.pause, LONGEST_PAUSE * PROBE) if soon else 2 * PROBE)


def test_growth_doubles_and_ends_where_the_room_does() -> None:
    """One, two, four at a time; of the last step those stay that have found a place, and the next asks for one."""
    job = Driven(Limits(tuple(range(1, 33)), PROBE), 1)
    list(job.run(1000, lambda _: 13))

    assert [size for _, size in job.history][:6] == [2, 4, 8, 16, 13, 14]


def test_a_full_cluster_is_asked_ever_more_seldom() -> None:
    """The pauses between two growths double up to the longest one."""
    job = Driven(LIMITS, 1)
    list(job.run(100_000, lambda _: 1))
    asked = [now for now, size in job.history if size == 2]
    pauses = [(later - now - PROBE) / PROBE for now, later in itertools.pairwise(asked)]

    assert pauses[:6] == pytest.approx([2, 4, 8, 16, 32, 32], abs=1)
    assert max(pauses) <= LONGEST_PAUSE + 1


def test_another_pod_is_given_one_node_and_not_at_once() -> None:
    """A pod that still waits after that is not given a second one: it is not this job's room that it lacks."""
    job = Driven(LIMITS, 3)
    sizes = list(job.run(20 * 60, lambda _: 3, ["other"]))
    kept = sizes.index(2)

    assert PROBE <= kept * LOOK <= PROBE + LOOK
    assert min(sizes) == 2
    assert job.history[0][1] == 2


def test_two_that_wait_are_given_a_node_each() -> None:
    """One after the other."""
    job = Driven(LIMITS, 4)
    list(job.run(200, lambda _: 4, ["a", "b"]))

    assert [size for _, size in job.history] == [3, 2]


def test_a_pod_that_comes_and_goes_costs_ever_less() -> None:
    """Neighbours that wait again and again do not have the job go up and down all day: the pauses grow."""
    job = Driven(LIMITS, 2)
    for number in range(400):
        job.look(6, [f"other-{number // 20}"] if number % 20 > 5 and job.size > 1 else [])
    ups = sum(later > before for (_, before), (_, later) in itertools.pairwise(job.history))

    assert ups <= 8


@pytest.mark.parametrize(
    "seen",
    [
        settled(1, waiting=frozenset({"other"})),
        settled(3, waiting=frozenset({"other"}), spare=0),
        settled(3, waiting=frozenset({"other"}), is_settled=False),
        settled(3, waiting=frozenset({"other"}), placed=frozenset({0, 2})),
    ],
)
def test_no_node_is_given_up_that_must_stay(seen: Observation) -> None:
    """At the minimum, where a PodDisruptionBudget lets none go, and while the job itself is not whole."""
    memory = dataclasses.replace(begin(LIMITS, 0.0), ready=math.inf, due={"other": 0.0})

    size, _, _ = decide(seen, LIMITS, memory, 1000.0)

    assert size == seen.size


@pytest.mark.parametrize(
    "seen",
    [
        settled(2, is_settled=False),
        settled(2, placed=frozenset({1})),
        settled(2, waiting=frozenset({"other"})),
    ],
)
def test_a_job_that_is_not_whole_does_not_grow(seen: Observation) -> None:
    """Nor does one beside which another pod waits."""
    memory = dataclasses.replace(begin(LIMITS, 0.0), ready=0.0)

    assert decide(seen, LIMITS, memory, 1000.0)[0] == 2


@pytest.mark.parametrize(("size", "sizes", "after"), [(9, (2, 4), 4), (1, (2, 4), 2), (3, (2, 4), 2)])
def test_a_size_of_others_that_is_not_allowed_is_taken_back(size: int, sizes: tuple[int, ...], after: int) -> None:
    """The next smaller one, or the minimum."""
    limits = Limits(sizes, PROBE)

    assert decide(settled(size), limits, begin(limits, 0.0), 0.0)[0] == after


def test_a_lost_node_in_the_middle_costs_no_other() -> None:
    """Its index is not the highest, so that a smaller size would end a node that trains."""
    memory = dataclasses.replace(begin(LIMITS, 0.0), missing=0.0)
    size, _, _ = decide(settled(4, placed=frozenset({0, 2, 3})), LIMITS, memory, 1000.0)

    assert size == 4


def test_pods_that_find_room_in_time_stay() -> None:
    """A place that comes late, within the probe, is taken; the next growth is larger."""
    job = Driven(LIMITS, 1, memory=Memory(ready=0.0))
    job.look(1)
    list(job.run(PROBE - 2 * LOOK, lambda _: 1))
    job.look(6)

    assert job.size == 2
    assert job.memory is not None
    assert (job.memory.stride, job.memory.is_trial) == (2, False)
