"""Members that the script builds anew for each process group, since a sharded model cannot leave the one it is in.

The process stays: its imports, data and compiled kernels. Only the built members are new, and a restore fills them.
"""

from __future__ import annotations

import atexit
import copy
import gc
from collections.abc import Callable, Mapping
from typing import Any

from . import generators, shards

Build = Callable[[], Mapping[str, Any]]
"""Builds members for the current process group: each by its name, such as ``model`` and ``optimizer``."""


class Rebuilt:
    """The members that a script's function builds.

    Args:
        build: the function.
    """

    def __init__(self, build: Build) -> None:
        self._build = build
        self._names: frozenset[str] = frozenset()
        self._beginning: _Beginning | None = None

    @property
    def is_built(self) -> bool:
        """Whether the members have been built for any group."""
        return bool(self._names)

    def rebuild(self, members: dict[str, Any], plain: dict[str, Any]) -> None:
        """Replace the built members by new ones, and set all others back to what they were before the first build.

        So all ranks build with the same random numbers, newcomers or not, as in processes that have just begun.

        Args:
            members: the members of the state, built ones and others.
            plain: the plain values of the state.

        Raises:
            TypeError: the function gives no mapping of members, or one with a name that the state has already.
        """
        shards.forget_meshes(members.pop(name) for name in self._names)
        self._names = frozenset()  # until the function returns, which it does not where a peer is lost meanwhile
        if self._beginning is None:
            self._beginning = _Beginning(members, plain)
            _spare_collector()
        else:
            gc.collect()  # modules and hooks of FSDP2 refer to each other: the memory is needed for their successors
        self._beginning.set_back(members, plain)
        built = self._build()
        if (
            not isinstance(built, Mapping)
            or not built
            or not all(hasattr(each, "state_dict") for each in built.values())
        ):
            message = 'build must return its members by name: {"model": model, "optimizer": optimizer}.'
            raise TypeError(message)
        twice = sorted(built.keys() & (members.keys() | plain.keys()))
        if twice:
            message = f"build returns {twice[0]!r}, which ElasticState was given as well. Leave one of them out."
            raise TypeError(message)
        self._names = frozenset(built)
        members.update(built)


def _spare_collector() -> None:
    """Have later collections leave out what there is now: of torch's modules alone they would take 0.2 s."""
    gc.freeze()
    atexit.register(gc.unfreeze)  # torch's extensions complain of what is never freed


class _Beginning:
    """The values before the first build."""

    def __init__(self, members: Mapping[str, Any], plain: Mapping[str, Any]) -> None:
        self._members = {name: copy.deepcopy(member.state_dict()) for name, member in members.items()}
        self._plain = copy.deepcopy(dict(plain))
        self._generators = generators.Held()
        self._generators.hold()

    def set_back(self, members: Mapping[str, Any], plain: dict[str, Any]) -> None:
        for name, values in self._members.items():
            members[name].load_state_dict(copy.deepcopy(values))
        plain.update(copy.deepcopy(self._plain))
        self._generators.set_back()
