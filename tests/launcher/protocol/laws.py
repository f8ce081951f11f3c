"""The properties of the protocol, as laws over one world, and what a good end looks like."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from elastic_infra.launcher.protocol import node_faults, ranks
from elastic_infra.launcher.protocol.limits import Limits
from elastic_infra.launcher.protocol.records import Generation
from elastic_infra.launcher.protocol.state import NOWHERE, State
from tests.launcher.protocol.world import MOMENT, BrokenError, Host, World


def one_generation_runs(world: World) -> None:
    """No two generations ever have all their workers running."""
    running = (host for host in world.hosts if host.workers not in {None, NOWHERE})
    complete = {host.workers for host in running if _is_complete(world, host)}
    if len(complete) > 1:
        message = f"two generations run in full: {complete}"
        raise BrokenError(message)


def only_failures_are_charged(world: World) -> None:
    """What a lost or leaving member causes is never charged: at most the failures injected are."""
    generation = world.store.generation if world.store else None
    if generation is not None and generation.budget.charged > world.failures:
        message = f"charged {generation.budget.charged} for {world.failures} failures"
        raise BrokenError(message)


def the_end_is_agreed_once(world: World) -> None:
    """All nodes that leave because the job is over leave with the same code."""
    codes = {host.end for host in world.hosts if host.end in {"exit 0", "exit 1", "exit 93"}}
    if len(codes) > 1:
        message = f"nodes left with {codes}"
        raise BrokenError(message)


def all_stop_at_one_step(world: World) -> None:
    """The workers of a generation that stop as agreed stop at the same step."""
    generations = [identity for identity, _ in world.stops]
    if len(generations) != len(set(generations)):
        message = f"stopped at different steps: {sorted(world.stops)}"
        raise BrokenError(message)


def newcomers_wait_for_a_step(world: World) -> None:
    """No generation ends for a newcomer before a worker of it has made a step; for scenarios with steps."""
    generation = world.store.generation if world.store else None
    if generation is None or generation.cause is None or generation.cause.kind != "scale_up":
        return
    members = [world.hosts[int(member.uuid.removeprefix("n"))] for member in generation.members]
    if generation.phase in {"proposed", "draining"} and all(host.step < 0 for host in members):
        message = f"generation {generation.number} ends for a newcomer before its first step"
        raise BrokenError(message)


def newcomers_are_ready(world: World) -> None:
    """No generation ends for a newcomer that has not tried to have its workers ready; where workers can be moved."""
    generation = world.store.generation if world.store else None
    if generation is None or generation.cause is None or generation.cause.kind != "scale_up":
        return
    newcomer = world.hosts[int(generation.cause.uuid.removeprefix("n"))]
    if generation.phase in {"proposed", "draining", "broken"} and not (newcomer.starts or newcomer.end):
        message = f"generation {generation.number} ends for a newcomer whose workers have yet to start"
        raise BrokenError(message)


def trains_within(generations: int) -> Callable[[World], None]:
    """Churn ends: so many nodes and faults cost at most so many generations, in any order of events."""

    def law(world: World) -> None:
        generation = world.store.generation if world.store else None
        if generation is not None and generation.number > generations:
            message = f"generation {generation.number}, where {generations} are enough"
            raise BrokenError(message)

    return law


def sizes_are_usable(world: World) -> None:
    """No generation has a number of nodes that the limits exclude or the script has refused."""
    generation = world.store.generation if world.store else None
    if generation is None or generation.phase == "final":
        return
    nodes, workers = len(generation.members), ranks.world_size(generation.members)
    limits = [host.state.limits for host in world.hosts if host.state]
    if not all(each.allows(nodes, workers, generation.refused) for each in limits):
        message = f"generation {generation.number} has {nodes} nodes"
        raise BrokenError(message)


def a_bad_size_ends_nothing(world: World) -> None:
    """Where nothing else fails, a size that the script cannot use neither ends the job nor costs a node."""
    generation = world.store.generation if world.store else None
    if (generation is not None and generation.evicted) or any(host.end == "exit 1" for host in world.hosts):
        message = "the job or a node ends for a size that the script refuses"
        raise BrokenError(message)


def the_end_stands(world: World) -> None:
    """A node that comes soon after the job's end does not run the job again; for scenarios without a lost store."""
    generation = world.store.generation if world.store else None
    if world.over and (generation is None or generation.phase != "final"):
        message = "the job is run again right after its end"
        raise BrokenError(message)


def a_finish_stands(world: World) -> None:
    """A node that had finished and was told to leave is never lost, however long ago that was."""
    generation = world.store.generation if world.store else None
    if generation is None or generation.cause is None or generation.cause.kind != "node_lost":
        return
    for i, host in enumerate(world.hosts):
        had_finished = host.finished == generation.identity and host.end == "exit 143"
        if had_finished and generation.cause.uuid == f"n{i}":
            message = f"generation {generation.number} breaks for node {i}, which had finished"
            raise BrokenError(message)


def faults_are_bounded(names: tuple[str, ...], most: int) -> Callable[[World], None]:
    """No workers run on a node whose namesakes have ended so many generations by faults of their own."""

    def law(world: World) -> None:
        faults = Counter(names[i] for i, host in enumerate(world.hosts) if host.end == "exit 200")
        for i, host in enumerate(world.hosts):
            if host.workers is not None and faults[names[i]] >= most:
                message = f"{names[i]} is let in after {faults[names[i]]} faults of its own"
                raise BrokenError(message)

    return law


def survivors_keep_their_workers(world: World) -> None:
    """Workers are started once on each node: any change of the other nodes moves them."""
    for i, host in enumerate(world.hosts):
        if host.starts > 1:
            message = f"node {i} started its workers {host.starts} times"
            raise BrokenError(message)


def the_last_saves(world: World) -> None:
    """Where all nodes were told to end, the workers of one of them have saved the state."""
    all_left = all(host.end == "exit 143" for host in world.hosts)
    if all_left and any(host.held for host in world.hosts) and not any(host.saved for host in world.hosts):
        message = "all nodes were told to end, and none of their workers saved the state"
        raise BrokenError(message)


def a_lost_node_costs_nothing(world: World) -> None:
    """The failure of a node that stepped back and is lost a moment later is not charged, once the others know of it."""
    if any(host.compare_and_set is not None for host in world.hosts):
        return
    for host in world.hosts:
        generation = host.state.generation if host.state and host.awake and host.connected else None
        if generation is None or host.state is None or not generation.charged or host.state.own_member() is None:
            continue
        culprit = host.state.store.peer(generation.budget.culprit)
        if culprit is None or generation.budget.culprit not in generation.stepped_back:
            continue
        if culprit.presence == "disconnected" and culprit.since == host.state.committed_since == -MOMENT:
            message = f"generation {generation.number} is charged for a node that was lost"
            raise BrokenError(message)


def the_state_survives(world: World) -> None:
    """Where nodes only come and leave, workers that have the state live, or it was saved."""
    lives = any(host.settled and host.workers is not None for host in world.hosts)
    if any(host.held for host in world.hosts) and not lives and not any(host.saved for host in world.hosts):
        message = "no workers have the state any more, and none has saved it"
        raise BrokenError(message)


ALL = (one_generation_runs, only_failures_are_charged, the_end_is_agreed_once, all_stop_at_one_step, sizes_are_usable)


def is_good(world: World) -> bool:
    """Every live node works in the generation of the store, knows why not, or the job is over."""
    if world.store is None:
        return not any(host.state for host in world.hosts) and all(host.end for host in world.hosts)
    alive = [host for host in world.hosts if not host.end]
    if not alive:
        return True
    return all(_is_settled(world, host) for host in alive)


def _is_settled(world: World, host: Host) -> bool:
    generation = world.store.generation if world.store else None
    if host.state is None or host.cut or host.frozen or generation is None or generation.phase != "running":
        return False
    if host.state.own_member() is None:
        return generation.finishing or not _can_grow(world, generation, host.state.limits)
    idle = host.stopping or host.exited or host.suspended or host.told or host.parked
    return host.workers == generation.identity and not idle


def _can_grow(world: World, generation: Generation, limits: Limits) -> bool:
    """Whether the nodes that wait make up a larger size that may be, together with the members."""
    size, each = len(generation.members), generation.members[0].local_world_size
    waiting = sum(_may_be_taken(host) for host in world.hosts)
    sizes = range(size + 1, min(size + waiting, limits.max_nodes) + 1)
    return any(limits.allows(nodes, nodes * each, generation.refused) for nodes in sizes)


def _may_be_taken(host: Host) -> bool:
    state = host.state
    return state is not None and state.own_member() is None and not _is_refused(state)


def _is_refused(state: State) -> bool:
    return node_faults.is_refused(state.generation, state.limits, state.node.name)


def _is_complete(world: World, host: Host) -> bool:
    """Every member of the generation that this node runs does run it."""
    members = [world.hosts[j] for j in host.members]
    return all(m.workers == host.workers and not (m.frozen or m.exited or m.suspended or m.parked) for m in members)
