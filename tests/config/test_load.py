"""YAML and JSON become plain data, without what YAML does behind one's back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from elastic_infra import ConfigError, JobConfig
from elastic_infra.config.load import job_name, load, parse
from elastic_infra.config.yaml_text import MAX_DEPTH, read_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 3", 3),
        ("a: 0x1f", 31),
        ("a: 1.5", 1.5),
        ("a: true", True),
        ("a: ~", None),
        ("a: text", "text"),
        ("a: '3'", "3"),
        ("a: 2020-01-01", "2020-01-01"),
        ("a: 1:30", "1:30"),
        ("a: =", "="),
        ("a: !!str 3", "3"),
        ("a: |\n  one\n  two\n", "one\ntwo\n"),
        ("a: {<<: {x: 1, y: 2}, y: 3}", {"x": 1, "y": 3}),
        ("a: [1, [2, {b: c}]]", [1, [2, {"b": "c"}]]),
        ('{"a": "tab\\tslash\\/"}', "tab\tslash/"),
        ("a: " + "9" * 100, "9" * 100),
    ],
)
def test_values(text: str, value: object) -> None:
    """JSON's types; a date and a time of day are text, as Kubernetes reads them."""
    assert read_yaml(text) == {"a": value}


@pytest.mark.parametrize("number", ["3", "010", "1.10", "1_000", "0x1F", "0.00001", "1.", "-0", "+5", "0b11", ".inf"])
def test_a_number_of_a_variable_stays_as_it_is_written(number: str) -> None:
    """A variable is text, and YAML 1.1 reads 010 as 8 and 1.10 as 1.1."""
    job = parse(f"image: i\nscript: s\nenv: {{A: {number}, B: 'x', C: {{value: y}}}}")

    assert [job.env[name].value for name in "ABC"] == [number, "x", "y"]


def test_a_variable_that_is_merged_stays_as_it_is_written() -> None:
    """Aliases and merged mappings as well; the mapping's own key wins."""
    text = "a: &n 010\nb: &more {X: 1.10, Y: 1.20, Z: 1}\nenv: {<<: *more, Y: y, Z: true, W: *n}"

    assert read_yaml(text)["env"] == {"X": "1.10", "Y": "y", "Z": True, "W": "010"}  # type: ignore[index]  # a mapping


def test_only_mappings_of_variables_are_text() -> None:
    """A label may be named env, and Kubernetes' own list has its own rules."""
    assert read_yaml("a: {env: 010}\nb: {env: [{value: 010}]}") == {"a": {"env": 8}, "b": {"env": [{"value": 8}]}}


def test_aliases_are_followed() -> None:
    """An anchor inside a document saves repetition."""
    assert read_yaml("a: &x [1]\nb: *x") == {"a": [1], "b": [1]}


def test_keys_are_text() -> None:
    """A key that looks like a number or a boolean is its own text."""
    assert read_yaml("1: a\non: b\n2020-01-01: c") == {"1": "a", "on": "b", "2020-01-01": "c"}


@pytest.mark.parametrize(("depth", "valid"), [(MAX_DEPTH, True), (MAX_DEPTH + 1, False)])
def test_nesting_has_a_limit(depth: int, valid: bool) -> None:  # noqa: FBT001 - a case
    """Just not too deep is read, one more is refused."""
    text = "[" * depth + "]" * depth
    if valid:
        assert read_yaml(text)
    else:
        with pytest.raises(ConfigError, match="nested deeper"):
            read_yaml(text)


Json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text(st.characters(codec="ascii", categories=["L", "N", "P"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc", min_size=1), inner, max_size=4),
    max_leaves=20,
)


@hypothesis.given(Json)
def test_json_is_yaml(value: Any) -> None:
    """A JSON file is read as what it is."""
    assert read_yaml(json.dumps(value)) == value


@hypothesis.given(st.text(max_size=200))
def test_any_text_is_a_job_or_a_config_error(text: str) -> None:
    """No other exception leaves the reader."""
    assert isinstance(outcome(text), JobConfig | ConfigError)


def outcome(text: str) -> object:
    """What a text comes to."""
    try:
        return parse(text)
    except ConfigError as error:
        return error


@pytest.mark.parametrize(
    ("path", "name"),
    [("a/b.yaml", "b"), ("a/job.yaml", "a"), ("job.yaml", "here"), ("a/b.job.yml", "b"), ("a.b.json", "a.b")],
)
def test_a_job_is_named_by_its_file(path: str, name: str) -> None:
    """The stem, or for job.yaml the folder."""
    assert job_name(path, "here") == name


@pytest.mark.parametrize("suffix", ["yaml", "yml", "json"])
def test_load_reads_both_forms(tmp_path: Path, suffix: str) -> None:
    """The suffix does not matter, nor does a byte order mark."""
    file = tmp_path / f"job.{suffix}"
    file.write_bytes(b'\xef\xbb\xbf{"image": "i", "script": "s"}')

    assert load(file).script == "s"


def test_json_with_characters_beyond_the_basic_plane() -> None:
    """JSON escapes such characters as pairs of surrogates, which YAML 1.1 does not know."""
    assert parse('{"image": "i", "script": "\\ud83d\\ude00.py"}').script == "\U0001f600.py"


@pytest.mark.parametrize(
    "text",
    ['{"image": "i", "image": "j"}', '{"image": "\\ud83d"}', '{"image": 1e999}', "{" * 5000, '{"a":' * 5000],
)
def test_json_that_json_alone_would_let_pass(text: str) -> None:
    """Repeated keys, halves of pairs, numbers beyond any size and endless nesting are faults, as in YAML."""
    with pytest.raises(ConfigError):
        parse(text)
