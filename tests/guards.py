"""Guards in the code, and what becomes of a law without one: a function runs with one part of its source changed."""

from __future__ import annotations

import dataclasses
import inspect
import pkgutil
import textwrap
from types import CodeType
from typing import Any

import pytest


@dataclasses.dataclass(frozen=True)
class Guard:
    """What of a function's source holds a law.

    Attributes:
        function: where it is, as `package.module:function` or `package.module:Class.property`.
        has: the part of the source that is the guard, and is there once.
        without: what stands there when nobody has thought of the pitfall.
    """

    function: str
    has: str
    without: str = ""


def remove(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the function run without the guard, for all who have imported the function, until the test ends."""
    found: Any = pkgutil.resolve_name(guard.function)
    function: Any = found.fget if isinstance(found, property) else found
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(guard.has) == 1, f"{guard.function} has the guard once: {guard.has}"
    header = "from __future__ import annotations\n"
    module = compile(header + source.replace(guard.has, guard.without), "<without its guard>", "exec")
    (code,) = (each for each in module.co_consts if isinstance(each, CodeType))
    monkeypatch.setattr(function, "__code__", code)
