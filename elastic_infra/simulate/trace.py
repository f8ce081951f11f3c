"""Reads a user's own trace: a CSV of changes at known times. No other module of the simulation reads files."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, get_args

from elastic_infra.config import ConfigError, Fault
from elastic_infra.simulate.scenario import HOUR, MOST, Change, Kind

COLUMNS: Final = ("hours", "event", "nodes")
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
MOST_BYTES: Final = 64 * 1024 * 1024
"""The largest file: a million changes are half of it."""


def read(path: Path) -> tuple[Change, ...]:
    """The changes in a file, in the order of their times.

    Raises:
        ConfigError: the file cannot be read, or a line is no change; each fault with its line.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ConfigError([Fault("--trace", f"{path} is larger than {MOST_BYTES // 1024**2} MiB.")])
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError([Fault("--trace", f"{path} cannot be read: {error.strerror or error}.")]) from None
    except UnicodeDecodeError as error:
        raise ConfigError([Fault("--trace", f"{path} is not UTF-8 text (byte {error.start}).")]) from None
    return parse(text, str(path))


def parse(text: str, name: str) -> tuple[Change, ...]:
    """The changes in a text: a line of the names ``hours,event,nodes``, then a change a line.

    Raises:
        ConfigError: a line is no change; each fault with its line in the file of this name.
    """
    try:
        head, *lines = [[cell.strip() for cell in cells] for cells in csv.reader(text.splitlines())] or [[]]
    except csv.Error as error:
        raise ConfigError([Fault("--trace", f"{name} is no CSV: {error}.")]) from None
    if tuple(head) != COLUMNS:
        raise ConfigError([Fault("--trace", f"{name}:1 must name the columns {','.join(COLUMNS)}, in this order.")])
    found: list[Change] = []
    faults: list[Fault] = []
    for number, cells in enumerate(lines, 2):
        cell = dict(zip(COLUMNS, cells, strict=False))
        wrong = [Fault("--trace", f"{name}:{number} {reason}") for reason in _wrong(cell)] if any(cells) else []
        faults += wrong
        if any(cells) and not wrong:
            found.append(Change(float(cell["hours"]) * HOUR, _kind(cell["event"]), int(cell.get("nodes") or 1)))
    if faults:
        raise ConfigError(faults)
    return tuple(sorted(found, key=lambda change: change.at))


def _kind(text: str) -> Kind:
    return next(kind for kind in KINDS if kind == text)


def _wrong(cell: Mapping[str, str]) -> Iterator[str]:
    if not _is_moment(cell.get("hours", "")):
        yield f"hours: must be a number from 0 to {MOST:g}."
    if cell.get("event") not in KINDS:
        yield f"event: must be one of {', '.join(KINDS)}."
    if not re.fullmatch("[1-9][0-9]{0,8}", cell.get("nodes") or "1"):
        yield "nodes: must be a whole number from 1 on, or empty for 1."


def _is_moment(text: str) -> bool:
    try:
        return 0 <= float(text) <= MOST
    except ValueError:
        return False
