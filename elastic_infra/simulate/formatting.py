"""Times, shares and money in words. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from elastic_infra.simulate.estimate import Estimate
from elastic_infra.simulate.measured import GIGABYTE
from elastic_infra.simulate.scenario import HOUR

_MINUTE: Final = 60.0
_LONG_HOURS: Final = 100


def hours(amount: float) -> str:
    """A time to finish: 12.3 h, 250 h, never."""
    if math.isinf(amount):
        return "never"
    return f"{amount:.1f} h" if amount < _LONG_HOURS else f"{amount:,.0f} h"


def seconds(amount: float) -> str:
    """An interval: 45 s, 12 min, 3.4 h."""
    if amount < 2 * _MINUTE:
        return f"{amount:.0f} s"
    return f"{amount / _MINUTE:.0f} min" if amount < 2 * HOUR else f"{amount / HOUR:.1f} h"


def size(amount: float) -> str:
    """A number of bytes: 10 GB, 0.5 GB."""
    return f"{amount / GIGABYTE:g} GB"


def percent(share: float) -> str:
    """A share: 93.4 %."""
    return f"{100 * share:.1f} %"


def money(amount: float) -> str:
    """An amount in the user's currency."""
    return "never" if math.isinf(amount) else f"{amount:,.0f}"


def estimated(figure: Estimate, say: Callable[[float], str]) -> str:
    """A mean with half of its confidence interval."""
    if math.isinf(figure.mean):
        return say(figure.mean)
    return f"{say(figure.mean)} ± {say(figure.high - figure.mean)}"
