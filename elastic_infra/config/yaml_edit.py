"""Changes a few keys of a job file and leaves the rest of its text alone, comments included."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from elastic_infra.config.errors import ConfigError
from elastic_infra.config.load import parse_mapping

Path = tuple[str, ...]
"""The keys that lead to a value."""


def edited(text: str, key: str, value: str, removed: Sequence[Path]) -> str:
    """The text with one key at its top set, and others taken out.

    A text whose form does not allow the edit, as with anchors, is written anew without its comments.

    Args:
        text: YAML or JSON, a mapping.
        removed: what is taken out, each path to a key that the text has.

    Raises:
        ConfigError: the text is not a mapping.
    """
    wanted = without({**parse_mapping(text), key: value}, removed)
    try:
        found = _in_place(text, key, value, removed)
        if parse_mapping(found) == wanted:
            return found
    except (yaml.YAMLError, ConfigError):  # such as an alias whose anchor has gone
        pass
    if text.startswith("{"):
        return json.dumps(wanted, indent=2, ensure_ascii=False) + "\n"
    return yaml.safe_dump(wanted, sort_keys=False, allow_unicode=True)


def without(data: Mapping[str, Any], removed: Sequence[Path]) -> dict[str, Any]:
    """The mapping without these keys."""
    heads = {path[0] for path in removed if len(path) == 1}
    deeper = [path for path in removed if len(path) > 1]
    found = {key: value for key, value in data.items() if key not in heads}
    for head in {path[0] for path in deeper} - heads:
        found[head] = without(found[head], [path[1:] for path in deeper if path[0] == head])
    return found


def _in_place(text: str, key: str, value: str, removed: Sequence[Path]) -> str:
    for path in removed:
        start, end = _extent(text, _root(text), path)
        text = text[:start] + text[end:]
    start, end, new = _setting(text, _root(text), key, value)
    return text[:start] + new + text[end:]


def _root(text: str) -> yaml.MappingNode:
    """The text's nodes with their places; a text without a key left has none."""
    found = yaml.compose(text, Loader=yaml.SafeLoader)
    return found if isinstance(found, yaml.MappingNode) else yaml.MappingNode("", [], flow_style=False)


def _setting(text: str, root: yaml.MappingNode, key: str, value: str) -> tuple[int, int, str]:
    """Where the value is, or where the key goes: beginning, end, and what comes there."""
    for name, old in root.value:
        if name.value == key:
            return old.start_mark.index, old.end_mark.index, value if not root.flow_style else json.dumps(value)
    if root.flow_style:
        at = root.start_mark.index + 1
        return at, at, f"{json.dumps(key)}: {json.dumps(value)}, "
    line = "" if text.endswith("\n") else "\n"
    return len(text), len(text), f"{line}{key}: {value}\n"


def _extent(text: str, root: yaml.MappingNode, path: Path) -> tuple[int, int]:
    """Beginning and end of a key with its value, and of the line or the comma that they take with them."""
    parent, (name, value) = root, _entry(root, path[0])
    for key in path[1:]:
        parent, (name, value) = value, _entry(value, key)
    start, end = name.start_mark.index, _last(value).end_mark.index
    if not parent.flow_style:
        end = text.find("\n", len(text[:end].rstrip()))
        return text.rfind("\n", 0, start) + 1, len(text) if end < 0 else end + 1
    rest = text[end:].lstrip()
    if rest.startswith(","):
        return start, len(text) - len(rest[1:].lstrip())
    return len(text[:start].rstrip().removesuffix(",")), end


def _entry(mapping: yaml.MappingNode, key: str) -> tuple[yaml.Node, Any]:
    return next((name, value) for name, value in mapping.value if name.value == key)


def _last(node: yaml.Node) -> yaml.Node:
    """The last value within a node: the node itself ends only where the next key begins."""
    parts = list(_parts(node)) if not getattr(node, "flow_style", True) else []
    return _last(parts[-1]) if parts else node


def _parts(node: yaml.Node) -> Iterator[yaml.Node]:
    for each in node.value:
        yield each[1] if isinstance(node, yaml.MappingNode) else each
