"""What an API server says about an object's shape: the real schemas, and how Kubernetes reads them.

The schemas come from the pinned Go modules under `tools/` and are not copied. Reads a schema as the API server does
under strict field validation: an unknown field is an error, so is a list key that is given twice.
"""

from __future__ import annotations

import functools
import json
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from tools import build, modules
from tools.run import SetupError

Schema = Mapping[str, Any]

_KUBERNETES_SPECS: Final = {
    "v1": "api__v1",
    "apps/v1": "apis__apps__v1",
    "autoscaling/v2": "apis__autoscaling__v2",
    "batch/v1": "apis__batch__v1",
    "networking.k8s.io/v1": "apis__networking.k8s.io__v1",
    "policy/v1": "apis__policy__v1",
    "rbac.authorization.k8s.io/v1": "apis__rbac.authorization.k8s.io__v1",
    "resource.k8s.io/v1": "apis__resource.k8s.io__v1",
}


_TRAINER: Final = ("trainer", build.TRAINER_MODULE, "manifests/base/crds/trainer.kubeflow.org_{}s.yaml")
_GANG: Final = "config/crd/bases/scheduling.x-k8s.io_podgroups.yaml"
_MONITORING: Final = (
    "prometheus-operator",
    "github.com/prometheus-operator/prometheus-operator",
    "example/prometheus-operator-crd/monitoring.coreos.com_{}s.yaml",
)
_CUSTOM: Final = {
    "PyTorchJob": ("training-operator", build.OPERATOR_MODULE, build.CRD_PATH),
    "TrainJob": _TRAINER,
    "TrainingRuntime": _TRAINER,
    "PodGroup": ("scheduler-plugins", "sigs.k8s.io/scheduler-plugins", _GANG),
    "PodMonitor": _MONITORING,
    "PrometheusRule": _MONITORING,
}
"""Kind to the tool, the module and the file that define the kind."""
UNDEFINED: Final = frozenset({"scheduling.volcano.sh/v1beta1"})
"""Versions whose definitions no module has that can be had. `tests/manifests/test_gang.py` reads Volcano's Go types."""


class SchemasMissing(Exception):  # noqa: N818 - a reason to skip, not a fault
    """The pinned Go modules cannot be had here; the message says why."""


def faults(manifest: Mapping[str, Any]) -> list[str]:
    """Everything that the API server's schema has against an object, as ``path: reason``.

    Raises:
        SchemasMissing: without Go, or without its modules.
    """
    if manifest["apiVersion"] in UNDEFINED:
        return []
    schema, named = _schema(manifest["apiVersion"], manifest["kind"])
    return list(_walk(manifest, schema, named, ""))


def load() -> None:
    """Read every schema.

    Raises:
        SchemasMissing: without Go, or without its modules.
    """
    for kind in _CUSTOM:
        _custom(kind)
    for version in _KUBERNETES_SPECS:
        _specs(version)


def definition(kind: str) -> Path:
    """The CustomResourceDefinition of a kind that is not Kubernetes' own.

    Raises:
        SchemasMissing: without Go, or without its modules.
    """
    tool, module, path = _CUSTOM[kind]
    return module_file(tool, module, path.format(kind.lower()))


def schemas(version: str) -> Schema:
    """Every schema of one group and version, by name.

    Raises:
        SchemasMissing: without Go, or without its modules.
    """
    return _specs(version)


def json_schema(version: str, kind: str) -> Schema:
    """The schema of a kind for other readers: draft 7 in one file, in which an unknown field is an error.

    Raises:
        SchemasMissing: without Go, or without its modules.
    """
    schema, named = _schema(version, kind)
    definitions = {name: _strict(each) for name, each in named.items()}
    return {"$schema": "http://json-schema.org/draft-07/schema#", **_strict(schema), "definitions": definitions}


def _strict(schema: Schema) -> Schema:
    """A schema whose parts refer to `definitions` and which takes no field that is not named."""
    strict = dict(schema)
    if "$ref" in schema:
        return {"$ref": schema["$ref"].replace("#/components/schemas/", "#/definitions/")}
    if "properties" in schema:
        strict["properties"] = {name: _strict(each) for name, each in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            strict.setdefault("additionalProperties", False)
    for key in {"items", "additionalProperties"} & strict.keys():
        strict[key] = _strict(strict[key]) if isinstance(strict[key], Mapping) else strict[key]
    for key in {"allOf", "anyOf", "oneOf"} & schema.keys():
        strict[key] = [_strict(each) for each in schema[key]]
    return strict


def _schema(version: str, kind: str) -> tuple[Schema, Schema]:
    return _custom(kind) if kind in _CUSTOM else _kubernetes(version, kind)


@functools.cache
def _custom(kind: str) -> tuple[Schema, Schema]:
    document = yaml.load(definition(kind).read_text(encoding="utf-8"), yaml.CSafeLoader)
    (served,) = [version for version in document["spec"]["versions"] if version["served"]]
    schema = served["schema"]["openAPIV3Schema"]
    named = _specs("v1")
    meta = {"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}
    return {**schema, "properties": {**schema["properties"], "metadata": meta}}, named


@functools.cache
def _kubernetes(version: str, kind: str) -> tuple[Schema, Schema]:
    named = _specs(version)
    group, _, short = version.rpartition("/")
    wanted = {"group": group, "version": short, "kind": kind}
    (schema,) = [s for s in named.values() if wanted in s.get("x-kubernetes-group-version-kind", [])]
    return schema, named


@functools.cache
def _specs(version: str) -> Schema:
    path = f"api/openapi-spec/v3/{_KUBERNETES_SPECS[version]}_openapi.json"
    file = module_file("kubernetes", build.KUBERNETES_MODULE, path)
    schemas: Schema = json.loads(file.read_text(encoding="utf-8"))["components"]["schemas"]
    return schemas


def module_file(tool: str, module: str, path: str) -> Path:
    """A file of a module that the tool's `go.mod` pins.

    Raises:
        SchemasMissing: without Go, or without the module.
    """
    go = shutil.which("go")
    if go is None:
        message = "the real schemas come from Go modules, and go is not on PATH."
        raise SchemasMissing(message)
    try:
        return build.module_folder(modules.HERE / tool, module, go) / path
    except (SetupError, OSError) as error:
        message = f"the Go module {module} cannot be had: {error}"
        raise SchemasMissing(message) from error


def _walk(value: Any, schema: Schema, named: Schema, path: str) -> Iterator[str]:
    schema = _resolved(schema, named)
    if schema.get("x-kubernetes-int-or-string") or schema.get("format") == "int-or-string" or "oneOf" in schema:
        yield from _int_or_string(value, schema, path)
        return
    kind = schema.get("type")
    if not isinstance(value, _TYPES.get(kind, object)) or (isinstance(value, bool) and kind != "boolean"):
        yield f"{path}: is {type(value).__name__}, not {kind}"
    elif isinstance(value, Mapping):
        yield from _object(value, schema, named, path)
    elif isinstance(value, list):
        yield from _list(value, schema, named, path)
    else:
        yield from _scalar(value, schema, path)


_TYPES: Final[Mapping[Any, type | tuple[type, ...]]] = {
    "array": list,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "object": Mapping,
    "string": str,
}


def _resolved(schema: Schema, named: Schema) -> Schema:
    while "$ref" in schema or "allOf" in schema:
        schema = named[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else _only(schema["allOf"])
    return schema


def _only(schemas: list[Schema]) -> Schema:
    (schema,) = schemas
    return schema


def _int_or_string(value: Any, schema: Schema, path: str) -> Iterator[str]:
    if isinstance(value, bool) or not isinstance(value, int | str):
        yield f"{path}: is {type(value).__name__}, not a number or a string"
    elif isinstance(value, str):
        yield from _scalar(value, schema, path)


def _object(value: Mapping[str, Any], schema: Schema, named: Schema, path: str) -> Iterator[str]:
    known, rest = schema.get("properties", {}), schema.get("additionalProperties")
    yield from (f"{path}.{name}: is required" for name in schema.get("required", ()) if name not in value)
    for name, child in value.items():
        if name in known:
            yield from _walk(child, known[name], named, f"{path}.{name}")
        elif rest is not None:
            yield from _walk(child, rest, named, f"{path}.{name}")
        else:
            yield f"{path}.{name}: is unknown"


def _list(value: list[Any], schema: Schema, named: Schema, path: str) -> Iterator[str]:
    for i, item in enumerate(value):
        yield from _walk(item, schema["items"], named, f"{path}[{i}]")
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    if keys or schema.get("x-kubernetes-list-type") == "set":
        seen = [json.dumps([item.get(key) for key in keys] if keys else item) for item in value]
        yield from (f"{path}[{i}]: is given twice" for i, key in enumerate(seen) if key in seen[:i])


def _scalar(value: Any, schema: Schema, path: str) -> Iterator[str]:
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: is not one of {schema['enum']}"
    if "pattern" in schema and not re.search(schema["pattern"], value):
        yield f"{path}: does not match {schema['pattern']}"
    bits = {"int32": 31, "int64": 63}.get(schema.get("format", ""))
    if bits and not -(2**bits) <= value < 2**bits:
        yield f"{path}: does not fit {schema['format']}"
