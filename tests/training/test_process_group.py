"""Which group a script gets, and with which timeout, without a launcher."""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import queue
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, NoReturn

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from elastic_infra.launcher.workers import channel
from elastic_infra.training import Elastic, ElasticGroup, ElasticSampler, ElasticState
from elastic_infra.training.connections import Connections
from elastic_infra.training.process_group import BrokenError, rebind
from elastic_infra.training.waits import Waits
from tests.ports import free_port


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What torch is asked for, in place of a group."""
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(dist, "init_process_group", lambda backend, **options: asked.append({"is": backend, **options}))
    return asked


@pytest.mark.parametrize("backend", ["nccl", "cpu:gloo,cuda:nccl"])
def test_torchs_own_group_has_torchs_own_timeout(made: list[dict[str, Any]], backend: str) -> None:
    """Ten minutes for NCCL, or what the job's `nccl_collective_timeout_sec` made of it."""
    ElasticGroup.start(backend, environ={"RANK": "0"})

    assert made == [{"is": backend, "timeout": None}]


def test_a_timeout_that_the_script_gives_counts(made: list[dict[str, Any]]) -> None:
    """It is the script's to say."""
    ElasticGroup.start("nccl", timeout=timedelta(minutes=3), environ={"RANK": "0"})

    assert made == [{"is": "nccl", "timeout": timedelta(minutes=3)}]


@pytest.fixture
def agent_and_worker(tmp_path: pathlib.Path) -> Iterator[tuple[channel.Connection, channel.Connection]]:
    """Both ends of the channel, in this process."""
    server = channel.Server.listen(str(tmp_path / "channel"))
    worker = channel.connect({channel.VARIABLE: server.path})
    assert worker is not None
    server.end.setblocking(True)  # noqa: FBT003  its only form
    server.accept()
    agent = server.claim(os.getpid())
    assert agent is not None
    assert channel.is_welcome(worker)
    yield agent, worker
    for end in (agent, worker, server):
        end.close()


def listening(connection: channel.Connection, freeing: Connections | None = None) -> ElasticGroup:
    """A group that hears its agent and meets no peers."""
    group = ElasticGroup(connection, environ={}, freeing=freeing)
    group._make = lambda: None  # type: ignore[method-assign]  # no peers are here
    assert group._orders is not None
    group._orders.listen()
    return group


def break_up(agent: channel.Connection, group: ElasticGroup) -> NoReturn:
    """Have the agent break the present generation and begin the next one, as where a peer is lost."""
    agent.send(channel.Break(group.generation))
    agent.send(channel.Enter(group.generation + 1, {}))
    while not group.is_broken:
        time.sleep(0.001)
    raise BrokenError


@pytest.mark.parametrize(("rank", "lines"), [("0", 1), ("1", 0)])
def test_groups_that_are_made_anew_in_each_generation_are_no_obstacle(
    agent_and_worker: tuple[channel.Connection, channel.Connection],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    rank: str,
    lines: int,
) -> None:
    """Those of a mesh in the function that builds the model; older ones are gone, and another group is named once."""
    monkeypatch.setenv("RANK", rank)
    agent, connection = agent_and_worker
    group = listening(connection)

    def settle() -> None:
        with group.remade():
            dist.new_group(backend="gloo")

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        for generation in (1, 2):
            agent.send(channel.Enter(generation, {}))
            assert group.begin(settle) is None
            assert [agent.receive(), agent.receive()] == [channel.Ready(), channel.In(generation)]
            assert len(dist.distributed_c10d._world.pg_map) == 2
        dist.new_group(backend="gloo")
        group.look()
        assert agent.receive() == channel.In(
            2, "the script made 1 process groups of its own, which only the script could make again"
        )
        assert capsys.readouterr().err.count("Workers restart when nodes come or go: the script made") == lines
    finally:
        dist.destroy_process_group()


def test_groups_of_a_build_that_broke_are_gone_before_the_next_one(
    agent_and_worker: tuple[channel.Connection, channel.Connection],
) -> None:
    """Torch's group stays where it is reconfigured: those made so far would be an obstacle, and have the next names."""
    agent, connection = agent_and_worker
    group = listening(connection)

    def settle() -> None:
        with group.remade():
            dist.new_group(backend="gloo")
            if group.generation == 1:
                break_up(agent, group)

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        agent.send(channel.Enter(1, {}))
        assert group.begin(settle) is None
        assert [agent.receive() for _ in range(3)] == [channel.Ready(), channel.Parked(1, 0), channel.In(2)]
        assert len(dist.distributed_c10d._world.pg_map) == 2
    finally:
        dist.destroy_process_group()


class Leaving(Connections):
    """Gloo leaves the main thread in a collective."""

    def __init__(self) -> None:
        super().__init__()
        self.cuts = 0

    def cut(self) -> int:
        self.cuts += 1
        return 0

    def left_waiting(self) -> Waits:
        return ((1, 1),)


def test_the_agent_hears_of_a_worker_that_nothing_frees(
    agent_and_worker: tuple[channel.Connection, channel.Connection],
) -> None:
    """The worker cuts again until two looks show that nothing moves; it may leave all the same."""
    agent, connection = agent_and_worker
    freeing = Leaving()
    group = listening(connection, freeing)
    said: list[channel.Message | None] = []

    def settle() -> None:
        if group.generation == 1:
            said.append(agent.receive())
            agent.send(channel.Break(1))
            while len(said) < 2:
                time.sleep(0.01)
                said.extend(message for message in [agent.receive()] if message is not None)
            agent.send(channel.Enter(2, {}))
            raise BrokenError

    agent.send(channel.Enter(1, {}))
    assert group.begin(settle) is None
    assert said == [channel.Ready(), channel.Stuck(1)]
    assert freeing.cuts > 2
    assert [agent.receive() for _ in range(2)] == [channel.Parked(1, 0), channel.In(2)]


def test_another_thread_frees_the_groups_that_were_left(
    agent_and_worker: tuple[channel.Connection, channel.Connection],
) -> None:
    """Gloo's destructor waits for a collective that may never end, wherever the model drops its last reference."""
    agent, connection = agent_and_worker
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = [dist.group.WORLD]
    freed_by: queue.Queue[str] = queue.Queue()
    weakref.finalize(model[0], lambda: freed_by.put(threading.current_thread().name))
    group = ElasticGroup(connection, environ={})
    assert group._orders is not None
    group._orders.listen()
    port = str(free_port())
    agent.send(channel.Enter(1, {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}))

    try:
        assert group.begin(model.clear) is None
        assert freed_by.get(timeout=30) == "groups that were left"
    finally:
        dist.destroy_process_group()


def test_another_thread_frees_the_groups_of_a_process_that_is_dismissed(
    agent_and_worker: tuple[channel.Connection, channel.Connection],
) -> None:
    """It has left one group and enters no other: its end must not wait for a collective that never ends."""
    agent, connection = agent_and_worker
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    freed_by: queue.Queue[str] = queue.Queue()
    weakref.finalize(dist.group.WORLD, lambda: freed_by.put(threading.current_thread().name))
    group = ElasticGroup(connection, environ={})
    group._left += group._way.leave()
    group.leave()

    assert freed_by.get(timeout=30) == "groups that were left"
    assert isinstance(agent.receive(), channel.In)


def test_a_worker_that_others_went_on_without_takes_their_state(
    agent_and_worker: tuple[channel.Connection, channel.Connection],
) -> None:
    """Also where the first group that it enters breaks before it has the state; from then on the state is its own."""
    agent, connection = agent_and_worker
    group = listening(connection)
    seen: list[tuple[int, bool]] = []

    def settle() -> None:
        seen.append((group.generation, group.is_behind))
        if group.generation == 2:
            break_up(agent, group)

    agent.send(channel.Enter(2, {}, behind=True))
    assert group.move(7, settle) is None
    agent.send(channel.Enter(4, {}))
    assert group.move(8, settle) is None

    assert seen == [(2, True), (3, True), (4, False)]


class Garbling:
    """A backend whose collectives, where they are cut, end without an error."""

    garbles = True
    has_failed = False

    def __init__(self) -> None:
        self.confirmed = 0

    settling = staticmethod(contextlib.nullcontext)

    def making(self, size: int) -> contextlib.AbstractContextManager[None]:
        del size
        return contextlib.nullcontext()

    def left_waiting(self) -> Waits:
        return ()

    def forget(self) -> None:
        pass

    def cut(self) -> int:
        return 1

    def confirm(self) -> None:
        self.confirmed += 1


@pytest.fixture
def garbled(
    agent_and_worker: tuple[channel.Connection, channel.Connection],
) -> tuple[channel.Connection, ElasticGroup, Garbling]:
    """A worker in generation 1, its agent, and its backend."""
    agent, connection = agent_and_worker
    freeing = Garbling()
    group = ElasticGroup(connection, {}, freeing=freeing)
    assert group._orders is not None
    group._orders.listen()
    group.generation = 1
    return agent, group, freeing


def broken(agent: channel.Connection, group: ElasticGroup) -> None:
    """The generation has ended."""
    agent.send(channel.Break(1))
    while not group.is_broken:
        time.sleep(0.001)


def test_results_of_a_cut_collective_are_refused(garbled: tuple[channel.Connection, ElasticGroup, Garbling]) -> None:
    """They are waited for; then the launcher's word and the backend's own error count, each alone."""
    agent, group, freeing = garbled
    group.confirm()
    assert freeing.confirmed == 1

    freeing.has_failed = True
    with pytest.raises(BrokenError):
        group.confirm()
    freeing.has_failed = False
    broken(agent, group)
    with pytest.raises(BrokenError):
        group.confirm()


@pytest.mark.parametrize("error", [ValueError("the loss is NaN"), KeyError("garbage"), RuntimeError("NCCL aborted")])
def test_any_error_of_garbled_values_is_the_groups(
    garbled: tuple[channel.Connection, ElasticGroup, Garbling], error: Exception
) -> None:
    """What a script makes of them says nothing of the script; the device has come to rest before the step is undone."""
    agent, group, freeing = garbled
    broken(agent, group)

    assert group.takes(error)
    assert freeing.confirmed == 1


def test_an_error_of_the_script_stays_its_own(garbled: tuple[channel.Connection, ElasticGroup, Garbling]) -> None:
    """Where no collective was cut."""
    _, group, _ = garbled

    assert not group.takes(ValueError("the loss is NaN"))


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA error: an illegal memory access was encountered"),
        torch.OutOfMemoryError("CUDA out of memory"),
    ],
)
def test_an_error_of_the_device_restarts_the_worker(
    garbled: tuple[channel.Connection, ElasticGroup, Garbling], error: Exception
) -> None:
    """Also in a broken generation: its context may be lost, and only another process has a new one."""
    agent, group, _ = garbled
    broken(agent, group)

    assert not group.takes(error)


@pytest.fixture
def entering(agent_and_worker: tuple[channel.Connection, channel.Connection]) -> Iterator[ElasticGroup]:
    """A process in a group of its own, which the agent has enter the next one."""
    agent, connection = agent_and_worker
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        agent.send(channel.Enter(1, {}))
        yield listening(connection)
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("held", ["wrapper", "model", "whole"])
def test_a_wrapper_enters_a_group_whoever_holds_it(entering: ElasticGroup, held: str) -> None:
    """The state has the wrapper, the model in it, or one around it; else its gradients would stay in this process."""
    model = torch.nn.Linear(1, 1)
    wrapper = DistributedDataParallel(model)
    members = {"wrapper": wrapper, "model": model, "whole": torch.nn.Sequential(wrapper)}
    before = wrapper.reducer
    elastic = Elastic(ElasticState(None, model=members[held]), group=entering)

    next(elastic.steps(until=1))
    assert wrapper.reducer is not before


def test_a_wrapper_inside_of_an_object_that_is_no_module_enters_too(entering: ElasticGroup) -> None:
    """The state sees the weights that such an object has in its ``state_dict``."""

    class Engine:
        def __init__(self) -> None:
            self.wrapper = DistributedDataParallel(torch.nn.Linear(1, 1))
            self.state_dict, self.load_state_dict = self.wrapper.state_dict, self.wrapper.load_state_dict

    engine = Engine()
    before = engine.wrapper.reducer

    next(Elastic(ElasticState(None, engine=engine), group=entering).steps(until=1))
    assert engine.wrapper.reducer is not before


def test_a_wrapper_whose_weights_no_member_has_is_refused(entering: ElasticGroup) -> None:
    """New workers would train others; one that the script has thrown away is none."""
    state = ElasticState(None, model=torch.nn.Linear(1, 1))
    wrapper = DistributedDataParallel(torch.nn.Bilinear(1, 1, 1))
    said = r"DistributedDataParallel\(Bilinear\) trains weight, which is in no member .* Give the model to ElasticState"
    with pytest.raises(RuntimeError, match=said):
        next(Elastic(state, group=entering).steps(until=1))

    wrapper.itself = [wrapper]
    del wrapper
    assert next(Elastic(state, group=entering).steps(until=1))[0] == 1


def test_a_wrapper_beside_a_function_that_builds_the_model_is_refused(entering: ElasticGroup) -> None:
    """It would stay in the group of this process, while the built model changes groups."""
    wrapper = DistributedDataParallel(torch.nn.Linear(1, 1))
    state = ElasticState(None, critic=wrapper, build=lambda: {"model": torch.nn.Linear(1, 1)})

    with pytest.raises(RuntimeError, match=r"made before the loop, and would stay .*: make it in build="):
        next(Elastic(state, group=entering).steps(until=1))


@pytest.mark.slow  # the import of the compiler takes longer than the test
def test_what_is_compiled_inside_of_the_wrapper_is_not_compiled_again() -> None:
    """In three groups after one another, of which the wrapper is given each."""
    compiled: list[object] = []

    def note(graph: torch.fx.GraphModule, _: object) -> Callable[..., object]:
        compiled.append(graph)
        forward: Callable[..., object] = graph.forward
        return forward

    model: DistributedDataParallel | None = None
    counts = []
    for _ in range(3):
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        try:
            if model is None:
                model = DistributedDataParallel(torch.compile(torch.nn.Linear(2, 1), backend=note))
            rebind(model)
            for _ in range(2):
                model(torch.ones(3, 2)).sum().backward()
        finally:
            dist.destroy_process_group()
        counts.append(len(compiled))

    assert counts == [1, 1, 1]


def test_no_further_batch_of_a_broken_step_is_computed(
    agent_and_worker: tuple[channel.Connection, channel.Connection],
) -> None:
    """A step that adds up gradients meets its peers with the last batch alone, which may be minutes away."""
    agent, connection = agent_and_worker
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    computed: list[int] = []
    try:
        group = listening(connection)
        sampler = ElasticSampler(24, global_batch=12, micro_batch=2)
        state = ElasticState(None, model=torch.nn.Linear(1, 1), data=sampler)
        elastic = Elastic(state, DataLoader(list(range(24)), batch_sampler=sampler), group=group)
        agent.send(channel.Enter(1, {}))
        for _, micro in elastic.steps(until=1):
            with elastic.step():
                for _batch, _sync in micro:
                    computed.append(group.generation)
                    if computed == [1, 1]:
                        with pytest.raises(BrokenError):
                            break_up(agent, group)
    finally:
        dist.destroy_process_group()

    assert (computed, state.step) == ([1] * 2 + [2] * 6, 1)


@pytest.mark.parametrize("error", [OSError(errno.EHOSTUNREACH, "No route to host"), TimeoutError()])
def test_a_node_that_is_lost_while_its_group_forms_is_waited_for_until_the_agent_says_so(
    agent_and_worker: tuple[channel.Connection, channel.Connection],
    monkeypatch: pytest.MonkeyPatch,
    error: OSError,
) -> None:
    """The network may say at once that there is no way to rank 0, or nothing: neither ends the workers."""
    agent, worker = agent_and_worker

    def connect(*_: object) -> None:
        if not agent.send(channel.Break(1)):
            pytest.fail("the worker is gone")
        raise error

    monkeypatch.setattr(socket, "create_connection", connect)
    environ = {"MASTER_ADDR": "10.255.255.1", "MASTER_PORT": "1", "RANK": "1", "WORLD_SIZE": "2"}
    group = ElasticGroup(worker, environ=environ)
    assert group._orders is not None
    group._orders.listen()
    group.generation = 1

    with pytest.raises(BrokenError):
        group._store_of(1, 2)
