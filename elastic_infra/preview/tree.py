"""Differences between two trees of models, mappings and lists, with the items of lists matched by their key.

One walk serves configs and manifests, so that both are compared by the same rules. The module does not depend on
either.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, Literal, TypeAlias

from pydantic import BaseModel

from elastic_infra.config import EnvVar
from elastic_infra.config.workdir import Files

Tree: TypeAlias = object
Branch: TypeAlias = "dict[str, Tree]"

_KEYS: Final = ("name", "mount_path", "mountPath", "topology_key", "topologyKey", "key", "type")
"""The possible keys of a list's items; the first one counts that every item has with a unique value."""


@dataclasses.dataclass(frozen=True)
class Step:
    """One step down a tree: a field (`spec`) or an item (`[pytorch]`)."""

    name: str
    is_item: bool = False


Path: TypeAlias = tuple[Step, ...]


@dataclasses.dataclass(frozen=True)
class Difference:
    """One place where two trees differ.

    Attributes:
        kind: `items` and `keys` say that the same items of a list, or the same keys of a mapping, only stand in
            another order; `old` and `new` are then their names.
    """

    path: Path
    old: Tree
    new: Tree
    kind: Literal["value", "items", "keys"] = "value"


def written(path: Path) -> str:
    """``spec.containers[pytorch].image``; names with dots stand in quotes."""
    text = ""
    for step in path:
        if step.is_item:
            text += f"[{step.name}]"
        elif "." in step.name or "/" in step.name:
            text += f"[{step.name!r}]"
        else:
            text += f".{step.name}" if text else step.name
    return text


def plain(path: Path) -> str:
    """``spec.containers.pytorch.image``: fields and items alike, for comparison with option paths."""
    return ".".join(step.name for step in path)


def differences(old: Tree, new: Tree, path: Path = (), *, keys_matter: bool = True) -> Iterator[Difference]:
    """Every difference, in the order of the trees.

    Args:
        path: where the trees stand.
        keys_matter: whether the order of a mapping's keys counts; in a manifest it does not.
    """
    if old is new or (not keys_matter and old == new):
        return
    before, after, is_item = _branches(old, new)
    if before is None or after is None:
        if old != new:
            yield Difference(path, old, new, "items" if _same_items(old, new) else "value")
        return
    if (is_item or keys_matter) and order_differs(before, after):
        yield Difference(path, list(before), list(after), "items" if is_item else "keys")
    for name in dict.fromkeys([*before, *after]):
        yield from differences(before.get(name), after.get(name), (*path, Step(name, is_item)), keys_matter=keys_matter)


def order_differs(old: Collection[str], new: Collection[str]) -> bool:
    """Whether the items that both sides have are in another order."""
    return [name for name in old if name in new] != [name for name in new if name in old]


def _branches(old: Tree, new: Tree) -> tuple[Branch | None, Branch | None, bool]:
    """The named children of both trees, None for a leaf, and whether they are items of a list."""
    if isinstance(old, Sequence) and isinstance(new, Sequence) and not isinstance(old, str):
        key = item_key(old, new)
        return (keyed(old, key), keyed(new, key), True) if key else (None, None, True)
    return children(old), children(new), False


def children(tree: Tree) -> Branch | None:
    """The fields of a model or mapping, None for anything else; a variable counts as one value, and so do files."""
    if isinstance(tree, EnvVar | Files):
        return None
    if isinstance(tree, BaseModel):
        return {name: getattr(tree, name) for name in type(tree).model_fields}
    return {str(name): value for name, value in tree.items()} if isinstance(tree, Mapping) else None


def item_key(*lists: Sequence[Tree]) -> str | None:
    """The field by which the items of all these lists are known, None when they have none."""
    items = [[children(item) for item in items] for items in lists]
    return next((key for key in _KEYS if all(_is_key(key, side) for side in items)), None) if any(items) else None


def _is_key(key: str, items: Sequence[Branch | None]) -> bool:
    names = [item.get(key) if item else None for item in items]
    return all(isinstance(name, str) for name in names) and len(set(names)) == len(names)


def keyed(items: Sequence[Tree], key: str) -> Branch:
    """Items by the value of their key."""
    return {str((children(item) or {})[key]): item for item in items}


def _same_items(old: Tree, new: Tree) -> bool:
    if not isinstance(old, list | tuple) or not isinstance(new, list | tuple):
        return False
    return sorted(map(repr, old)) == sorted(map(repr, new))
