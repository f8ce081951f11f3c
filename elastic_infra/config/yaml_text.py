"""Reads YAML documents as plain data, in bounded time and memory for any text.

The rules are stricter than PyYAML's: keys are text and given once, there are no types beyond JSON's (a date is text, as
Kubernetes reads it), a variable's number is its text, and nesting and aliases are bounded. No message quotes a value.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, NoReturn, TypeVar

import yaml

from elastic_infra.config.errors import ConfigError, Fault

MAX_DEPTH: Final = 64
"""Deepest nesting; libyaml overflows its stack at some ten thousand, and a job needs ten."""

MAX_NODES: Final = 100_000
"""Most values after aliases are followed; a few lines of aliases to aliases can expand to billions."""

MAX_DIGITS: Final = 64
"""Longest text that is read as a number; Python refuses some thousands, and Kubernetes counts in 64 bits."""

VARIABLES: Final = "env"
"""Key of mappings of environment variables, which are text."""


def read_yaml(text: str) -> object:
    """The document as dicts, lists, text, numbers, booleans and None.

    Raises:
        ConfigError: the text is not valid YAML (with line and column where known), or beyond a limit.
    """
    return _read(text, yaml.load)


def read_documents(text: str) -> list[object]:
    """As `read_yaml`, each document of a stream."""
    return _read(text, lambda text, loader: [*yaml.load_all(text, loader)])


_Found = TypeVar("_Found")


def _read(text: str, load: Callable[[str, Any], _Found]) -> _Found:
    try:
        _check_depth(text)
        return load(text, _Loader)  # a SafeLoader with fewer types
    except yaml.MarkedYAMLError as error:
        raise ConfigError([_fault(error)]) from None
    except (
        yaml.YAMLError,
        UnicodeEncodeError,
    ):  # a character that YAML does not allow, half a surrogate pair among them
        fault = Fault("", "is not valid YAML: it holds a character that YAML does not allow.")
        raise ConfigError([fault]) from None


def _fault(error: yaml.MarkedYAMLError) -> Fault:
    mark = error.problem_mark or error.context_mark
    where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    problem = str(error.problem or error.context).rstrip(".")
    return Fault("", f"is not valid YAML{where}: {_QUOTED.sub(_only_character, problem).rstrip()}.")


def _only_character(quoted: re.Match[str]) -> str:
    return quoted[0] if quoted[1] else ""


_QUOTED: Final = re.compile(r"""(['"]).\1|['"].*""", re.DOTALL)
"""PyYAML quotes single characters, which help, and names of tags and anchors, which may be a mistyped value."""


def _check_depth(text: str) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            _refuse(f"nested deeper than {MAX_DEPTH} levels", event.start_mark)


def _refuse(problem: str, at: Any) -> NoReturn:  # noqa: ANN401 - PyYAML has two types of mark
    raise yaml.constructor.ConstructorError(None, None, problem, at)


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # chosen at run time
    """SafeLoader with JSON's types only."""

    yaml_constructors: dict[str, Any] = {}
    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":timestamp", ":value"))]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def get_single_node(self) -> Any:  # noqa: ANN401 - PyYAML is untyped
        return _bounded(super().get_single_node())

    def get_node(self) -> Any:  # noqa: ANN401 - PyYAML is untyped
        return _bounded(super().get_node())


def _bounded(root: Any) -> Any:  # noqa: ANN401 - PyYAML is untyped
    if root is not None:
        _check_size(root, {})
    return root


def _check_size(node: Any, sizes: dict[int, int]) -> int:  # noqa: ANN401 - PyYAML is untyped
    """Number of values below a node, each alias counted as the values that it stands for."""
    if id(node) not in sizes:
        sizes[id(node)] = MAX_NODES  # until the size is known: an alias inside its own target has no end
        children = node.value if not isinstance(node, yaml.ScalarNode) else ()
        pairs = (part for child in children for part in (child if isinstance(child, tuple) else (child,)))
        sizes[id(node)] = 1 + sum(_check_size(part, sizes) for part in pairs)
    if sizes[id(node)] > MAX_NODES:
        _refuse(f"stands for more than {MAX_NODES} values, or for itself", node.start_mark)
    return sizes[id(node)]


def _mapping(loader: Any, node: yaml.MappingNode) -> dict[str, Any]:  # noqa: ANN401 - PyYAML is untyped
    own = [_key(key) for key, _ in node.value if not key.tag.endswith(":merge")]
    if len(own) > len(set(own)):
        _refuse("a key is given twice", node.start_mark)
    loader.flatten_mapping(node)  # puts merged keys first, so that the mapping's own keys win
    readers = {VARIABLES: _variables}
    return {(name := _key(key)): readers.get(name, _value)(loader, value) for key, value in node.value}


def _variables(loader: Any, node: yaml.Node) -> object:  # noqa: ANN401 - PyYAML is untyped
    """The value, and where it is a mapping each number in it as it is written: YAML 1.1 reads 010 as 8, 1.10 as 1.1."""
    found = _value(loader, node)
    if not isinstance(found, dict):
        return found
    written = {_key(key): value for key, value in node.value}
    return {name: written[name].value if _is_number(value) else value for name, value in found.items()}


def _value(loader: Any, node: yaml.Node) -> object:  # noqa: ANN401 - PyYAML is untyped
    return loader.construct_object(node, deep=True)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _key(key: yaml.Node) -> str:
    if isinstance(key, yaml.ScalarNode) and not key.tag.endswith(":null"):
        return str(key.value)
    _refuse("a key must be plain text", key.start_mark)


def _sequence(loader: Any, node: yaml.SequenceNode) -> list[Any]:  # noqa: ANN401 - PyYAML is untyped
    return [loader.construct_object(child, deep=True) for child in node.value]


def _of(node_type: type[yaml.Node], kind: str, read: Callable[[Any, Any], object]) -> Callable[[Any, Any], object]:
    def construct(loader: Any, node: yaml.Node) -> object:  # noqa: ANN401 - PyYAML is untyped
        problem = f"this is not {kind}"
        if not isinstance(node, node_type):  # a tag in the text claims another type
            _refuse(problem, node.start_mark)
        try:
            return read(loader, node)
        except (ValueError, KeyError):
            _refuse(problem, node.start_mark)

    return construct


def _number(read: Callable[[yaml.SafeLoader, Any], object]) -> Callable[[yaml.SafeLoader, Any], object]:
    def construct(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> object:
        if ":" in node.value or len(node.value) > MAX_DIGITS:  # YAML 1.1 counts 1:30 as 90, Kubernetes as text
            return node.value
        return read(loader, node)

    return construct


_CONSTRUCTORS: Final = {
    "map": _of(yaml.MappingNode, "a mapping", _mapping),
    "seq": _of(yaml.SequenceNode, "a list", _sequence),
    "str": _of(yaml.ScalarNode, "text", yaml.SafeLoader.construct_scalar),
    "int": _of(yaml.ScalarNode, "a number", _number(yaml.SafeLoader.construct_yaml_int)),
    "float": _of(yaml.ScalarNode, "a number", _number(yaml.SafeLoader.construct_yaml_float)),
    "bool": _of(yaml.ScalarNode, "true or false", yaml.SafeLoader.construct_yaml_bool),
    "null": _of(yaml.ScalarNode, "null", yaml.SafeLoader.construct_yaml_null),
}
for _tag, _constructor in _CONSTRUCTORS.items():
    _Loader.add_constructor(f"tag:yaml.org,2002:{_tag}", _constructor)
_Loader.add_constructor(None, lambda _, node: _refuse("a tag that is none of JSON's types", node.start_mark))
