"""The look of phases and marks: a hatch or a shape each, so that colour is never the only difference. Pure.

Colours are set twice, for light and for dark pages; a viewer without ``prefers-color-scheme`` shows the light ones on
the picture's background.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from elastic_infra.timeline import svg
from elastic_infra.timeline.history import MarkKind


@dataclass(frozen=True)
class Look:
    """A surface: (light, dark) colours, and the path of its hatch in a square of 8 by 8."""

    base: tuple[str, str]
    hatch: tuple[str, str]
    path: str
    text: tuple[str, str]


SURFACES: Final[Mapping[str, Look]] = {
    "train": Look(("#0f766e", "#14b8a6"), ("#0f766e", "#14b8a6"), "", ("#ffffff", "#022c22")),
    "repeated": Look(("#ccfbf1", "#134e4a"), ("#0f766e", "#5eead4"), "M0 2H8M0 6H8", ("#134e4a", "#ccfbf1")),
    "rendezvous": Look(("#f1f5f9", "#1e293b"), ("#64748b", "#94a3b8"), "M2 2h1M6 6h1", ("#334155", "#e2e8f0")),
    "start": Look(
        ("#dbeafe", "#172554"), ("#3b6fd8", "#7ba7f0"), "M-1 9L9 -1M-1 1L1 -1M7 9L9 7", ("#1e3a8a", "#dbeafe")
    ),
    "run": Look(("#ecfccb", "#1a2e05"), ("#4d7c0f", "#a3e635"), "M0 4H8", ("#365314", "#ecfccb")),
    "hang": Look(("#fee2e2", "#450a0a"), ("#b91c1c", "#f87171"), "M0 0L8 8M8 0L0 8", ("#7f1d1d", "#fee2e2")),
    "stop": Look(("#fef3c7", "#3b2403"), ("#b45309", "#f59e0b"), "M2 0V8M6 0V8", ("#78350f", "#fef3c7")),
}

MARKS: Final[Mapping[MarkKind, str]] = {
    "fault": "M-5 -6H5L0 4Z",
    "worker": "M-4 -4L4 4M4 -4L-4 4",
    "hang": "M0 -5A5 5 0 1 0 0.1 -5ZM0 -2.5V0.8",
    "lost": "M0 -6L5 0L0 6L-5 0Z",
    "exit": "M-4 -4H4V4H-4Z",
}
"""Shapes around the point where they stand."""

MARK_WORDS: Final[Mapping[MarkKind, str]] = {
    "fault": "fault done on purpose",
    "worker": "a worker failed",
    "hang": "hang seen or suspected",
    "lost": "node lost, say its peers",
    "exit": "launcher ended early",
}

_PLAIN: Final[Mapping[str, tuple[str, str, str]]] = {
    ".bg": ("fill", "#ffffff", "#0f172a"),
    ".row": ("fill", "#f8fafc", "#131d33"),
    "text": ("fill", "#0f172a", "#e2e8f0"),
    ".soft": ("fill", "#475569", "#a3b1c6"),
    ".grid": ("stroke", "#cbd5e1", "#334155"),
    ".edge": ("stroke", "#334155", "#cbd5e1"),
    ".away": ("stroke", "#94a3b8", "#64748b"),
    ".mark": ("stroke", "#0f172a", "#f8fafc"),
    ".m-fault": ("fill", "#0f172a", "#f8fafc"),
    ".m-open": ("fill", "#ffffff", "#0f172a"),
    ".m-worker": ("fill", "none", "none"),
}

_FIXED: Final = (
    'text{font:12px system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif}'
    ".big{font-size:26px;font-weight:600}.head{font-size:15px;font-weight:600}.small{font-size:11px}"
    ".right{text-anchor:end}.middle{text-anchor:middle}"
    ".mark{stroke-width:1.6}.grid{stroke-width:1}.edge{stroke-width:1.2;fill:none}"
    ".away{stroke-width:1;stroke-dasharray:1 5}.in{font-size:11px;paint-order:stroke;stroke-width:4;"
    "stroke-linejoin:round}.frame{fill:none}"
)


def style() -> str:
    """The style sheet for light and dark pages."""
    return svg.element("style", {}, f"{_FIXED}{_rules(0)}@media (prefers-color-scheme:dark){{{_rules(1)}}}")


def patterns() -> str:
    """The definitions of the hatches; a surface is filled with ``url(#p-NAME)``."""
    return svg.element("defs", {}, *(_pattern(name, look) for name, look in SURFACES.items()))


def document(kind: str, title: str, desc: str, size: tuple[float, float], markup: Iterable[str]) -> str:
    """A whole picture on its ground, for screen readers too.

    Args:
        kind: the picture's name in the ids of title and description.
        desc: the picture in one sentence.
    """
    width, height = size
    attributes: dict[str, svg.Value] = {
        "xmlns": "http://www.w3.org/2000/svg",
        "viewBox": f"0 0 {width:g} {height:g}",
        "width": width,
        "height": height,
        "role": "img",
        "aria-labelledby": f"{kind}-title {kind}-desc",
    }
    names = (
        svg.element("title", {"id": f"{kind}-title"}, svg.escaped(title)),
        svg.element("desc", {"id": f"{kind}-desc"}, svg.escaped(desc)),
    )
    ground = svg.box((0, 0), size, {"class": "bg", "rx": 6})
    return svg.element("svg", attributes, *names, style(), patterns(), ground, *markup) + "\n"


def fill(name: str) -> Mapping[str, svg.Value]:
    """The attributes of a surface."""
    return {"fill": f"url(#p-{name})"}


def mark(kind: MarkKind, at: tuple[float, float], hover: str = "") -> str:
    """The shape of one kind of mark, with its hover text."""
    look = {"fault": "m-fault", "worker": "m-worker"}.get(kind, "m-open")
    shape = svg.element("path", {"d": MARKS[kind], "class": f"mark {look}"})
    return svg.element(
        "g", {"transform": f"translate({at[0]:.2f} {at[1]:.2f})"}, *filter(None, (svg.title(hover),)), shape
    )


def _pattern(name: str, look: Look) -> str:
    base = svg.box((0, 0), (8, 8), {"class": f"b-{name}"})
    lines = (svg.element("path", {"d": look.path, "class": f"h-{name}", "fill": "none"}),) if look.path else ()
    size: dict[str, svg.Value] = {"width": 8, "height": 8, "patternUnits": "userSpaceOnUse"}
    return svg.element("pattern", {"id": f"p-{name}", **size}, base, *lines)


def _rules(scheme: int) -> str:
    plain = "".join(f"{name}{{{rule[0]}:{rule[1 + scheme]}}}" for name, rule in _PLAIN.items())
    return plain + "".join(_surface(name, look, scheme) for name, look in SURFACES.items())


def _surface(name: str, look: Look, scheme: int) -> str:
    return (
        f".b-{name}{{fill:{look.base[scheme]}}}.h-{name}{{stroke:{look.hatch[scheme]};stroke-width:1.2}}"
        f".t-{name}{{fill:{look.text[scheme]};stroke:{look.base[scheme]}}}"
    )
