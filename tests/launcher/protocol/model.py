"""What may happen in a world: messages, workers, faults and time, in every order.

Faults are charged to the scenario's allowance, their ends are not. The store's notices reach a prompt node at once and
a slow node at any later time, with any events in between; compare-and-sets of both are under way for any
time and arrive in any order. Time passes only while no node has anything left to do, or for the silence of a node
that is cut off; also while workers work, until the store has forgotten the nodes that ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from elastic_infra.launcher.protocol import events
from elastic_infra.launcher.protocol.state import NOWHERE, Node, start
from tests.launcher.protocol.driver import Driver, steps_of
from tests.launcher.protocol.world import (
    AGE,
    MOMENT,
    SKEW,
    Host,
    Store,
    World,
    aged_store,
    changes,
    is_out_of,
    newest_master,
    replaced,
    with_host,
)


class Model(Driver):
    """Successors of a world."""

    def initial(self) -> World:
        """Where the exploration begins."""
        world = self._empty()
        for i in range(self.scenario.settled):
            world = self._settled(self._connect(joined := self._join(world, i), i, joined.hosts[i]))
        while self.scenario.settled:
            steps = [step for i, host in enumerate(world.hosts) for step in self._protocol_steps(world, i, host)]
            if not steps and any(host.workers for host in world.hosts):
                break
            world = self._settled(steps[0][1] if steps else self._age(world, MOMENT))
        return world

    def _empty(self) -> World:
        hosts = tuple(
            Host(slow=self.scenario.slow, end="to return" if self._earlier_namesake(i) is not None else "")
            for i in range(self.scenario.nodes)
        )
        return World(self.canonical(Store("e1")), 1, hosts, self.scenario.faults)

    def _earlier_namesake(self, i: int) -> int | None:
        """The node as which this one returns."""
        names = self.scenario.names
        if not names or self.scenario.beside or i < self.scenario.settled:
            return None
        return max((j for j in range(i) if names[j] == names[i]), default=None)

    def successors(self, world: World) -> Iterator[tuple[str, World, bool]]:
        """Every next world, with the step's name and whether it is one that needs no further fault."""
        prompt = [step for i, host in enumerate(world.hosts) for step in self._protocol_steps(world, i, host)]
        prompt += [step for i, host in enumerate(world.hosts) for step in self._bad_starts(world, i, host)]
        slow = [step for i, host in enumerate(world.hosts) for step in self._worker_steps(world, i, host)]
        slow += [step for i, host in enumerate(world.hosts) for step in self._lingering(world, i, host)]
        passing = [] if prompt else [("moment", self._age(world, MOMENT))]
        passing += [] if prompt or (slow and not self._works_for_an_age(world)) else [("age", self._age(world, AGE))]
        for label, successor in (*prompt, *slow, *self._recoveries(world), *passing):
            yield label, self._settled(successor), True
        for label, successor in self._faults(world):
            yield label, self._settled(successor), False

    def _works_for_an_age(self, world: World) -> bool:
        """Whether no worker is being stopped and no node leaves, which takes no age, and the store forgets a node."""
        forgets = world.store is not None and world.store.without_the_ended() != world.store
        ends = any(host.stopping or host.exited or host.told for host in world.hosts)
        return forgets and not ends and not any(host.state.leaving for host in world.hosts if host.state)

    def _settled(self, world: World) -> World:
        """All that the store has to tell has reached the prompt nodes."""
        moved = True
        while moved:
            moved = False
            for i in range(len(world.hosts)):
                step = self._prompt_step(world, i, world.hosts[i])
                if step is not None:
                    world, moved = step, True
        return world

    def _prompt_step(self, world: World, i: int, host: Host) -> World | None:
        if host.slow or not host.awake or not host.connected or host.cut:
            return None
        if world.store is None:
            return self._lose(world, i, host)
        for _, beaten in self._beat(world, i):
            return beaten
        return self._deliver(world, i, host) if host.seen != world.store else None

    def _recoveries(self, world: World) -> Iterator[tuple[str, World]]:
        """What ends a fault, sooner or later."""
        if world.store is None:
            yield "store reborn", replaced(self._put(world, Store(f"e{world.life + 1}")), life=world.life + 1)
        for i, host in enumerate(world.hosts):
            if host.state is None and self._may_join(world, i, host):
                yield f"join {i}", self._join(world, i)
            if host.frozen:
                yield f"thaw {i}", self._thaw(world, i, host)
            if host.cut and not host.connected:
                yield f"heal {i}", with_host(world, i, replaced(host, cut=False))

    def _may_join(self, world: World, i: int, host: Host) -> bool:
        if host.end != "to return":
            return not host.end
        earlier = self._earlier_namesake(i)
        return earlier is not None and world.hosts[earlier].end not in {"", "to return"}

    def _protocol_steps(self, world: World, i: int, host: Host) -> Iterator[tuple[str, World]]:
        """Messages on their way: a moment does not pass before they arrive, or suspended workers are ended."""
        if not host.awake:
            return
        if host.suspended:
            yield f"give up {i}", self._end_workers(world, i, host, orphaned=True)
        if not self.scenario.late:
            yield from self._moving(world, i, host)
        yield from self._store_steps(world, i, host)

    def _moving(self, world: World, i: int, host: Host) -> Iterator[tuple[str, World]]:
        """What workers that can be moved say of themselves, at once unless the scenario lets them be late."""
        if not self.scenario.moves or host.workers is None or host.stopping or host.suspended:
            return
        members = self._members(world, host)
        met = host.step >= 0 or all(other.workers == host.workers and not other.exited for other in members)
        if met and not (host.movable or host.told or host.parked):
            said = with_host(world, i, replaced(host, movable=True, settled=True, held=host.held or host.step >= 0))
            yield f"in {i}", self._feed(said, i, events.WorkersIn(host.number, can_move=True))
        for rank in range(self.scenario.local):
            waits = host.movable and host.stop is not None and host.step >= host.stop[0] and host.stop[1]
            if (host.told or waits) and rank not in host.exited | host.parked:
                yield f"park {i}.{rank}", self._park(self._at_stop(world, host) if waits else world, i, rank)

    def _at_stop(self, world: World, host: Host) -> World:
        """A worker was told to stop at this step."""
        assert host.workers is not None
        return replaced(world, stops=world.stops | {(host.workers, host.step)})

    def _park(self, world: World, i: int, rank: int) -> World:
        host = world.hosts[i]
        parked = with_host(world, i, replaced(host, parked=host.parked | {rank}))
        return self._feed(parked, i, events.WorkerParked(host.number, rank))

    def _store_steps(self, world: World, i: int, host: Host) -> Iterator[tuple[str, World]]:
        if host.connected and not host.cut and world.store is not None:
            yield from self._beat(world, i)
        if host.compare_and_set is not None:
            yield f"compare and set {i}", self._compare_and_set(world, i, host)
        if host.connected and world.store is not None and not host.cut:
            if host.seen != world.store:
                yield f"deliver {i}", self._deliver(world, i, host)
        elif not host.connected and world.store is not None and not host.cut:
            yield f"connect {i}", self._connect(world, i, host)
        elif host.connected:
            yield f"lost {i}", self._lose(world, i, host)

    def _worker_steps(self, world: World, i: int, host: Host) -> Iterator[tuple[str, World]]:
        """What workers do, in their own time."""
        if not host.awake or host.workers is None:
            return
        if host.stopping:
            yield f"gone {i}", self._end_workers(world, i, host, orphaned=False)
        elif self._is_faulty(i):
            yield f"faulty {i}", self._see(with_host(world, i, host.over("exit 200")), i, "ended")
        elif not host.suspended and not self._has_bad_size(host):
            yield from self._training(world, i, host)
            if self.scenario.late:
                yield from self._moving(world, i, host)
            for rank in range(self.scenario.local):
                if rank not in host.exited:
                    yield from self._exits(world, i, host, rank)

    def _lingering(self, world: World, i: int, host: Host) -> Iterator[tuple[str, World]]:
        """A worker whose script has failed ends at any later time."""
        if host.awake and host.raised and not (host.stopping or host.exited or host.suspended):
            yield f"ends {i}", self._exit_worker(world, i, 0, 1, exception="AssertionError")

    def _exits(self, world: World, i: int, host: Host, rank: int) -> Iterator[tuple[str, World]]:
        """How one worker may end by itself, or leave its group."""
        if rank in host.late:
            yield f"too late {i}.{rank}", self._exit_worker(world, i, rank, -9)
        elif self.scenario.late and host.told and host.workers != NOWHERE and rank not in host.parked:
            yield f"stuck {i}.{rank}", self._feed(world, i, events.WorkerStuck(host.number, rank))
        if rank in host.parked:
            if host.dismissed:
                at_stop = host.stop is not None and host.step >= host.stop[0] and host.stop[1]
                yield f"dismissed {i}.{rank}", self._exit_worker(world, i, rank, 0, stopped=at_stop)
            return
        if self._peer_is_missing(world, host):
            yield from self._breaks(world, i, host, rank)
        if host.stop is not None and host.step >= host.stop[0] and host.stop[1] and not host.movable:
            saved = with_host(self._at_stop(world, host), i, replaced(host, saved=True))
            yield f"stops {i}.{rank}", self._exit_worker(saved, i, rank, 0, stopped=True)
        if world.done and host.workers != NOWHERE and self._may_finish(world, host):
            finished = with_host(world, i, replaced(host, finished=host.workers))
            yield f"finish {i}.{rank}", self._exit_worker(finished, i, rank, 0)

    def _breaks(self, world: World, i: int, host: Host, rank: int) -> Iterator[tuple[str, World]]:
        """A collective fails: the worker ends, or says so and waits where it can be moved."""
        if not (host.movable or host.kept):
            yield f"collective fails {i}.{rank}", self._exit_worker(world, i, rank, 1)
        elif not (host.broke or host.told):
            broke = with_host(world, i, replaced(host, broke=True))
            yield f"step breaks {i}.{rank}", self._feed(broke, i, events.StepBroke(host.number, rank, ""))

    def _exit_worker(
        self, world: World, i: int, rank: int, code: int, *, exception: str = "", stopped: bool = False
    ) -> World:
        host = world.hosts[i]
        assert host.workers is not None
        after = replaced(host, exited=host.exited | {rank}, failed=host.failed or code != 0)
        exited = events.WorkerExited(host.number, rank, code, exception=exception, stopped=stopped)
        return self._feed(with_host(world, i, after), i, exited)

    def _end_workers(self, world: World, i: int, host: Host, *, orphaned: bool) -> World:
        """The supervisor killed what was left: it tells of every worker, and then of them all."""
        exception = "AssertionError" if host.raised else ""
        assert host.workers is not None
        number = host.number
        left = [rank for rank in range(self.scenario.local) if rank not in host.exited]
        killed = host.without_workers()
        exits = (events.WorkerExited(number, rank, -9, exception=exception) for rank in left)
        return self._feed_all(with_host(world, i, killed), i, (*exits, events.WorkersGone(number, orphaned)))

    def _faults(self, world: World) -> Iterator[tuple[str, World]]:
        """One more thing that goes wrong, or that ends the work."""
        if self.scenario.finish and not world.done and any(host.workers for host in world.hosts):
            yield "done", replaced(world, done=True)
        yield from self._silences(world)
        if world.faults == 0:
            return
        world = replaced(world, faults=world.faults - 1)
        if "store" in self.scenario.kinds and world.store is not None:
            yield "store lost", replaced(world, store=None)
        if "skew" in self.scenario.kinds:
            yield from self._skewed_joins(world)
        for i, host in enumerate(world.hosts):
            if host.awake:
                yield from self._host_faults(world, i, host)

    def _silences(self, world: World) -> Iterator[tuple[str, World]]:
        for i, host in enumerate(world.hosts):
            if host.connected and (host.frozen or host.cut):
                yield from self._silence(world, i)

    def _skewed_joins(self, world: World) -> Iterator[tuple[str, World]]:
        for i, host in enumerate(world.hosts):
            if host.state is None and self._may_join(world, i, host):
                yield f"join {i} with a clock behind", self._join(world, i, ahead=-SKEW)
                yield f"join {i} with a clock ahead", self._join(world, i, ahead=SKEW)

    def _host_faults(self, world: World, i: int, host: Host) -> Iterator[tuple[str, World]]:
        kinds = self.scenario.kinds
        if "crash" in kinds:
            yield f"crash {i}", self._see(with_host(world, i, host.over("crashed")), i, "disconnected")
        if "slow" in kinds and not host.slow:
            yield f"slow {i}", with_host(world, i, replaced(host, slow=True))
        if "freeze" in kinds:
            yield f"freeze {i}", with_host(world, i, replaced(host, frozen=True))
        if "cut" in kinds and not host.cut:
            yield f"cut {i}", with_host(world, i, replaced(host, cut=True))
        if "close" in kinds and host.connected and not host.cut and world.store is not None:
            yield from self._closings(world, i, host)
        if "leave" in kinds and host.state and not host.state.leaving:
            yield f"leave {i}", self._feed(world, i, events.SignalSeen(15))
        if "fail" in kinds and host.workers and not (host.stopping or host.exited or host.suspended):
            # Workers on standby are in no generation that could be charged.
            failures = world.failures + (host.workers != NOWHERE)
            yield f"fail {i}", self._exit_worker(replaced(world, failures=failures), i, 0, 1)

    def _closings(self, world: World, i: int, host: Host) -> Iterator[tuple[str, World]]:
        """Something on the way ends a connection, perhaps behind an answer, so that what this leads to is lost."""
        yield f"close {i}", self._close(world, i)
        muted = with_host(world, i, replaced(host, mute=True))
        for label, answered in self._store_steps(muted, i, muted.hosts[i]):
            yield f"close {i} behind {label}", self._close(answered, i)

    def _bad_starts(self, world: World, i: int, host: Host) -> Iterator[tuple[str, World]]:
        """Workers of a size that the script cannot use fail at about the same time."""
        if not host.awake or host.workers is None or not self._has_bad_size(host) or host.stopping or host.exited:
            return
        failed = replaced(world, failures=world.failures + 1)
        if not self.scenario.lingers:
            yield f"size fails {i}", self._exit_worker(failed, i, 0, 1, exception="AssertionError")
        elif not host.raised:
            yield f"size raises {i}", self._read(with_host(failed, i, replaced(host, raised=True)), i)

    def _has_bad_size(self, host: Host) -> bool:
        return len(host.members) in self.scenario.bad_sizes

    def _is_faulty(self, i: int) -> bool:
        return bool(self.scenario.faulty) and self.scenario.names[i] == self.scenario.faulty

    def _join(self, world: World, i: int, *, ahead: float = 0.0) -> World:
        scenario = self.scenario
        name = scenario.names[i] if scenario.names else ""
        joined = int(1000 * ahead) + scenario.nodes - i  # no two clocks agree: the first to come is the last by its own
        node = Node(f"n{i}", name, scenario.local, address=f"host{i}", joined=joined)
        state = self.canonical(start(node, scenario.limits, 0.0))
        return self._feed(with_host(world, i, replaced(world.hosts[i], end="", state=state)), i, events.Ready())

    def _connect(self, world: World, i: int, host: Host) -> World:
        store = world.store
        assert store is not None
        assert host.state is not None
        world = self._see(world, i, "live")
        store = world.store or store
        event = events.StoreConnected(
            store.incarnation, store.generation, store.version, store.peers, newest_master(store)
        )
        return self._feed(with_host(world, i, replaced(host, connected=True, seen=store)), i, event)

    def _lose(self, world: World, i: int, host: Host, *, seen_closing: bool = False) -> World:
        known = host.seen.peer(f"n{i}") if host.seen else None
        fresh = not host.cut and known is not None and known.presence == "live" and world.store is None
        fresh = fresh or seen_closing
        lost = replaced(host, connected=False, compare_and_set=None)
        return self._feed(with_host(world, i, lost), i, events.StoreLost(fresh))

    def _close(self, world: World, i: int) -> World:
        if world.hosts[i].state is None:
            return world
        closed = with_host(world, i, replaced(world.hosts[i], cut=True, mute=False))
        closed = self._see(closed, i, "disconnected")
        return self._lose(closed, i, closed.hosts[i], seen_closing=True)

    def _deliver(self, world: World, i: int, host: Host) -> World:
        store, seen = world.store, host.seen
        assert store is not None
        if seen is None or seen.incarnation != store.incarnation:
            return self._lose(world, i, host)
        return self._feed_all(with_host(world, i, replaced(host, seen=store)), i, changes(seen, store))

    def _compare_and_set(self, world: World, i: int, host: Host) -> World:
        store, change = world.store, host.compare_and_set
        assert change is not None
        if (
            store is None
            or host.cut
            or not host.connected
            or (host.seen and host.seen.incarnation != store.incarnation)
        ):
            return with_host(world, i, replaced(host, compare_and_set=None))
        succeeded = store.version == change.version
        if succeeded:
            store = replace(store, generation=change.generation, version=store.version + 1)
            world = self._put(world, store)
            store = world.store or store
            is_end = change.generation is not None and change.generation.phase == "final"
            world = replaced(world, over=world.over or is_end)
        seen = host.seen
        assert seen is not None
        world = with_host(world, i, replaced(host, compare_and_set=None, seen=store))
        return self._feed_all(world, i, (*changes(seen, store), events.CompareAndSetDone(succeeded)))

    def _thaw(self, world: World, i: int, host: Host) -> World:
        thawed = replaced(host, frozen=False, orphaned=False)
        if not host.orphaned or host.workers is None:
            return with_host(world, i, thawed)
        return self._suspend(world, i, thawed)

    def _suspend(self, world: World, i: int, host: Host) -> World:
        assert host.workers is not None
        suspended = with_host(world, i, replaced(host, suspended=True))
        return self._feed(suspended, i, events.WorkersSuspended(host.number))

    def _beat(self, world: World, i: int) -> Iterator[tuple[str, World]]:
        peer = world.store.peer(f"n{i}") if world.store else None
        if peer is not None and peer.presence == "silent":
            yield f"beat {i}", self._see(world, i, "live")

    def _silence(self, world: World, i: int) -> Iterator[tuple[str, World]]:
        peer = world.store.peer(f"n{i}") if world.store else None
        if peer is not None and peer.presence == "live":
            yield f"silent {i}", self._see(world, i, "silent")

    def _age(self, world: World, seconds: float) -> World:
        """Time passes: a node without beats grows silent, and a node without an answer for an age ends its workers.

        The store forgets in an age which nodes have ended.
        """
        for i, host in enumerate(world.hosts):
            if host.connected and (host.frozen or host.cut):
                world = next((silent for _, silent in self._silence(world, i)), world)
        store = aged_store(world.store, seconds)
        store = store.without_the_ended() if store and seconds >= AGE else store
        world = replaced(world, store=self.canonical(store) if store else None, over=world.over and seconds < AGE)
        for i, host in enumerate(world.hosts):
            if host.state is not None:
                world = self._age_host(world, i, host, seconds)
        return world

    def _age_host(self, world: World, i: int, host: Host, seconds: float) -> World:
        assert host.state is not None
        seen = self.canonical(aged_store(host.seen, seconds))
        aged = replaced(host, state=self._aged(host.state, seconds), seen=seen)
        unanswered = host.frozen or host.cut or world.store is None or not host.connected
        due = seconds >= AGE and unanswered and host.workers is not None
        world = with_host(world, i, replaced(aged, orphaned=aged.orphaned or (due and host.frozen)))
        if due and not host.frozen:
            world = self._suspend(world, i, world.hosts[i])
        return self._feed(world, i, events.Tick()) if world.hosts[i].awake else world

    def _training(self, world: World, i: int, host: Host) -> Iterator[tuple[str, World]]:
        """One more step together with all others; at the stop step the workers wait for consent, then exit 0."""
        if not self.scenario.steps or host.workers is None or host.exited or host.told or host.parked or host.broke:
            return
        if host.stop is not None and host.step >= host.stop[0]:
            return
        goal = max(self.scenario.steps, host.stop[0] if host.stop else 0)
        if host.step < goal and all(other.step >= host.step for other in self._members(world, host)):
            further = replaced(host, step=host.step + 1, settled=True, held=host.held or host.movable)
            yield f"step {i}", self._read(with_host(world, i, further), i)

    def _read(self, world: World, i: int) -> World:
        """The agent looks into the progress memory."""
        host = world.hosts[i]
        if host.workers is None or not self.scenario.steps:
            return world
        return self._feed_all(world, i, (steps_of(host, host.workers[0]),))

    def _members(self, world: World, host: Host) -> list[Host]:
        return [world.hosts[j] for j in sorted(host.members)]

    def _peer_is_missing(self, world: World, host: Host) -> bool:
        """A worker of the same generation is gone that this one's next step needs: its collective fails."""
        members = self._members(world, host)
        if any(other.failed and other.workers == host.workers for other in members):
            return True
        needed = [other for other in members if other.step <= host.step and other.finished != host.workers]
        return any(other.end or (other.workers != host.workers and is_out_of(other, host.workers)) for other in needed)

    def _may_finish(self, world: World, host: Host) -> bool:
        """The last step needs every worker of the generation: all run it, or did."""
        members = self._members(world, host)
        return all(host.workers in {other.workers, other.finished} for other in members)
