"""Holds the figures in the documentation against the committed results of the benchmarks.

    python -m tools.figures [--write]

Prints each sentence and each table that differs from the results, as it should be, and then exits 1. With ``--write``
the documentation gets the figures of the results. Where a benchmark was measured again, this is the last step.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from benchmarks.common.results import table as table_of
from benchmarks.headline import __main__ as quick
from benchmarks.headline import table
from benchmarks.headline.table import Cell
from benchmarks.many_jobs import report as many_jobs
from benchmarks.rendezvous import limited
from benchmarks.rendezvous import report as scale
from benchmarks.simulate import __main__ as simulation
from benchmarks.thirty_jobs import report as thirty_jobs
from benchmarks.training import report
from elastic_infra.config.warnings import store_memory
from elastic_infra.simulate import measured
from tools.run import ROOT

LAUNCHER: Final = "launcher/RESULTS.md"
RENDEZVOUS: Final = "rendezvous/RESULTS.json"
LIMITS: Final = "rendezvous/LIMITS.json"
POLICIES: Final = "cluster/RESTART_POLICY.md"
START: Final = "cluster/START.md"
INDICES: Final = "cluster/INDEX_LOSSES.md"
JOBS: Final = "thirty_jobs/RESULTS.json"
MANY_JOBS: Final = "many_jobs/RESULTS.json"
TRAINING: Final = "training/RESULTS.json"
NETWORK: Final = 10e9 / 8
"""Bytes a second of a usual machine."""
WORDS: Final = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight")
IN_ITS_POD: Final[Mapping[int, str]] = {
    128: (
        "With {nodes} nodes and the store in its pod a change takes {changes} s, the pod {memory} MB of memory at "
        "most, and an agent {agent} MB."
    ),
    1024: (
        "With {nodes} nodes and the store in its pod a change takes {changes} s, and without limits {free} s: in one "
        "change the store waited {waits} s for its share of the processor. The pod takes {memory} of its {limit} MB of "
        "memory at most, and an agent {agent} MB."
    ),
    4096: (
        "With {nodes} nodes and the store in its pod a change takes {changes} s, and without limits {free} s. The pod "
        "takes up to {most_memory} MB of memory, where the default is {limit}."
    ),
    10_000: (
        "With {nodes} nodes, the most that a job may have, the pod takes {memory} MB, and `elastic-infra validate` "
        "asks for {needed} where fewer are given."
    ),
}
"""What the page about scale says of each of these sizes."""
OF_THE_LARGEST: Final = (
    (
        "A change takes {changes} s so, and {free} s without limits, an idle store {idle} % of a core, and an agent "
        "{agent} MB."
    ),
    (
        "the number of nodes, {pair} kB for each pair: {all} GB from the first start to the newcomer, which a machine "
        "sends in {sending} s at ten gigabits a second."
    ),
)
"""What the page says besides of the most nodes that a job may have."""


class Sentence(NamedTuple):
    """A part of a sentence that holds figures."""

    page: str
    """Path of the page in the repository."""
    text: str
    """With a name in braces for each figure; where the page breaks its lines does not matter."""
    figures: Mapping[str, str]
    """As the page is to show them."""

    def shown(self) -> str:
        """The text with its figures."""
        return self.text.format_map(self.figures)

    def put_into(self, page: str) -> str:
        """The page's text with these figures.

        Raises:
            ValueError: the page does not have the sentence exactly once.
        """
        found = list(self._pattern().finditer(page))
        if len(found) != 1:
            message = f"{self.page} has this {len(found)} times, and once is right: {self.shown()}"
            raise ValueError(message)
        for name in reversed(found[0].groupdict()):
            if " ".join(found[0][name].split()) != self.figures[name]:
                page = page[: found[0].start(name)] + self.figures[name] + page[found[0].end(name) :]
        return page

    def _pattern(self) -> re.Pattern[str]:
        pieces = re.split(r"\{(\w+)\}", self.text)
        pieces[::2] = [re.sub(r"(\\ )+", r"\\s+", re.escape(piece)) for piece in pieces[::2]]
        pieces[1::2] = [rf"(?P<{name}>[^|]{{1,20}}?)" for name in pieces[1::2]]
        return re.compile("".join(pieces))


class Table(NamedTuple):
    """A table of figures, found on its page by its head."""

    page: str
    text: str

    def shown(self) -> str:
        """The table as the page is to have it."""
        return self.text

    def put_into(self, page: str) -> str:
        """The page's text with this table.

        Raises:
            ValueError: the page does not have a table with this head exactly once.
        """
        head = self.text.splitlines()[0]
        found = re.findall(rf"^{re.escape(head)}\n(?:\|.*\n)*", page, re.MULTILINE)
        if len(found) != 1:
            message = f"{self.page} has {len(found)} tables with this head, and one is right: {head}"
            raise ValueError(message)
        return page.replace(found[0], f"{self.text}\n")


Stated = Sentence | Table


def main(arguments: Sequence[str]) -> int:
    """Compare, print what differs, and write on request."""
    differs = False
    for each in stated():
        path = ROOT / each.page
        page = path.read_text()
        right = each.put_into(page)
        if right != page:
            differs = True
            print(f"{each.page}:\n{each.shown()}\n")
            if "--write" in arguments:
                path.write_text(right)
    return int(differs and "--write" not in arguments)


def stated() -> list[Stated]:
    """Every figure that the documentation states, as the committed results have it."""
    return [*_launcher(), *_imports(), *_faults(), *_rendezvous(), *_limits(), *_cluster(), *_stacks(), *_training()]


def _launcher() -> Iterator[Stated]:
    results = read(LAUNCHER)
    cells = table.committed(results)
    facts = _facts(results)
    yield Table("README.md", table.markdown(cells, table.ROWS))
    yield Sentence("README.md", "three nodes on one machine, torch {torch};", facts)
    medians = "Medians of {ours} runs of this launcher, {tuned} of tuned torchrun, {plain} of plain torchrun"
    for page, rows in (("docs/benchmarks.md", table.ROWS), ("docs/launcher.md", table.WITH_START)):
        yield Table(page, table.markdown(cells, rows))
        yield Sentence(page, "three nodes on one machine of {cpus} processors, torch {torch} on gloo", facts)
        yield Sentence(page, medians, _runs(results, rows.values()))
    yield Sentence("docs/launcher.md", "importing torch takes {importing} s there.", facts)
    loss = {"loss": _percent(quick.LOSS - 1)}
    yield Sentence("docs/benchmarks.md", "a ratio is more than {loss} worse than the committed one", loss)


def _imports() -> Iterator[Sentence]:
    for package, text in (
        ("transformers", "takes {ours} s so, and {tuned} s under torchrun, which imports anew"),
        ("lightning", "With Lightning a restart takes {ours} s, and {tuned} s under torchrun."),
    ):
        cells = _row(read(LAUNCHER), f"restart of 2 workers that import {package}")
        seconds = {"ours": _seconds(cells["ours"]), "tuned": _seconds(cells["tuned torchrun"])}
        yield Sentence("docs/launcher.md", text, {name: str(Cell(value)) for name, value in seconds.items()})
    ready = {
        name: f"{_seconds(_row(read(LAUNCHER), f'{kind} start to READY')['ours']):g}"
        for name, kind in (("mounted", "mounted launcher's"), ("installed", "launcher's"))
    }
    text = "until a node is READY it takes {mounted} s, and {installed} s where it is installed with its bytecode"
    yield Sentence("docs/launcher.md", text, ready)


def _faults() -> Iterator[Sentence]:
    eight = read("launcher/SOAK_8_WORKERS.md")
    figures = {
        "alone": _match(r"(\d+) of \1 faults", read("launcher/SOAK.md")),
        "eight": _match(r"(\d+) of \1 faults", eight),
        "workers": _word(_match(r"nodes of (\d+) workers", eight)),
        "cluster": _match(r"(\d+) of \1 faults", read("cluster/SOAK.md")),
    }
    text = (
        "[{alone} random faults](../benchmarks/launcher/SOAK.md) struck real launchers in separate networks, "
        "[{eight}](../benchmarks/launcher/SOAK_8_WORKERS.md) such launchers with {workers} workers each, and "
        "[{cluster} more](../benchmarks/cluster/SOAK.md)"
    )
    yield Sentence("docs/launcher.md", text, figures)
    in_place = {"faults": _match(r"(\d+) of \1 faults", read("training/SOAK.md"))}
    yield Sentence("CHANGELOG.md", "([{faults} of these](benchmarks/training/SOAK.md))", in_place)


def _rendezvous() -> Iterator[Stated]:
    results = json.loads(read(RENDEZVOUS))
    runs = {int(nodes): by_arm for nodes, by_arm in results["runs"].items()}
    ours = {nodes: by_arm[scale.OURS] for nodes, by_arm in runs.items()}
    apart = scale.alone(results["machine"])
    yield Table("docs/scale.md", table_of(scale.compared(runs, apart)))
    many, most = sorted(ours)[-2:]
    changes = {size: [scale.median(ours[size], name) for name in scale.CHANGES] for size in (many, most)}
    idle = [scale.median(each, name) for each in ours.values() for name in scale.IDLE_BYTES]
    figures = {
        **_facts("\n".join(results["machine"])),
        "many": f"{many:,}",
        "most": f"{most:,}",
        "change_of_many": _tenths(changes[many]),
        "change_of_most": _tenths(changes[most]),
        "idle_of_many": f"{scale.median(ours[many], scale.IDLE):.1f}",
        "idle_of_most": f"{scale.median(ours[most], scale.IDLE):.1f}",
        "agent": f"{scale.median(ours[many], 'idle agent, % of a core'):.1f}",
        "bytes": _span(idle),
    }
    for text in (
        "All nodes and the store share {cpus} processors there, so the times for {many} and {most} nodes are",
        "With {many} nodes on {cpus} processors a change takes {change_of_many} s,",
        "an idle store {idle_of_many} % and the agent of an idle node {agent} % of a core.",
        "An idle node sends and receives {bytes} bytes a second,",
        "With {most} nodes a change takes {change_of_most} s there, and an idle store {idle_of_most} % of a core:",
    ):
        yield Sentence("docs/scale.md", text, figures)
    yield Sentence("docs/benchmarks.md", "the rendezvous with up to {most} nodes", figures)


def _limits() -> Iterator[Stated]:
    """What jobs take with the store in its pod, and without limits."""
    results = json.loads(read(LIMITS))
    runs = limited.of_sizes(results)
    yield Table("docs/scale.md", table_of(limited.rows(runs, limited.ROWS)))
    for nodes, text in IN_ITS_POD.items():
        yield Sentence("docs/scale.md", text, _limited(nodes, runs[nodes], results["limits"]["memory"]))
    most = max(runs)
    for text in OF_THE_LARGEST:
        yield Sentence("docs/scale.md", text, _limited(most, runs[most], results["limits"]["memory"]))
    yield Sentence("docs/benchmarks.md", "the same with up to {most} nodes, with the store", {"most": f"{most:,}"})


def _limited(nodes: int, runs: Mapping[str, scale.Runs], memory: int) -> dict[str, str]:
    """The figures of one size, by whether the store was limited."""
    pod, free = runs[scale.POD], runs[scale.FREE]
    pair = scale.median(free, "kB sent to a node and node")
    return {
        "nodes": f"{nodes:,}",
        "changes": _tenths([scale.median(pod, change) for change in scale.CHANGES]),
        "free": _tenths([scale.median(free, change) for change in scale.CHANGES]),
        "waits": f"{max(scale.median(pod, f'{scale.THROTTLED}, {change}') for change in scale.CHANGES):.1f}",
        "memory": f"{scale.median(pod, scale.STORE_MEMORY):.0f}",
        "most_memory": f"{max(one[scale.STORE_MEMORY] for one in (*pod, *free)):.0f}",
        "limit": f"{memory / (1 << 20):.0f}",
        "needed": f"{store_memory(nodes) / (1 << 20):.0f}",
        "agent": f"{scale.median(pod, scale.AGENT_MEMORY):.0f}",
        "idle": f"{scale.median(pod, scale.IDLE):.0f}",
        "pair": f"{pair:.2f}",
        "all": f"{pair * nodes**2 / 1e6:.0f}",
        "sending": f"{pair * nodes**2 * 1e3 / NETWORK:.0f}",
    }


def _cluster() -> Iterator[Sentence]:
    rows = dict(_rows(read(POLICIES)))
    failed = [rows[f"all 3 nodes end with {code}: held for"] for code in (1, 2, 93)]
    retried = [rows[f"one of 3 nodes ends once with {code}: whole again after"] for code in (137, 143, 200)]
    held = {policy: [_seconds(row[policy]) for row in failed] for policy in ("ExitCode", "OnFailure")}
    more = [_seconds(row["ExitCode"]) - _seconds(row["OnFailure"]) for row in retried]
    figures = {
        "exit_code": _span(held["ExitCode"]),
        "on_failure": _span(held["OnFailure"]),
        "more": _span(more),
    }
    for text in (
        "the operator fails the job {exit_code} s after the script has failed beyond its budget",
        "the kubelet restarts containers whose job is over, for {on_failure} s with the default",
        "The price is {more} s more for a pod that is worth a retry",
    ):
        yield Sentence("docs/architecture.md", text, figures)
    ended, worth_a_retry = (
        rows["all 3 nodes end with 1: held for"],
        rows["one of 3 nodes ends once with 200: whole again after"],
    )
    rounded = {
        f"{name}_{policy}": f"{_seconds(row[policy]):.0f}"
        for name, row in (("held", ended), ("whole", worth_a_retry))
        for policy in ("ExitCode", "OnFailure")
    }
    for text in (
        "three nodes free their GPUs {held_ExitCode} s after exit 1, and are whole again {whole_ExitCode} s after exit",
        "whole again {whole_OnFailure} s after exit 200, but the GPUs are held for {held_OnFailure} s after exit 1",
    ):
        yield Sentence("docs/reference.md", text, rounded)
    first = {"first": _span([_seconds(_row(read(INDICES), "one index, deleted")["1"])])}
    yield Sentence("docs/targets.md", "replaces a pod: {first} s after the first loss of an index", first)
    yield Sentence("docs/run.md", "an Indexed Job's in a cluster after {first} s or more", first)
    row = _row(read(START), "the first step, less that import and the step itself")
    each = sorted(row["each"].split(", "), key=float)
    text = "two nodes make their first step {above} s ({least} to {most} s) after two pods that only import torch"
    yield Sentence("docs/launcher.md", text, {"above": row["median"], "least": each[0], "most": each[-1]})


def _stacks() -> Iterator[Stated]:
    yield Table("docs/upgrade.md", thirty_jobs.shown(json.loads(read(JOBS))))
    yield Table("docs/scale.md", many_jobs.shown(many_jobs.by_jobs(json.loads(read(MANY_JOBS)))))


def _training() -> Iterator[Stated]:
    results = json.loads(read(TRAINING))
    yield Table("docs/training.md", report.headline(results))
    yield Sentence("docs/training.md", report.COPIED, report.copied(results))
    yield Table("docs/simulate.md", _latencies())
    everyone = simulation.lives(json.loads(read("simulate/RESULTS.json")))
    found = [(lived.arm, simulation.ratios(lived, everyone)) for lived in everyone]
    close = {
        "close": _percent(simulation.CLOSE),
        "close_in_place": _percent(simulation.CLOSE_DEFAULT["in place"]),
        "close_restarts": f"{1 + simulation.CLOSE_DEFAULT['restarts']:g}",
        "close_loss": _percent(simulation.CLOSE_LOSS),
        "in_place": _tenths([each.lost for arm, each in found if arm == "in place"]),
        "restarts": _tenths([each.lost for arm, each in found if arm == "restarts"]),
        "own": _tenths([each.own_lost for _, each in found]),
    }
    for text in (
        (
            "the time to finish, each within {close}, as a model without losses would be too; the time that was lost: "
            "in place within {close_in_place}, with restarts up to {close_restarts} times the measured, and with the "
            "latency of the same script within {close_loss} |"
        ),
        "the simulated one is {in_place} times the measured in place, and {restarts} times with restarts,",
        "With its own it is {own} times the measured.",
    ):
        yield Sentence("docs/simulate.md", text, close)
    facts = _facts("\n".join(results["machine"]))
    yield Sentence("docs/training.md", "on one machine with {cpus} processors, torch {torch} on gloo", facts)
    yield Sentence("docs/training.md", "torchft {torchft} waits here for a missing worker", facts)


def _latencies() -> str:
    """What the simulation has of changes in place, and of a state that is sent."""
    fixed, more = measured.IN_PLACE.stateless, measured.IN_PLACE.per_gigabyte
    rows = (
        ("in place, a node is lost or leaves", f"{fixed.loss:g}", more.loss),
        ("in place, a worker crashes, until its successor trains too", f"{fixed.crash:g}", more.crash),
        ("in place, a node comes", f"{fixed.join:g}", more.join),
        ("restarts, a node comes: what its state adds", "", measured.RESTARTS.per_gigabyte.join),
    )
    head = ["seconds", "10 MB", "for each GB more"]
    return table_of([head, *([name, small, f"{rate:.2f}"] for name, small, rate in rows)])


def read(name: str) -> str:
    """A committed result of the benchmarks."""
    return (ROOT / "benchmarks" / name).read_text()


def _rows(results: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Every row of every Markdown table: its first cell, and all of its cells by the table's head."""
    before: list[str] = []
    head: list[str] = []
    for line in results.splitlines():
        cells = [cell.strip() for cell in line[1:-1].split("|")] if line.startswith("|") else []
        if cells and head:
            yield cells[0], dict(zip(head, cells, strict=True))
        head = (before if set(cells) == {"---"} else head) if cells else []
        before = cells


def _row(results: str, name: str) -> dict[str, str]:
    return dict(_rows(results))[name]


def _facts(results: str) -> dict[str, str]:
    """What a page of results says of its machine; what it does not say is missing."""
    patterns = {
        "torch": r"torch (\d+\.\d+)",
        "cpus": r"(\d+) CPUs",
        "importing": r"importing torch takes ([\d.]+) s",
        "torchft": r"torchft ([\d.]+)",
    }
    found = {name: re.search(pattern, results) for name, pattern in patterns.items()}
    facts = {name: match[1] for name, match in found.items() if match}
    return {**facts, "cpus": _word(facts["cpus"])}


def _runs(results: str, rows: Iterable[str]) -> dict[str, str]:
    """How many runs of each arm the rows stand for."""
    cells = [list(_row(results, row).values())[1:4] for row in rows]
    counts = [[_number_of_runs(cell) for cell in row] for row in cells]
    return {arm: _span(column) for arm, column in zip(table.ARMS, zip(*counts, strict=True), strict=True)}


def _number_of_runs(cell: str) -> int:
    """Of several jobs that were lost the cell has the number, and of one it has not."""
    return int(_match(r"(?:of |n )(\d+)\)?$", cell)) if cell != "lost" else 1


def _seconds(cell: str) -> float:
    return float(_match(r"^([\d.]+) s", cell))


def _match(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    if found is None:
        message = f"nothing like {pattern!r} in the results: {text[:100]!r}"
        raise ValueError(message)
    return found[1]


def _span(numbers: Sequence[float]) -> str:
    low, high = f"{min(numbers):.0f}", f"{max(numbers):.0f}"
    return low if low == high else f"{low} to {high}"


def _tenths(numbers: Sequence[float]) -> str:
    return f"{min(numbers):.1f} to {max(numbers):.1f}"


def _word(number: str) -> str:
    return WORDS[int(number)] if int(number) < len(WORDS) else number


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
