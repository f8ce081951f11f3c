"""From each run's figures to the page about the rendezvous at scale, and to the documentation's table. Pure."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from benchmarks.common.results import Results, listed, table
from benchmarks.launcher.measure import Summary

OURS: Final = "ours"
C10D: Final = "c10d"
POD: Final = "in its pod"
FREE: Final = "free"
"""Ours too, with the store in a group that has the limits of its pod, and in one that has none."""
CHANGES: Final = ("form", "lost node", "newcomer")
SILENT: Final = "silent node"
"""A loss of which no connection tells."""
IDLE: Final = "idle store, % of a core"
WORK: Final = ("store CPU", "agent CPU", "simulation CPU")
"""Whose processor time each change is told of: the store's, the real agent's, and that of all light nodes, which a job
spends on as many machines."""
STORE_MEMORY: Final = "store memory at its peak, MB"
"""What its control group counted, the kernel's memory for its connections included."""
KILLS: Final = "store ended for want of memory"
IDLE_AGENT: Final = "idle agent, % of a core"
LOST: Final = "lost connections"
RECONNECTS: Final = "reconnects"
PAUSE: Final = "longest time between beats, s"
AGENT_MEMORY: Final = "agent memory, MB"
"""The most that the real node's process had until the last change was over."""
THROTTLED: Final = "store throttled"
"""Seconds of a change in which the store had used up its share of the processor."""
TOLD: Final = "MB told"
"""What all nodes receive."""
IDLE_BYTES: Final = ("B sent by an idle node, a second", "B received by an idle node, a second")
MESSAGES: Final = "messages sent by a node, beats left out"
BEATS: Final = "beats sent by a node"
REAL: Final = ("messages sent", "kB sent", "messages received", "kB received")
"""What is told of the real node in each change, its own requests for the change included and its beats left out."""
ASKED: Final = "compare-and-sets by the real node"
"""In all: it asks for every change, since the light nodes do not."""
MESSAGES_OF_A_CHANGE: Final = 4
"""A node's records: it stops, it has stopped, it has its place in the next generation, and its workers' first step."""
SLOPES: Final = (
    *CHANGES,
    *(f"{work}, {change}" for change in CHANGES for work in (*WORK[:2], TOLD)),
    MESSAGES,
    *IDLE_BYTES,
)
"""Figures whose growth is told."""
PATIENCE: Final = 120.0
"""Seconds after which a change is not waited for any longer."""
LEAST_SECONDS: Final = 1e-4
"""Of a figure in a slope: below it nothing is measured."""
Runs = Sequence[Mapping[str, "float | str"]]
"""The figures of each run of one size; of a change that did not come, why."""

ABOUT: Final = """\
Seconds unless a row says otherwise. Medians, with p95 by nearest rank (of so few runs: the worst one) and the number
of runs, all of which are in [RESULTS.json](RESULTS.json). Every node, the store and the load share the processors.
`form` counts from the last node's hello to the moment at which every node has entered the generation; `lost node` from
a farewell, as after a crash, `newcomer` from a hello, `silent node` from the moment at which a node stops to beat
while its connection stays, to the same: the store waits 4 s for a beat. The processor time of each change is that of
the store, of the one real agent, and of the program that plays all other nodes: a job has these on as many machines,
and waits for the store and one agent. The light nodes send the real one's records, and leave its requests for a change
and the meeting place of the workers to it, which leads the group; `by the real node` counts all its messages but its
beats, until it has heard what the others say of a change. `longest time between beats, s` is the real
agent's: its watchdog allows 10 s."""

CONTROL: Final = """\
The same changes under torch's own rendezvous, in turn with ours on the same machine: its `DynamicRendezvousHandler`
over a `TCPStore` in a process of its own, and each node a process that joins the next round and then asks for waiting
nodes every 0.1 s, as an agent of torchrun does. `last_call_timeout=3` and `TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1` are
those of the tuned torchrun in the [launcher's table](../launcher/RESULTS.md), and the minimum of nodes is one below
the maximum: with a lower one, a round closes 3 s after the minimum has come, whoever is still on the way. A node
counts as lost after its three missed heartbeats of 5 s, which that one leaves as they are. `form` counts from the last
node's call of `next_rendezvous` until that of each node has returned; `silent node` from a node's SIGKILL, at which all
others join the next round at once, as if their workers had failed: it looks at heartbeats alone, so that a lost node is
no other than a silent one; `newcomer` from its call. Its processes share the processors, while all but one of our nodes
are light: on as many machines it would get further. What torchrun does after a round, such as giving out ranks, is
left out. `over {patience:g}`: not every node was in the round within {patience:g} s, and larger sizes were not tried
(`-`). Tries without a figure are counted beside those with one. A ratio is the median of the ratios of the same run,
and that of the medians where the two were not measured in turn{apart}."""


def document(results: Results) -> str:
    """The page as Markdown."""
    runs = {int(nodes): by_arm for nodes, by_arm in results["runs"].items()}
    ours = {nodes: by_arm[OURS] for nodes, by_arm in runs.items()}
    apart = alone(results["machine"])
    parts = (
        "# The rendezvous at scale",
        listed(results),
        table(_figures(ours)),
        ABOUT,
        _growth(ours),
        "## Beside torch's own",
        table(compared(runs, apart)),
        CONTROL.format(patience=PATIENCE, apart=_apart(apart)),
    )
    return "\n\n".join(parts) + "\n"


def compared(runs: Mapping[int, Mapping[str, Runs]], apart: Collection[int] = ()) -> Iterator[list[str]]:
    """Both, and their ratio, for each change and the idle store; the table of the documentation.

    Args:
        runs: of each size and rendezvous.
        apart: the sizes of which the two were not measured in turn.
    """
    yield ["", *(f"{nodes} nodes" for nodes in runs)]
    for name in (*CHANGES, SILENT, IDLE):
        is_controlled = any(name in run for by_arm in runs.values() for run in by_arm.get(C10D, ()))
        for arm in (OURS, C10D) if is_controlled else (OURS,):
            yield [f"{name}, {arm}", *(cell(by_arm.get(arm, ()), name) for by_arm in runs.values())]
        if not is_controlled:
            continue
        ratios = (ratio(by_arm, name, in_turn=nodes not in apart) for nodes, by_arm in runs.items())
        yield [f"{name}, {OURS} / {C10D}", *ratios]


def cell(runs: Runs, name: str) -> str:
    """``0.23 (p95 0.25, n 3)``, and what became of runs without a figure."""
    found = summary(runs, name)
    without = ", ".join(f"{outcome} {count} of {found.runs}" for outcome, count in found.without.items())
    if found.median is None:
        return without or "-"
    spread = f"p95 {_short(found.p95)}, " if len(found.values) > 1 else ""
    figure = f"{_short(found.median)} ({spread}n {len(found.values)})"
    return f"{figure}; {without}" if without else figure


def summary(runs: Runs, name: str) -> Summary:
    """What the runs say of one figure."""
    found = [run[name] for run in runs if name in run]
    outcomes = [value for value in found if isinstance(value, str)]
    values = tuple(float(value) for value in found if not isinstance(value, str))
    return Summary(values, {outcome: outcomes.count(outcome) for outcome in outcomes})


def median(runs: Runs, name: str) -> float:
    """Of one figure that each run has.

    Raises:
        ValueError: none has it.
    """
    found = summary(runs, name).median
    if found is None:
        message = f"no run has {name}"
        raise ValueError(message)
    return found


def ratio(by_arm: Mapping[str, Runs], name: str, *, in_turn: bool = True) -> str:
    """Of the runs that both have a figure of; of the medians where the two were not measured in turn."""
    ours, control = by_arm.get(OURS, ()), by_arm.get(C10D, ())
    if not in_turn or len(ours) != len(control):
        ours, control = ([_medians(runs, name)] for runs in (ours, control))
    parts = [
        float(one[name]) / float(other[name])
        for one, other in zip(ours, control, strict=True)
        if isinstance(one.get(name), float) and isinstance(other.get(name), float) and other[name]
    ]
    if not parts:
        return "-"
    part = statistics.median(parts)
    return f"1/{1 / part:.0f}" if part < 0.1 else f"{part:.2f}"  # noqa: PLR2004  a tenth


def alone(machine: Iterable[str]) -> list[int]:
    """The sizes of which torch's rendezvous was measured without ours, by the commands of the measurements."""
    commands = [line for line in machine if f"--only {C10D}" in line]
    found = (re.search(r"--nodes((?: \d+)+)", command) for command in commands)
    return sorted({int(size) for match in found if match for size in match[1].split()})


def _apart(sizes: Sequence[int]) -> str:
    """These sizes in brackets."""
    return f" ({', '.join(map(str, sizes))} nodes)" if sizes else ""


def _medians(runs: Runs, name: str) -> Mapping[str, float | str]:
    found = summary(runs, name).median
    return {} if found is None else {name: found}


def slope(runs: Mapping[int, Runs], name: str) -> float:
    """How a figure grows over the three largest sizes: 1 is with the nodes, 2 with their square (least squares)."""
    points = [(math.log(nodes), math.log(max(median(each, name), LEAST_SECONDS))) for nodes, each in runs.items()]
    return statistics.linear_regression(*zip(*points[-3:], strict=True)).slope


def _figures(runs: Mapping[int, Runs]) -> Iterator[list[str]]:
    yield ["nodes", *map(str, runs)]
    for name in next(iter(runs.values()))[0]:
        yield [name, *(cell(each, name) for each in runs.values())]


def _growth(runs: Mapping[int, Runs]) -> str:
    grows = ", ".join(f"{name} {slope(runs, name):.2f}" for name in SLOPES) if len(runs) > 1 else "none"
    return (
        f"After a loss and for a newcomer each node sends {MESSAGES_OF_A_CHANGE} small messages, which the store tells "
        "to all in a few large ones: one message a node is enough, and `lost node` and `newcomer` are to grow with the "
        "nodes. An idle node sends a beat a second and gets it back, however many others there are. `form` needs more: "
        "each of N nodes says hello, gets all records, and hears of each other node that comes, 20 to 50 bytes packed, "
        f"so `{TOLD}` grows with the square. To copy these bytes, the least that a change can take, took "
        f"{_copying(runs)}; the rest is the work on each message.\n\n"
        f"Log-log slopes over the largest sizes, where 1 is growth with the nodes: {grows}."
    )


def _copying(runs: Mapping[int, Runs]) -> str:
    """What copying the bytes of each change takes, with the most nodes."""
    nodes = max(runs)
    byte = median(runs[nodes], "ns to copy a byte")
    each = (f"{change} {median(runs[nodes], f'{TOLD}, {change}') * byte / 1e3:.2g} s" for change in CHANGES)
    return f"{', '.join(each)} with {nodes} nodes"


def _short(value: float | None) -> str:
    return f"{value:.3g}" if value is not None and value < 1000 else f"{value:.0f}"  # noqa: PLR2004  no exponent
