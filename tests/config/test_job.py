"""The config as a whole: its schema, its defaults, its being a value."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pydantic
import pytest
from hypothesis import given, settings

from elastic_infra import JobConfig
from elastic_infra.config import Metric
from tests import jobs, strategies
from tests.strategies import Data

SCHEMA = JobConfig.model_json_schema()


def _fields(model: type[pydantic.BaseModel]) -> Iterator[tuple[str, str | None]]:
    definitions = {model.__name__: SCHEMA, **SCHEMA["$defs"]}
    for name, definition in definitions.items():
        for field, schema in definition.get("properties", {}).items():
            yield f"{name}.{field}", schema.get("description")


@pytest.mark.parametrize("field", sorted(dict(_fields(JobConfig))))
def test_every_field_says_what_it_means(field: str) -> None:
    """A sentence at least, from the docstring under the field."""
    description = dict(_fields(JobConfig))[field]

    assert description is not None
    assert re.fullmatch(r"\S.*(\.|https://\S+)", description, re.DOTALL), description


def test_every_part_refuses_unknown_keys_in_the_schema_too() -> None:
    """So that an editor shows a misspelt key while it is typed."""
    open_parts = [name for name, part in {"JobConfig": SCHEMA, **SCHEMA["$defs"]}.items() if _is_open(part)]

    assert open_parts == []


def _is_open(part: dict[str, Any]) -> bool:
    return part.get("type") == "object" and "properties" in part and part.get("additionalProperties") is not False


def test_the_schema_is_a_schema() -> None:
    """By the JSON Schema draft that it names."""
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@settings(max_examples=50)
@given(strategies.job_configs())
def test_every_valid_config_fits_the_schema(data: Data) -> None:
    """An editor never marks what `validate` accepts."""
    JobConfig.from_mapping(data)

    assert [error.message for error in jsonschema.Draft202012Validator(SCHEMA).iter_errors(data)] == []


@pytest.mark.parametrize(
    ("fields", "limit"),
    [
        ({}, 3),
        ({"elastic": {"nnodes": "2:4"}}, 12),
        ({"run_policy": {"backoff_limit": 0}}, 0),
        ({"elastic": {"nnodes": 2}, "run_policy": {"backoff_limit": -1}}, -1),
    ],
)
def test_container_restarts_that_a_job_may_cost(fields: Data, limit: int) -> None:
    """Three for each of the most nodes, since the operator counts those of all pods together."""
    assert jobs.job(**fields).backoff_limit == limit


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda config: pickle.loads(pickle.dumps(config))])
def test_a_config_is_a_value(copied: Any) -> None:
    """Copies are equal, and nothing in it can be assigned."""
    config = jobs.elastic(env={"A": "1"})

    assert copied(config) == config
    with pytest.raises(pydantic.ValidationError):
        config.elastic.nnodes = "3"  # type: ignore[misc]  # frozen, as is to be shown


def test_python_and_yaml_spell_the_same_config() -> None:
    """Parts can be given as objects or as plain data."""
    metric = {"type": "pods", "name": "q", "target": 1}
    plain = jobs.elastic(autoscaling={"metrics": [metric]})

    assert JobConfig(**{**dict(plain), "autoscaling": {"metrics": [Metric(**metric)]}}) == plain  # type: ignore[arg-type]


def test_a_secret_value_is_not_in_the_repr() -> None:
    """A config may be logged."""
    assert "hunter2" not in repr(jobs.job(env={"TOKEN": "hunter2"}))
