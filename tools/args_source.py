"""Writes `elastic_infra/args.py`: the config's models as TypedDicts, in the form that Pulumi's schema allows.

The component's `args` cannot be the models themselves: Pulumi's analyzer knows no unions, no `Literal`, no defaults.
Names, optionality and docstrings come from the models, so that the two cannot differ.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import pydantic

from elastic_infra.config import JobConfig
from elastic_infra.config.docs import field_docs
from elastic_infra.config.values import Late
from elastic_infra.plugin_schema import reached

TARGET: Final = Path(__file__).resolve().parent.parent / "elastic_infra/args.py"

_HEADER: Final = '''\
# ruff: noqa: E501 - the schema takes a docstring as it stands, so each is one line
"""What `ElasticTrainingJob` takes, as TypedDicts: the form that Pulumi's schema allows in every language.

Written from `elastic_infra.config` by `make golden`; not to be edited. Only strings that another resource may deliver
are `pulumi.Input`; each field's limits and defaults are the model's.
"""

from typing import Any

import pulumi
from typing_extensions import NotRequired, TypedDict
'''


def source(root: type[pydantic.BaseModel] = JobConfig, name: str = "ElasticTrainingJobArgs") -> str:
    """The module's text: every model that the root reaches, those that others need first."""
    models = list(dict.fromkeys(reached(root)))
    names = {model: name if model is root else model.__name__ for model in models}
    exported = "".join(f'    "{exported}",\n' for exported in sorted(names.values()))
    classes = "".join(_class(model, names) for model in models)
    return f"{_HEADER}\n__all__ = [\n{exported}]\n{classes}"


def _class(model: type[pydantic.BaseModel], names: Mapping[type, str]) -> str:
    docs = field_docs(model)
    fields = "".join(_field(name, field, docs[name], names) for name, field in model.model_fields.items())
    purpose = (model.__doc__ or "").split("\n\n")[0]
    return f"\n\nclass {names[model]}(TypedDict):\n{_docstring(purpose)}{fields}"


def _field(name: str, field: pydantic.fields.FieldInfo, doc: str, names: Mapping[type, str]) -> str:
    kind = spelling(field.annotation, names)
    optional = kind if field.is_required() else f"NotRequired[{kind}]"
    return f"\n    {name}: {optional}\n{_docstring(doc)}"


def _docstring(text: str) -> str:
    line = " ".join(text.split())
    return f'    """{line}"""\n'


def spelling(annotation: Any, names: Mapping[type, str]) -> str:  # noqa: ANN401 - a type expression
    """A model's annotation as the schema can say it: no union, no `Literal`, no bounds.

    Raises:
        TypeError: the schema has no word for it.
    """
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is None:
        return _of_type(annotation, names)
    if origin is Literal:
        return _one({type(word).__name__ for word in arguments}, annotation)
    if origin in {Union, types.UnionType}:
        return _of_union([argument for argument in arguments if argument is not types.NoneType], names)
    form = {Annotated: "{}", tuple: "list[{}]", dict: "dict[str, {}]"}[origin]
    return form.format(spelling(arguments[1 if origin is dict else 0], names))


def _of_type(kind: Any, names: Mapping[type, str]) -> str:  # noqa: ANN401 - a type expression
    if kind in {Any, pydantic.JsonValue}:
        return "Any"
    if kind is bytes:
        return "str"  # base64
    return names.get(kind) or _one({kind.__name__} & _PLAIN, kind)


_PLAIN: Final = {"bool", "float", "int", "str"}


def _of_union(arguments: list[Any], names: Mapping[type, str]) -> str:
    spelt = {spelling(argument, names) for argument in arguments if argument is not Late}
    if Late in arguments or "pulumi.Input[str]" in spelt:
        return "pulumi.Input[str]"
    return _one(spelt, arguments)


def _one(spelt: set[str], annotation: object) -> str:
    if len(spelt) == 1:
        return spelt.pop()
    message = f"Pulumi's schema cannot say {annotation!r}. Give the field one plain type."
    raise TypeError(message)
