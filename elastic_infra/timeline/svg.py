"""Writes SVG elements as text: escaped, with short numbers. The module does not know the picture."""

from __future__ import annotations

import html
from collections.abc import Mapping

Value = str | float


def element(name: str, attributes: Mapping[str, Value], *children: str) -> str:
    """One element; children are markup."""
    head = "".join(f' {key}="{_text(value)}"' for key, value in attributes.items())
    return f"<{name}{head}>{''.join(children)}</{name}>" if children else f"<{name}{head}/>"


def escaped(text: str) -> str:
    """Text with the characters of markup escaped."""
    printable = "".join(char if char.isprintable() else " " for char in text)
    return html.escape(printable, quote=False)


def title(text: str) -> str:
    """The hover title of the element around it."""
    return element("title", {}, escaped(text)) if text else ""


def words(at: tuple[float, float], look: str, text: str) -> str:
    """A line of text whose base line begins at a point."""
    return element("text", {"x": at[0], "y": at[1], "class": look}, escaped(text))


def box(corner: tuple[float, float], size: tuple[float, float], look: Mapping[str, Value], hover: str = "") -> str:
    """A rectangle, with an optional text that shows on hover."""
    place = {"x": corner[0], "y": corner[1], "width": size[0], "height": size[1]}
    return element("rect", {**place, **look}, *filter(None, (title(hover),)))


def line(begin: tuple[float, float], end: tuple[float, float], look: str) -> str:
    """A straight line of one style class."""
    return element("line", {"x1": begin[0], "y1": begin[1], "x2": end[0], "y2": end[1], "class": look})


def _text(value: Value) -> str:
    if isinstance(value, str):
        return html.escape("".join(char if char.isprintable() else " " for char in value))
    return f"{value:.2f}".rstrip("0").rstrip(".")
