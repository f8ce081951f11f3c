"""A plan of faults with their times, as one line, as YAML, or drawn from a seed. Pure, except for reading a file.

    12s kill node 1; 20s scale 3        seconds since the job first trained
    +3s kill worker 0.1                 seconds since training was back after the fault before

The second form waits for the training and not for the clock, so that a slow machine has the same run as a fast one.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from elastic_infra.config import ConfigError
from elastic_infra.config.yaml_text import read_yaml
from elastic_infra.local.faults import Fault, FaultError, Shape, check, parse_fault

_ENTRY: Final = re.compile(r"\s*(\+?)\s*([0-9]{1,6}(?:\.[0-9]{1,3})?)\s*(s|m)?(?:\s+(.*))?", re.DOTALL)
_FORM: Final = "Write it as `12s kill node 1`, or `+3s kill node 1` for 3 s after training is back."


@dataclasses.dataclass(frozen=True)
class Entry:
    """One fault and its time.

    Attributes:
        seconds: since the job first trained, or, after recovery, since training was back.
        after_recovery: which of the two.
    """

    seconds: float
    fault: Fault
    after_recovery: bool = False

    def __str__(self) -> str:
        return f"{'+' if self.after_recovery else ''}{self.seconds:g}s {self.fault}"


Plan = tuple[Entry, ...]
"""The faults in the order in which they are injected."""


def format_plan(plan: Plan) -> str:
    """The plan as one line; ``parse_plan(format_plan(plan)) == plan``."""
    return "; ".join(map(str, plan))


def read_plan(text: str) -> Plan:
    """A plan from a command line: its text, or the path of a file with it.

    Raises:
        FaultError: the plan cannot be read.
    """
    if not re.match(r"\s*[-+\[0-9]", text):
        path = Path(text)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, ValueError):
            message = f"{text!r} is neither a plan nor a file that can be read. {_FORM}"
            raise FaultError(message) from None
    return parse_plan(text)


def parse_plan(text: str) -> Plan:
    """A plan in either form: entries between semicolons or lines, or a YAML list.

    Raises:
        FaultError: with the place of the first entry that cannot be read.
    """
    plan = _parse_yaml(text) if re.match(r"\s*(-\s|\[|#)", text) else _parse_line(text)
    latest = 0.0
    for entry in plan:
        if not entry.after_recovery and entry.seconds < latest:
            message = f"`{entry}` comes after {latest:g}s in the plan. Put the entries in the order of their times."
            raise FaultError(message)
        latest = latest if entry.after_recovery else entry.seconds
    return plan


def check_plan(plan: Plan, shape: Shape) -> None:
    """Check every fault against the job as it is at that point of the plan.

    Raises:
        FaultError: a node or worker does not exist then, or the job may not have so many nodes.
    """
    nodes = shape.nodes
    for entry in plan:
        try:
            nodes = check(entry.fault, shape, nodes)
        except FaultError as error:
            message = f"`{entry}`: {error}"
            raise FaultError(message) from None


def _parse_line(text: str) -> Plan:
    parts = (match for match in re.finditer(r"[^;\n]+", text) if match[0].strip())
    return tuple(_parse_entry(part[0], _place(text, part)) for part in parts)


def _place(text: str, part: re.Match[str]) -> str:
    start = part.start() + len(part[0]) - len(part[0].lstrip())
    line, column = text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start)
    return f"column {column}" if line == 1 else f"line {line}, column {column}"


def _parse_entry(text: str, place: str) -> Entry:
    match = _ENTRY.fullmatch(text)
    if match is None:
        message = f"{place}: {' '.join(text.split())!r} does not begin with a time. {_FORM}"
        raise FaultError(message)
    plus, number, unit, fault = match.groups()
    try:
        return Entry(float(number) * (60 if unit == "m" else 1), parse_fault(fault or ""), bool(plus))
    except FaultError as error:
        message = f"{place}: {error}"
        raise FaultError(message) from None


def _parse_yaml(text: str) -> Plan:
    try:
        data = read_yaml(text)
    except ConfigError as error:
        raise FaultError(str(error)) from None
    if not isinstance(data, Sequence) or isinstance(data, str):
        message = "a plan in YAML is a list of entries."
        raise FaultError(message)
    return tuple(_parse_item(item, f"entry {number}") for number, item in enumerate(data, 1))


def _parse_item(item: Any, place: str) -> Entry:  # noqa: ANN401 - YAML
    match item:
        case str():
            return _parse_entry(item, place)
        case {"at": time, "fault": str(fault), **rest} if not rest:
            return _parse_entry(f"{time} {fault}", place)
        case {"after": time, "fault": str(fault), **rest} if not rest:
            return _parse_entry(f"+{time} {fault}", place)
    message = f"{place}: must be text such as `12s kill node 1`, or a mapping of `at` (or `after`) and `fault`."
    raise FaultError(message)
