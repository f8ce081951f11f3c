"""The library for training scripts: progress reports, agreed stops, and a state that survives every change.

Names load when they are first used, so that a script that only reports steps imports no torch through this package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from .accumulation import accumulation_steps, scaled_learning_rate
from .progress import Progress

if TYPE_CHECKING:
    from .iterable import ElasticIterable
    from .loop import Elastic, Snapshots
    from .process_group import ElasticGroup
    from .sampler import ElasticSampler
    from .snapshots import Keep
    from .state import ElasticState, Restored, StateError

__all__ = [
    "Elastic",
    "ElasticGroup",
    "ElasticIterable",
    "ElasticSampler",
    "ElasticState",
    "Keep",
    "Progress",
    "Restored",
    "Snapshots",
    "StateError",
    "accumulation_steps",
    "scaled_learning_rate",
]

_MODULES: Final = {
    "Elastic": "loop",
    "ElasticGroup": "process_group",
    "ElasticIterable": "iterable",
    "ElasticSampler": "sampler",
    "ElasticState": "state",
    "Keep": "snapshots",
    "Restored": "state",
    "Snapshots": "loop",
    "StateError": "state",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401  PEP 562
    if name in _MODULES:
        return getattr(import_module(f".{_MODULES[name]}", __name__), name)
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)
