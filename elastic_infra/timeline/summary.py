"""Figures as text: one line each, the same in a terminal and on a page. Pure."""

from __future__ import annotations

from elastic_infra.timeline import formatting
from elastic_infra.timeline.figures import Figures


def lines(known: Figures) -> tuple[tuple[str, str], ...]:
    """Name and value of each figure."""
    outages = f"{len(known.outages)}, {formatting.seconds(known.outage_seconds)} in all"
    longest = f", the longest {formatting.seconds(known.longest_outage_seconds)}" if known.outages else ""
    snapshots = formatting.snapshots(known.checkpoint, known.memory_step)
    return (
        ("goodput", formatting.percent(known.goodput)),
        ("training", _training(known)),
        ("first step", _first_step(known)),
        ("steps", "unknown" if known.steps is None else f"{known.steps}, {known.steps_lost} of them repeated"),
        *((("samples", f"{known.samples:,}"),) if known.samples is not None else ()),
        *((("snapshots", snapshots),) if snapshots else ()),
        ("outages", outages + longest),
        ("restarts", formatting.changes(known.restarts, known.moves)),
        ("generations", f"{known.generations}, of {known.smallest_world} to {known.largest_world} workers"),
        ("outcome", known.outcome),
    )


def _training(known: Figures) -> str:
    if known.training_seconds is None:
        return "unknown: the script reported no steps; elastic_infra.training.Progress does"
    again = f", {formatting.seconds(known.repeated_seconds)} of it repeated" if known.repeated_seconds else ""
    return f"{formatting.seconds(known.training_seconds)} of {formatting.seconds(known.wall_seconds)}{again}"


def _first_step(known: Figures) -> str:
    return "unknown" if known.first_step_seconds is None else f"after {formatting.seconds(known.first_step_seconds)}"
