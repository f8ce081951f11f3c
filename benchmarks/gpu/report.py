"""From what was measured on a device to one page. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Final

from benchmarks.launcher import arms, measure
from benchmarks.launcher.measure import Sample
from benchmarks.launcher.report import cell, ratio

ARMS: Final = (arms.OURS, arms.TUNED)
"""Plain torchrun takes minutes a row, and is in the launcher's table."""
NOTE: Final = """\
Seconds without a training step of any worker, from the event on, with launchers on one machine; medians, p95 by nearest
rank, number of runs. `tuned` is torchrun, as in [the launcher's table](../launcher/RESULTS.md). A start is taken apart
by the workers: the device's context, the process group with its first collective, then model, checkpoint and first
step. A stall is the time for which training waits, the device's queue being empty before."""


def document(results: Mapping[str, Any]) -> str:
    """The whole Markdown file of what ``benchmarks.gpu`` measured."""
    facts = "\n".join(f"- {line}" for line in [f"device: {results['copies']['device']}", *results["machine"]])
    samples = [Sample(**sample) for sample in results["samples"]]
    parts = [
        "# Restarts, growth and snapshots on GPUs",
        facts,
        _table(["", *(arm.name for arm in ARMS), "ours / tuned"], [_row(samples, row) for row in _rows(samples)]),
        "\n".join(f"- not measured: {row}: {reason}" for row, reason in results["skipped"].items()),
        _table(["a worker's start", *(arm.name for arm in ARMS)], _starts(results["starts"])),
        _table([f"state of {results['copies']['megabytes']} MB", "stall"], _stalls(results["copies"]["seconds"])),
        NOTE,
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _rows(samples: Sequence[Sample]) -> list[str]:
    return list(dict.fromkeys(sample.row for sample in samples))


def _row(samples: Sequence[Sample], row: str) -> list[str]:
    by_arm = [measure.summary(samples, row, arm.name) for arm in ARMS]
    return [row, *(cell(summary, "s") for summary in by_arm), ratio(by_arm[0], by_arm[1])]


def _starts(starts: Mapping[str, Sequence[Mapping[str, float]]]) -> list[list[str]]:
    phases = list(dict.fromkeys(phase for found in starts.values() for each in found for phase in each))
    return [[phase, *(_median([each[phase] for each in starts.get(arm.name, [])]) for arm in ARMS)] for phase in phases]


def _stalls(seconds: Mapping[str, Sequence[float]]) -> list[list[str]]:
    return [[kind, _median(found)] for kind, found in seconds.items()]


def _median(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds):.3f} s (n {len(seconds)})" if seconds else "-"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *rows))
