"""What changed between two inputs of a Kubernetes object, as nested paths, and what of it means replacement.

Pure: the engine applies `replace_on_changes` and `ignore_changes` to these very paths.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["add", "delete", "update"]
IDENTITY = (("apiVersion",), ("kind",), ("metadata", "name"), ("metadata", "namespace"))
"""An object with another identity is another object."""
FIXED: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "ConfigMap": (("data",), ("binaryData",), ("immutable",)),
    "Deployment": (("spec", "selector"),),
    "Job": (
        ("spec", "backoffLimitPerIndex"),
        ("spec", "completionMode"),
        ("spec", "completions"),
        ("spec", "parallelism"),
        ("spec", "podFailurePolicy"),
        ("spec", "selector"),
        ("spec", "successPolicy"),
        ("spec", "template"),
    ),
    "PersistentVolumeClaim": (("spec",),),
    "Secret": (("data",), ("stringData",), ("type",)),
    "Service": (("spec", "clusterIP"),),
}
"""Parts that Kubernetes, or the official provider, never changes in place."""
Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Change:
    """One leaf, or one subtree that is there on one side only."""

    path: Path
    kind: Kind

    @property
    def text(self) -> str:
        """The path in Pulumi's notation."""
        return render(self.path)


def changes(old: Any, new: Any, path: Path = ()) -> Iterator[Change]:
    """All differences, in the order of the keys; lists are compared place by place."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted({*old, *new}):
            yield from _member(old, new, (*path, key), key in old, key in new)
    elif isinstance(old, list) and isinstance(new, list):
        for index in range(max(len(old), len(new))):
            yield from _member(old, new, (*path, index), index < len(old), index < len(new))
    elif old != new:
        yield Change(path, "update")


def replaces(kind: str, change: Change) -> bool:
    """Whether an object of this kind must be replaced for the change."""
    return any(change.path[: len(fixed)] == fixed for fixed in (*IDENTITY, *FIXED.get(kind, ())))


def render(path: Path) -> str:
    """A path in Pulumi's notation: `spec.containers[0].image`, `metadata.labels["a.b/c"]`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part and all(c not in part for c in '."[]'):
            text += f".{part}" if text else part
        else:
            text += f'["{part}"]'
    return text


def parse(text: str) -> Path:
    """The path that `render` made into text; `*` in brackets is not understood."""
    path: list[str | int] = []
    rest = text
    while rest:
        if rest.startswith('["'):
            key, _, rest = rest[2:].partition('"]')
            path.append(key)
        elif rest.startswith("["):
            index, _, rest = rest[1:].partition("]")
            path.append(int(index))
        else:
            rest = rest.removeprefix(".")
            end = min((i for c in ".[" if (i := rest.find(c)) >= 0), default=len(rest))
            path.append(rest[:end])
            rest = rest[end:]
    return tuple(path)


def _member(old: Any, new: Any, path: Path, in_old: bool, in_new: bool) -> Iterator[Change]:  # noqa: FBT001  # a pair
    key: Any = path[-1]
    if in_old and in_new:
        yield from changes(old[key], new[key], path)
    else:
        yield Change(path, "delete" if in_old else "add")
