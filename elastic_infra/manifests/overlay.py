"""Merges a patch into a pod template, as the API server's strategic merge does.

Source: https://kubernetes.io/docs/tasks/manage-kubernetes-objects/update-api-object-kubectl-patch/
"""

from __future__ import annotations

from collections.abc import Mapping

from elastic_infra.config.pod_patch import DIRECTIVE, MERGE_KEYS
from elastic_infra.manifests.model import Value


def overlaid(base: Mapping[str, Value], patch: Mapping[str, Value]) -> dict[str, Value]:
    """The mapping with the patch merged in; a null in the patch takes the key out, and so does an empty list."""
    merged = {**base, **{key: _merged(key, base.get(key), value) for key, value in patch.items()}}
    return {key: value for key, value in merged.items() if key not in patch or (value is not None and value != [])}


def _merged(key: str, base: Value, patch: Value) -> Value:
    if isinstance(patch, Mapping):
        return overlaid(base if isinstance(base, Mapping) else {}, patch)
    if isinstance(patch, list) and key in MERGE_KEYS:
        return _items(base if isinstance(base, list) else [], patch, MERGE_KEYS[key])
    return patch


def _items(base: list[Value], patch: list[Value], key: str) -> list[Value]:
    """The list with each item of the patch merged into the one that has its key, or put behind all others."""
    merged = list(base)
    for item in patch:
        place = next((index for index, each in enumerate(merged) if _key(each, key) == _key(item, key)), len(merged))
        deletes = isinstance(item, Mapping) and item.get(DIRECTIVE) == "delete"
        known = merged[place] if place < len(merged) else {}
        mapping = isinstance(item, Mapping) and isinstance(known, Mapping)
        replacement = [overlaid(known, item) if mapping else item]  # type: ignore[arg-type]  # just checked
        merged[place : place + 1] = [] if deletes else replacement
    return merged


def _key(item: Value, key: str) -> Value:
    return item.get(key) if isinstance(item, Mapping) else None
