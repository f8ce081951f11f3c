"""A made-up device of cluster nodes: pods that ask for one are scheduled, or wait, as they do for GPUs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

SLOT: Final = "tests.elastic-infra/slot"
REQUEST: Final = {"resource": SLOT, "count": 1}
"""`resources.gpu` of a job whose nodes each take one."""

Slots = Callable[[int], None]
"""Sets how many there are on the testbed's own node."""
