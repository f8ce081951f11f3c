"""The args that other languages see: made from the config's models, and held to what Pulumi's schema can say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal, get_args

import pydantic
import pytest
from pulumi.provider.experimental.util import camel_case

import elastic_infra
from elastic_infra import JobConfig, args
from elastic_infra.config.docs import field_docs
from elastic_infra.config.values import Late
from elastic_infra.plugin_schema import reached, words
from tests.golden import assert_golden
from tests.package_schema import package_schema
from tools import args_source

SCHEMA: Final = Path(__file__).parent / "engine/schema.json"
TOKEN: Final = "elastic-infra:index:ElasticTrainingJob"


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    """The package's schema as the plugin tells it."""
    found: dict[str, Any] = json.loads(package_schema())
    return found


def test_the_args_are_golden() -> None:
    """`elastic_infra/args.py` is what the models say; `make golden` writes it anew."""
    assert_golden(args_source.TARGET, args_source.source())


def test_the_schema_is_golden(schema: dict[str, Any]) -> None:
    """What other languages see changes only by an explicit command; the version is left out."""
    text = json.dumps({key: value for key, value in schema.items() if key != "version"}, indent=2) + "\n"

    assert_golden(SCHEMA, text)


def test_the_package_says_who_it_is(schema: dict[str, Any]) -> None:
    """Name and version lead a user of another language to the right release."""
    assert (schema["name"], schema["version"]) == ("elastic-infra", elastic_infra.__version__)
    assert set(schema["resources"]) == {
        "elastic-infra:index:ElasticTrainingJob",
        "elastic-infra:index:ElasticLauncher",
    }


def test_every_input_and_output_has_a_description(schema: dict[str, Any]) -> None:
    """Other languages have no other documentation."""
    properties: dict[str, Any] = {}
    for resource in schema["resources"].values():
        properties |= resource["inputProperties"]
        properties |= {f"output {name}": value for name, value in resource["properties"].items()}
    for name, kind in schema["types"].items():
        properties |= {f"{name}.{key}": value for key, value in kind.get("properties", {}).items()}
        properties[name] = kind

    assert [name for name, value in properties.items() if not value.get("description")] == []


def test_required_inputs_are_the_fields_without_default(schema: dict[str, Any]) -> None:
    """The compiler of another language asks for exactly what validation asks for."""
    job = schema["resources"][TOKEN]

    assert job["requiredInputs"] == [name for name, field in JobConfig.model_fields.items() if field.is_required()]


def models(model: type[pydantic.BaseModel] = JobConfig) -> Iterator[tuple[type[pydantic.BaseModel], Any]]:
    """Every model of the config with its TypedDict."""
    for found in dict.fromkeys(reached(model)):
        yield found, getattr(args, "ElasticTrainingJobArgs" if found is JobConfig else found.__name__)


def test_args_and_models_agree_field_by_field() -> None:
    """Names, optionality and documentation cannot drift apart."""
    for model, typed in models():
        optional = {name for name, field in model.model_fields.items() if not field.is_required()}
        docs = {name: " ".join(doc.split()) for name, doc in field_docs(model).items()}

        assert list(typed.__annotations__) == list(model.model_fields), model
        assert typed.__optional_keys__ == optional, model
        assert field_docs(typed) == docs, model


def fields(schema: dict[str, Any]) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Every field of the config: its path, its annotation, and what the schema says of it."""
    for model, typed in models():
        token = f"elastic-infra:index:{model.__name__}"
        kind = schema["types"].get(token, {"properties": schema["resources"][TOKEN]["inputProperties"]})
        for name, field in model.model_fields.items():
            yield f"{typed.__name__}.{name}", field.annotation, kind["properties"][camel_case(name)]


def test_words_are_enums(schema: dict[str, Any]) -> None:
    """A compiler of another language knows the words of a field that takes no others, each by a name of its own."""
    found = {
        path: schema["types"][told["$ref"].removeprefix("#/types/")]
        for path, annotation, told in fields(schema)
        if words(annotation)
    }

    assert {path: tuple(word["value"] for word in enum["enum"]) for path, enum in found.items()} == {
        path: words(annotation) for path, annotation, _ in fields(schema) if words(annotation)
    }
    assert found["RunPolicy.on_restart"]["enum"][0] == {"name": "Replace", "value": "replace"}
    names = [[word["name"] for word in enum["enum"]] for enum in found.values()]
    assert all(name.isidentifier() for each in names for name in each)
    assert [each for each in names if len(set(each)) < len(each)] == []


def test_an_output_is_taken_where_the_component_takes_one(schema: dict[str, Any]) -> None:
    """What is `plain` in the schema takes no output of another resource, and all else does, as in Python."""
    late = {path for path, annotation, _ in fields(schema) if Late in leaves(annotation)}
    told = {path for path, _, told in fields(schema) if not told.get("items", told).get("plain")}

    assert late == told
    assert {"ElasticTrainingJobArgs.image", "ElasticTrainingJobArgs.args", "EnvVar.value"} <= told


def leaves(annotation: Any) -> set[Any]:
    """The types that an annotation is made of, metadata and models' own fields left out."""
    arguments = get_args(annotation)
    return {leaf for argument in arguments for leaf in leaves(argument)} if arguments else {annotation}


def test_only_strings_may_come_late() -> None:
    """What fixes the structure of a preview is plain, so that the preview is complete."""
    late = re.findall(r"(\S*pulumi\.\w+\[.*)", args_source.source())

    assert {annotation.removeprefix("NotRequired[").rstrip("]") for annotation in late} == {
        "pulumi.Input[str",
        "list[pulumi.Input[str",
    }


@pytest.mark.parametrize("value", [8.0, 8])
def test_whole_numbers_come_as_floats_from_other_languages(value: float) -> None:
    """The wire knows one kind of number."""
    config = JobConfig.from_mapping({"image": "i", "script": "s", "elastic": {"max_restarts": value}})

    assert config.elastic.max_restarts == 8


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"elastic": {"max_restarts": 2.5}}, "elastic.max_restarts: must be a whole number."),
        ({"imgae": "i"}, "imgae: is not a known key. Did you mean 'image'?"),
        ({"image": None}, "image: must be a string; quote it if it is meant as text."),
    ],
)
def test_what_no_manifest_can_hold_is_refused(change: dict[str, Any], fault: str) -> None:
    """A typo or a half restart never vanishes."""
    with pytest.raises(elastic_infra.ConfigError) as error:
        JobConfig.from_mapping({"image": "i", "script": "s", **change})

    assert str(error.value) == fault


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (int | None, "int"),
        (Literal["a", "b"], "str"),
        (tuple[str, ...], "list[str]"),
        (dict[str, bool], "dict[str, bool]"),
        (pydantic.JsonValue, "Any"),
    ],
)
def test_an_annotation_is_spelt_for_the_schema(annotation: Any, expected: str) -> None:
    """Unions with nothing, words and sequences have one plain form each."""
    assert args_source.spelling(annotation, {}) == expected


@pytest.mark.parametrize("annotation", [int | str, Literal[1, "a"], complex])
def test_what_the_schema_cannot_say_is_refused(annotation: Any) -> None:
    """A new field of such a type is found when the args are written, not by a user of another language."""
    with pytest.raises(TypeError, match="Give the field one plain type"):
        args_source.spelling(annotation, {})
