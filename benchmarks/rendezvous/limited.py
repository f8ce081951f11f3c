"""The rendezvous with the store in a control group that has the limits of the store's pod, and without limits.

    python -m benchmarks.rendezvous.limited [--nodes N ...] [--runs N] [--out FILE] [--add]

The limits are the defaults of ``rendezvous.resources``. The changes are those of ``benchmarks.rendezvous``; 10,000
nodes are the most that a job may have. Run it as root, on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.common import results
from benchmarks.common.results import Results, listed, table
from benchmarks.rendezvous.__main__ import IDLE_SECONDS, Figures, measure
from benchmarks.rendezvous.limits import Limits, limited
from benchmarks.rendezvous.report import (
    AGENT_MEMORY,
    CHANGES,
    FREE,
    IDLE,
    IDLE_AGENT,
    KILLS,
    LOST,
    PAUSE,
    POD,
    RECONNECTS,
    STORE_MEMORY,
    THROTTLED,
    TOLD,
    WORK,
    Runs,
    cell,
)

RESULTS: Final = Path(__file__).with_name("LIMITS.json")
NODES: Final = (128, 1024, 4096, 10_000)
ARMS: Final = (POD, FREE)
ROWS: Final = (*CHANGES, IDLE, STORE_MEMORY, KILLS, LOST, RECONNECTS, PAUSE, AGENT_MEMORY)
DETAILS: Final = (
    *(f"{name}, {change}" for change in CHANGES for name in (THROTTLED, *WORK, TOLD)),
    IDLE_AGENT,
    "kB sent to a node and node",
)
ABOUT: Final = """\
`{pod}`: the store's process is in a control group with {cpu:g} of a processor and {memory:.0f} MB, the defaults of
`rendezvous.resources`; `{free}`: in one without limits. Seconds unless a row says otherwise; what a row means stands
beside the [table of all sizes](RESULTS.md). `{throttled}` is how long the store waited within a change because its
share of a period of 0.1 s was used up. `{memory_row}` holds the kernel's memory for its connections, which version 1 of
control groups counts and does not limit, and not the files that other processes have loaded as well, such as Python
itself. `{pause}` is the real agent's, whose watchdog allows 10 s. `{agent_memory}` is that of a process that runs the
protocol's machine and its connection alone. More than 64 nodes come in 64 waves. The store, the real agent and the
program that plays all other nodes share the machine's processors."""


def document(found: Results) -> str:
    """The page as Markdown."""
    runs = of_sizes(found)
    about = ABOUT.format(
        cpu=found["limits"]["cpu"],
        memory=found["limits"]["memory"] / (1 << 20),
        pod=POD,
        free=FREE,
        throttled=THROTTLED,
        agent_memory=AGENT_MEMORY,
        memory_row=STORE_MEMORY,
        pause=PAUSE,
    )
    tables = (table(rows(runs, names)) for names in (ROWS, DETAILS))
    return "\n\n".join(["# The store in its pod", listed(found), *tables, about]) + "\n"


def of_sizes(found: Results) -> dict[int, Mapping[str, Runs]]:
    """The runs of each size, by whether the store was limited."""
    return {int(nodes): by_arm for nodes, by_arm in found["runs"].items()}


def rows(runs: Mapping[int, Mapping[str, Runs]], names: Iterable[str]) -> Iterator[list[str]]:
    """A table of these figures, each size with the limits and without."""
    yield ["nodes", *(f"{nodes:,} {arm}" for nodes in runs for arm in ARMS)]
    for name in names:
        yield [name, *(cell(by_arm.get(arm, ()), name) for by_arm in runs.values() for arm in ARMS)]


def tried(nodes: int, limits: Limits | None) -> Figures:
    """Every figure of one size under these limits."""
    with limited(limits) as group:
        figures = measure(nodes, IDLE_SECONDS, silent=False, group=group)
        return {**figures, STORE_MEMORY: group.peak_megabytes(), KILLS: float(group.kills())}


def main(arguments: list[str]) -> int:
    """Measure all sizes in turn, and write the figures and their page after each."""
    options = _parse(arguments)
    limits = Limits.of_a_pod()
    command = results.command("benchmarks.rendezvous.limited", arguments)
    found: dict[str, Any] = {"machine": results.machine(command), "limits": limits._asdict(), "runs": {}}
    if options.add:
        kept = results.load(options.out)
        found = {**kept, "machine": list(dict.fromkeys([*kept["machine"], *found["machine"]]))}
    for _ in range(options.runs):
        for nodes in options.nodes:
            measured: dict[str, list[Figures]] = found["runs"].setdefault(str(nodes), {})
            for arm, given in ((POD, limits), (FREE, None)):
                measured.setdefault(arm, []).append(tried(nodes, given))
                print(nodes, arm, json.dumps(measured[arm][-1]), flush=True)
                results.save(options.out, found, document)
    return 0


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rendezvous.limited")
    parser.add_argument("--nodes", type=int, nargs="+", default=NODES, help="sizes, the real node left out")
    parser.add_argument("--runs", type=int, default=1, help="runs of each size")
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON of the figures, with the page beside it")
    parser.add_argument("--add", action="store_true", help="keep the runs that are there")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
