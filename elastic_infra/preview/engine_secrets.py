"""Secrets in a `pulumi preview --json`: which of them change. All are masked alike, and only the engine knows more."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from elastic_infra.preview.tree import Difference, Path, Step

_MASK: Final = "[secret]"
"""What stands in the place of a secret, whatever its value:
https://github.com/pulumi/pulumi/blob/v3.230.0/pkg/backend/display/json.go"""

_ANOTHER: Final = "[another secret]"

_KEY: Final = re.compile(r'\["([^"]*)"\]|\[(\d+)\]|([^.\[\]]+)')
"""One key of a path in Pulumi's notation: `spec.containers[0].image`, `data["tls.crt"]`."""

_CONTENT: Final = frozenset({"data", "stringData"})
"""Fields of a Secret whose values are never shown."""

_NAMES_SECRET: Final = {"secretKeyRef": "name", "secretRef": "name", "secret": "secretName"}
"""Fields of a pod that bring a Secret's content to containers, and the field in them that has its name."""


def told_apart(old: dict[str, Any], new: dict[str, Any], changed: Iterable[str]) -> dict[str, Any]:
    """The inputs after a step, with another mask for each secret that is not as before.

    Args:
        changed: the paths that the engine knows to differ.
    """
    for path in changed:
        new = _remasked(old, new, ["".join(keys) for keys in _KEY.findall(path)])
    return new


def _remasked(old: Any, new: Any, keys: Sequence[str]) -> Any:  # noqa: ANN401 - JSON
    if old == new == _MASK:
        return _ANOTHER
    if not keys:
        return new
    key, *rest = keys
    if isinstance(old, dict) and isinstance(new, dict) and key in old and key in new:
        is_same = old.get("name") == new.get("name")  # the engine compares items of lists by position
        return {**new, key: _remasked(old[key], new[key], rest)} if is_same else new
    if isinstance(old, list) and isinstance(new, list) and key.isdecimal() and int(key) < min(len(old), len(new)):
        place = int(key)
        return [*new[:place], _remasked(old[place], new[place], rest), *new[place + 1 :]]
    return new


def is_secret(kind: object, difference: Difference) -> bool:
    """Whether a secret became another: a masked one, or a part of a Secret's content."""
    is_content = kind == "Secret" and bool(difference.path) and difference.path[0].name in _CONTENT
    return difference.new == _ANOTHER or (is_content and difference.old is not None and difference.new is not None)


def named_secrets(value: object, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Where the containers and volumes of an object name a Secret, and its name."""
    if isinstance(value, list):
        for place, each in enumerate(value):
            item = each.get("name", place) if isinstance(each, Mapping) else place
            yield from named_secrets(each, (*path, Step(str(item), is_item=True)))
    elif isinstance(value, Mapping):
        for key, each in value.items():
            here = (*path, Step(key))
            if key in _NAMES_SECRET and isinstance(each, Mapping):
                yield here, str(each.get(_NAMES_SECRET[key]))
            else:
                yield from named_secrets(each, here)
