"""What has to be merged into a rendered pod so that it has all that another one has, and where two still differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from elastic_infra.config.pod_patch import MERGE_KEYS

Tree = Any
"""JSON."""


def missing(wanted: Tree, found: Tree, key: str = "") -> Tree:
    """A strategic-merge patch with what `found` lacks of `wanted`; None where it lacks nothing.

    Args:
        key: of the mapping that holds both: lists of some keys are merged by their items.
    """
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        parts = {name: missing(value, found.get(name), name) for name, value in wanted.items()}
        return {name: part for name, part in parts.items() if part is not None} or None
    if isinstance(wanted, list) and isinstance(found, list):
        merge_key = MERGE_KEYS.get(key)
        return _missing_items(wanted, found, merge_key) if merge_key else _missing_values(wanted, found)
    return None if wanted in (None, {}, []) or is_same(wanted, found) else wanted


def _missing_items(wanted: list[Tree], found: list[Tree], merge_key: str) -> Tree:
    known = {item.get(merge_key): item for item in found}
    patches = []
    for item in wanted:
        name = item.get(merge_key)
        part = missing(item, known[name]) if name in known else item
        if part is not None:
            patches.append({merge_key: name, **part})
    return patches or None


def _missing_values(wanted: list[Tree], found: list[Tree]) -> Tree:
    """Lists that are replaced as a whole: what has been added to one is no reason to."""
    return None if all(any(is_same(item, other) for other in found) for item in wanted) else wanted


def is_same(one: Tree, other: Tree) -> bool:
    """Whether two values mean the same to Kubernetes, where a number may stand for a quantity."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float | str) and isinstance(other, int | float | str):
        return str(one) == str(other)
    return bool(one == other)


def differing(old: Tree, new: Tree, path: str = "", key: str = "") -> Iterator[tuple[str, str]]:
    """Where two trees differ: the verb (`adds`, `drops`, `changes`) and the place, never a value."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in dict.fromkeys([*old, *new]):
            place = f"{path}['{name}']" if "." in name or "/" in name else f"{path}.{name}" if path else str(name)
            yield from differing(old.get(name), new.get(name), place, name)
    elif isinstance(old, list) and isinstance(new, list) and key in MERGE_KEYS:
        before, after = ({str(item.get(MERGE_KEYS[key])): item for item in items} for items in (old, new))
        for name in dict.fromkeys([*before, *after]):
            yield from differing(before.get(name), after.get(name), f"{path}[{name}]")
    elif not is_same(old, new) and not (old in (None, {}, []) and new in (None, {}, [])):
        yield ("adds" if old is None else "drops" if new is None else "changes"), path


def places(patch: Mapping[str, Tree]) -> Iterator[str]:
    """The places of a pod template that a patch touches: a field of the pod or a container, a volume, a label."""
    for part, fields in patch.items():
        for name, value in fields.items():
            path, merge_key = f"{part}.{name}", MERGE_KEYS.get(name)
            if name == "containers":
                for item in value:
                    yield from (f"{path}[{item['name']}].{field}" for field in item if field != "name")
            elif merge_key:
                yield from (f"{path}[{item[merge_key]}]" for item in value)
            elif part == "metadata":
                yield from (f"{path}['{key}']" for key in value)
            else:
                yield path
