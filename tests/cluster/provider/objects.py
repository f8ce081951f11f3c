"""Values on the way between the engine and the API server, and what of a live object counts as input. Pure."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from typing import Any

from google.protobuf import json_format, struct_pb2

from tests.cluster.kube import Object
from tests.cluster.provider import changes

UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""What the engine sends in a preview for a value that only `up` will know."""
NAME_SUFFIX_BYTES = 4
FOREGROUND = "foreground"
SERVERS_OWN = frozenset({"creationTimestamp", "generation", "managedFields", "resourceVersion", "uid"})
"""Metadata that only the API server writes."""
PROPAGATION_ANNOTATION = "pulumi.com/deletionPropagationPolicy"


def from_struct(struct: struct_pb2.Struct) -> Object:
    """A message as a document; whole numbers become ints, for Kubernetes refuses `3.0`."""
    document: Object = _whole_numbers(json_format.MessageToDict(struct))
    return {key: value for key, value in document.items() if not key.startswith("__")}


def to_struct(document: Mapping[str, Any]) -> struct_pb2.Struct:
    """A document as a message."""
    return json_format.ParseDict(dict(document), struct_pb2.Struct())


def is_known(value: Any) -> bool:
    """Whether nothing in the document waits for another resource."""
    if isinstance(value, Mapping):
        return all(is_known(part) for part in value.values())
    if isinstance(value, list):
        return all(is_known(part) for part in value)
    return bool(value != UNKNOWN)


def checked(new: Object, old: Object, resource_name: str, *, namespaced: bool) -> Object:
    """The inputs with a name (as given, else as before, else made here) and, where there can be one, a namespace."""
    name = old.get("metadata", {}).get("name") or f"{resource_name}-{secrets.token_hex(NAME_SUFFIX_BYTES)}"
    place = {"namespace": "default"} if namespaced else {}
    return {**new, "metadata": {"name": name, **place, **new.get("metadata", {})}}


def address(manifest: Object) -> str:
    """The resource's id, which names the object within its kind."""
    metadata = manifest["metadata"]
    return f"{metadata.get('namespace', 'default')}/{metadata['name']}"


def addressed(urn: str, name: str) -> Object:
    """What names an object to the API server, from a resource's URN and its id."""
    _, version, kind = urn.split("::")[2].rpartition("$")[2].split(":")
    namespace, _, own = name.rpartition("/")
    return {
        "apiVersion": version.removeprefix("core/"),
        "kind": kind,
        "metadata": {"name": own, "namespace": namespace},
    }


def authored(live: Object) -> Object:
    """The live object without what the server writes: the inputs of an import."""
    metadata = {key: value for key, value in live["metadata"].items() if key not in SERVERS_OWN}
    return {**{key: value for key, value in live.items() if key != "status"}, "metadata": metadata}


def outputs(live: Object) -> Object:
    """The live object as the engine keeps it, without the server's book of owners."""
    metadata = {key: value for key, value in live["metadata"].items() if key != "managedFields"}
    return {**live, "metadata": metadata}


def propagation(manifest: Object) -> str:
    """How the object's dependents end, as its annotation asks."""
    asked = manifest["metadata"].get("annotations", {}).get(PROPAGATION_ANNOTATION, "")
    return "Foreground" if asked == FOREGROUND else "Background"


def with_live(manifest: Object, live: Object, paths: Iterable[str]) -> Object:
    """The manifest with the live values at `paths`: what others own is applied as it is."""
    result = manifest
    for text in paths:
        path = changes.parse(text)
        value = lookup(live, path)
        if value is not None and lookup(manifest, path) is not None:
            result = _replaced(result, path, value)
    return result


def as_inputs(inputs: Any, live: Any) -> Any:
    """The inputs as the live object has them, so that drift shows; fields that no input has stay out."""
    if isinstance(inputs, Mapping) and isinstance(live, Mapping):
        return {key: as_inputs(value, live[key]) for key, value in inputs.items() if key in live}
    if isinstance(inputs, list) and isinstance(live, list) and len(inputs) == len(live):
        return [as_inputs(*pair) for pair in zip(inputs, live, strict=True)]
    return live


def lookup(document: Any, path: changes.Path) -> Any:
    """The value at a path, or None."""
    for part in path:
        try:
            document = document[part]
        except (KeyError, IndexError, TypeError):
            return None
    return document


def _replaced(document: Any, path: changes.Path, value: Any) -> Any:
    if not path:
        return value
    key: Any = path[0]
    if isinstance(document, list):
        return [_replaced(v, path[1:], value) if i == key else v for i, v in enumerate(document)]
    return {**document, key: _replaced(document[key], path[1:], value)}


def _whole_numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _whole_numbers(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_whole_numbers(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
