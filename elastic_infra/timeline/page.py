"""A history as one HTML page: the picture with its hover titles, and all figures as tables. Pure.

The page loads no script, font or style from elsewhere, so that it may be mailed and archived.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from elastic_infra.timeline import formatting, picture, scale
from elastic_infra.timeline.figures import Figures
from elastic_infra.timeline.generations import Generation
from elastic_infra.timeline.history import History
from elastic_infra.timeline.summary import lines
from elastic_infra.timeline.svg import element, escaped

_STYLE: Final = (
    ":root{color-scheme:light dark}"
    "body{margin:1.5rem auto;max-width:1040px;padding:0 1rem;background:#fff;color:#0f172a;"
    'font:14px/1.5 system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif}'
    "figure{margin:0;overflow-x:auto}svg{max-width:100%;height:auto;min-width:640px}"
    "table{border-collapse:collapse;margin:.5rem 0 1.5rem}caption,h2{font-weight:600;font-size:1.1rem;text-align:left}"
    "td,th{padding:.2rem .8rem .2rem 0;text-align:left;vertical-align:top;border-bottom:1px solid #cbd5e1}"
    "td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}td:not(:last-child){white-space:nowrap}"
    "@media (prefers-color-scheme:dark){body{background:#020617;color:#e2e8f0}td,th{border-color:#334155}}"
)

Cells = Sequence[str]


def page(history: History, figures: Figures) -> str:
    """The picture and its tables as one HTML page without scripts."""
    name = history.run_id or history.script or "a job"
    head = (
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<link rel="icon" href="data:,">',
        element("title", {}, f"Timeline of {escaped(name)}"),
        element("style", {}, _STYLE),
    )
    body = (
        element("figure", {}, picture.draw(history, figures)),
        _table("Figures", ("", ""), lines(figures), numbers=()),
        _outages(history, figures),
        _generations(history),
        _events(history),
        _phases(),
    )
    main = element("main", {}, *body)
    return f'<!DOCTYPE html>\n<html lang="en">\n<head>{"".join(head)}</head>\n<body>{main}</body>\n</html>\n'


def _table(caption: str, names: Cells, rows: Iterable[Cells], numbers: Sequence[int]) -> str:
    def row(cells: Cells, tag: str) -> str:
        looks = ({"class": "n"} if index in numbers else {} for index in range(len(cells)))
        return element("tr", {}, *(element(tag, look, escaped(cell)) for cell, look in zip(cells, looks, strict=True)))

    body = [row(cells, "td") for cells in rows]
    if not body:
        return ""
    head = (element("thead", {}, row(names, "th")),) if any(names) else ()
    return element("table", {}, element("caption", {}, caption), *head, element("tbody", {}, *body))


def _outages(history: History, figures: Figures) -> str:
    names = ("no.", "at", "seconds", "repeated steps", "state from", "kind", "cause")
    rows = (
        (
            str(number),
            scale.clock(outage.begin - history.begin),
            f"{outage.seconds:.1f}",
            str(outage.steps_lost),
            formatting.origin(outage.source),
            outage.kind,
            formatting.cause(outage.cause),
        )
        for number, outage in enumerate(figures.outages, 1)
    )
    return _table("Outages", names, rows, numbers=(0, 1, 2, 3))


def _generations(history: History) -> str:
    names = ("no.", "at", "nodes", "workers", "steps", "samples", "newest snapshots", "began because")
    rows = (
        (
            str(entry.number),
            scale.clock(entry.begin - history.begin),
            str(entry.size),
            str(entry.world_size),
            _steps(entry),
            "" if entry.samples is None else f"{entry.samples:,}",
            formatting.snapshots(entry.checkpoint, entry.memory_step),
            formatting.cause(entry.cause) if entry.kind else "the job began",
        )
        for entry in history.generations
    )
    return _table("Generations", names, rows, numbers=(0, 1, 2, 3, 4, 5))


def _steps(entry: Generation) -> str:
    return "none" if entry.steps is None else f"{entry.steps.first} to {entry.steps.last}"


def _events(history: History) -> str:
    told = [(mark.at, lane.node, mark) for lane in history.lanes for mark in lane.marks]
    told += [(mark.at, "", mark) for mark in history.marks]
    rows = (
        (scale.clock(at - history.begin), formatting.short(node), mark.kind, mark.text)
        for at, node, mark in sorted(told, key=lambda each: each[0])
    )
    return _table("Marks", ("at", "node", "kind", "what happened"), rows, numbers=(0,))


def _phases() -> str:
    return _table("Phases", ("", ""), formatting.PHASES.items(), numbers=())
