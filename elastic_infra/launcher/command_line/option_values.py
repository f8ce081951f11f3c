"""The small grammars inside torchrun's option values: ranges, endpoints, rendezvous settings, streams, signals.

Pure functions from text to values; an ``OptionsError`` shows the text and the form that it must have.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from typing import Literal

from .options import OptionsError

Stream = Literal["stdout", "stderr"]


def node_range(text: str) -> tuple[int, int]:
    """``"2"`` is (2, 2), ``"2:4"`` is (2, 4).

    Raises:
        OptionsError: the text is not a range, or the range is empty.
    """
    parts = text.split(":")
    if len(parts) > len(("MIN", "MAX")) or not all(re.fullmatch(r"\s*\d+\s*", part) for part in parts):
        message = f'--nnodes must be a number or "MIN:MAX", it is {text!r}.'
        raise OptionsError(message)
    low, high = int(parts[0]), int(parts[-1])
    if not 0 < low <= high:
        message = f"--nnodes: the minimum must be at least 1 and at most the maximum; got {low} and {high}."
        raise OptionsError(message)
    return low, high


def endpoint(text: str, default_port: int) -> tuple[str, int]:
    """Host and port of an endpoint; IPv6 hosts stand in brackets.

    Raises:
        OptionsError: the text is not an endpoint.
    """
    text = text.strip()
    if not text:
        return "localhost", default_port
    found = re.fullmatch(r"(?:\[(?P<six>[\w.:-]+)\]|(?P<host>[\w.-]+))(?::(?P<port>\d{1,5}))?", text)
    if not found or int(found["port"] or 0) >= 1 << 16:
        message = f'--rdzv-endpoint must be "HOST:PORT" with a port below 65536, it is {text!r}.'
        raise OptionsError(message)
    return found["six"] or found["host"], int(found["port"] or default_port)


def rendezvous_conf(text: str) -> dict[str, str]:
    """``"a=1,b=2"`` as a mapping.

    Raises:
        OptionsError: a key without a value, or a value without a key.
    """
    conf: dict[str, str] = {}
    for pair in text.split(",") if text.strip() else ():
        key, _, value = (word.strip() for word in pair.partition("="))
        if not key or not value:
            message = f"--rdzv-conf must be KEY=VALUE,KEY=VALUE; {pair!r} is not a pair."
            raise OptionsError(message)
        conf[key] = value
    return conf


def stream_map(option: str, text: str) -> dict[int | None, frozenset[Stream]]:
    """Torchrun's ``3`` or ``0:1,1:3`` as streams by local rank.

    Raises:
        OptionsError: the text has neither form.
    """
    streams: Mapping[str, frozenset[Stream]] = {
        "0": frozenset(),
        "1": frozenset({"stdout"}),
        "2": frozenset({"stderr"}),
        "3": frozenset({"stdout", "stderr"}),
    }
    if text in streams:
        return {None: streams[text]}
    if not re.fullmatch(r"\d+:[0-3](,\d+:[0-3])*", text):
        message = f"{option} must be 0, 1, 2 or 3, or a list such as 0:1,1:3; it is {text!r}."
        raise OptionsError(message)
    pairs = (pair.split(":") for pair in text.split(","))
    return {int(rank): streams[value] for rank, value in pairs}


def signal_numbers(names: str) -> tuple[dict[str, signal.Signals], tuple[str, ...]]:
    """The signals of a comma-separated list, and the words in it that name none."""
    words = [word.strip() for word in names.split(",") if word.strip()]
    known = {word: signal.Signals[word] for word in words if word in signal.Signals.__members__}
    return known, tuple(word for word in words if word not in known)


def local_ranks(text: str) -> frozenset[int] | None:
    """``"0,2"`` as a set of local ranks; an empty text means all, which is None.

    Raises:
        OptionsError: the text is not a list of numbers.
    """
    if not text:
        return None
    try:
        return frozenset(int(word) for word in text.split(","))
    except ValueError as error:
        message = f"--local-ranks-filter must be local ranks such as 0,1,2; it is {text!r}."
        raise OptionsError(message) from error


def at_least(bound: int, name: str, value: int) -> int:
    """The value, if it is at least ``bound``.

    Raises:
        OptionsError: the value is smaller.
    """
    if value >= bound:
        return value
    message = f"{name} must be at least {bound}, it is {value}."
    raise OptionsError(message)


def number(name: str, text: str) -> float:
    """A number of seconds, zero or more.

    Raises:
        OptionsError: the text is not a number of seconds.
    """
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    message = f"{name} must be a number of seconds, it is {text!r}."
    raise OptionsError(message)


def tristate(text: str | None) -> bool | None:
    """Torch's words for true and false; None for an absent value.

    Raises:
        OptionsError: the text is none of torch's words.
    """
    if text is None:
        return None
    if text.lower() in {"1", "true", "t", "yes", "y"}:
        return True
    if text.lower() in {"0", "false", "f", "no", "n"}:
        return False
    message = f"--rdzv-conf is_host must be true or false, it is {text!r}."
    raise OptionsError(message)
