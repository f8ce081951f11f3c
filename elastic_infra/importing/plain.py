"""Brings what others wrote into the form that Kubernetes gives it, so that the readers need to know no other."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from elastic_infra.config import ConfigError, Fault
from elastic_infra.config.pod_patch import MERGE_KEYS

Tree = Any
"""JSON."""

REFERENCE: Final = re.compile(r"\$\(([-.\w]+)\)")
"""Where Kubernetes puts the value of a variable into a text: `$(NAME)`."""

_TEXTS: Final = frozenset({"annotations", "labels", "matchLabels", "nodeSelector"})
"""Mappings of texts, in which null is the empty text."""
_LISTS_OF_TEXT: Final = frozenset({"args", "command"})


def without_nulls(tree: Tree, key: str = "") -> Tree:
    """The tree without nulls, which Kubernetes reads as no value, or as an empty text among texts.

    Args:
        key: of the mapping that holds the tree.

    Raises:
        ConfigError: a list that is merged by a key holds what is no mapping.
    """
    if isinstance(tree, Mapping):
        if key in _TEXTS:
            return {name: "" if value is None else value for name, value in tree.items()}
        return {name: without_nulls(value, name) for name, value in tree.items() if value is not None}
    if isinstance(tree, list):
        if key in _LISTS_OF_TEXT:
            return ["" if each is None else each for each in tree]
        if key in MERGE_KEYS and not all(isinstance(each, Mapping | None) for each in tree):
            raise ConfigError([Fault(key, "must be a list of mappings, as in a pod.")])
        return [without_nulls(each) for each in tree if each is not None]
    return tree


def with_one_each(tree: Tree, path: str, key: str = "") -> tuple[Tree, list[str]]:
    """The tree with one item for each merge key of a list, and the places where others are lost.

    The last variable of a name is the one that Kubernetes sets, so that nothing is lost with the others.
    """
    if isinstance(tree, Mapping):
        parts = {name: with_one_each(value, f"{path}.{name}", name) for name, value in tree.items()}
        lost = [place for _, places in parts.values() for place in places]
        return {name: part for name, (part, _) in parts.items()}, lost
    if not isinstance(tree, list) or key not in MERGE_KEYS:
        return tree, []
    by_key: dict[object, list[Tree]] = {}
    for each in tree:
        by_key.setdefault(each.get(MERGE_KEYS[key]), []).append(each)
    repeated = [f"{path}[{name}]" for name, items in by_key.items() if len(items) > 1 and key != "env"]
    kept = [with_one_each(items[-1 if key == "env" else 0], f"{path}[{name}]") for name, items in by_key.items()]
    return [item for item, _ in kept], repeated + [place for _, places in kept for place in places]
