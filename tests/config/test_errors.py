"""A config that is wrong gives one error that says where, why and what to do, and never what a value was."""

from __future__ import annotations

import contextlib
import copy
import pickle
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_infra.config import ConfigError, Fault, JobConfig
from elastic_infra.config.errors import path_of
from tests import strategies
from tests.strategies import Data

SECRET = "hunter2-MARKED"

FIELD_FAULTS: Mapping[str, tuple[str, object]] = {
    "unknown key": ("imagee", SECRET),
    "not a mapping": ("elastic", SECRET),
    "not a list": ("args", SECRET),
    "not a string": ("working_dir", [SECRET]),
    "not a whole number": ("wait_timeout_seconds", SECRET),
    "a choice that there is not": ("image_pull_policy", SECRET),
    "a number out of range": ("launcher.metrics_port", 70_000),
    "not true or false": ("security.read_only_root", SECRET),
    "a quantity that is none": ("resources.cpu", SECRET),
    "true for a number": ("runtime.omp_num_threads", True),
    "a name that is none": ("namespace", f"{SECRET} "),
    "a variable that is neither text nor reference": ("env.TOKEN", {"value": SECRET, "secret": "s", "key": "k"}),
    "a variable of text in a list": ("env.PASSWORD", [SECRET]),
    "an unknown field path": ("env.WHERE.field", SECRET),
    "an unknown key deep inside": ("rendezvous.resources.gpus", SECRET),
    "a value under a key of the wrong form": ("labels.not a key", SECRET),
    "no gpu count": ("resources.gpu.count", SECRET),
}
"""Faults of single fields: what is wrong, where, and with which value."""


def _put(data: Data, path: str, value: object) -> None:
    """Set a value by its path, making mappings on the way."""
    *parents, last = path.split(".")
    for name in parents:
        if not isinstance(data.get(name), dict):
            data[name] = {}
        data = data[name]
    data[last] = value


def _error_of(data: object) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        JobConfig.from_mapping(data)  # type: ignore[arg-type]  # wrong data is the point
    return caught.value


def _everything_shown(error: ConfigError) -> str:
    return "".join(traceback.format_exception(error)) + repr(error) + repr(error.faults)


def _apart(names: list[str]) -> bool:
    tops = [FIELD_FAULTS[name][0].split(".")[0] for name in names]
    return len(tops) == len(set(tops)) or set(tops) <= {"env", "imagee"}


@given(
    strategies.job_configs(),
    st.lists(st.sampled_from(sorted(FIELD_FAULTS)), min_size=1, max_size=4, unique=True).filter(_apart),
)
def test_every_fault_of_a_field_is_named_by_its_path(data: Data, broken: list[str]) -> None:
    """Several faults at once give one error with exactly their paths, and no value."""
    for name in broken:
        path, value = FIELD_FAULTS[name]
        _put(data, path, value)

    error = _error_of(data)

    assert sorted(fault.path for fault in error.faults) == sorted(FIELD_FAULTS[name][0] for name in broken)
    assert SECRET not in _everything_shown(error)


@settings(max_examples=30)
@given(strategies.job_configs())
def test_no_value_of_a_broken_config_is_shown(data: Data) -> None:
    """Secrets in variables and arguments stay out of an error about something else."""
    data["env"] = {"TOKEN": SECRET, "OTHER": {"value": SECRET}}
    data["args"] = [SECRET]
    data["elastic"] = {**data.get("elastic", {}), "nnodes": "4:2"}
    data["run_policy"] = {**data.get("run_policy", {}), "rerun": [SECRET]}

    error = _error_of(data)

    assert {fault.path for fault in error.faults} == {"elastic.nnodes", "run_policy.rerun"}
    assert SECRET not in _everything_shown(error)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=8), children, max_size=3),
    max_leaves=12,
)


@given(JSON)
def test_any_json_gives_a_config_or_a_config_error(data: object) -> None:
    """No input whatsoever gives another exception."""
    assert _error_of(data).faults


@given(strategies.job_configs(), st.data())
def test_any_json_in_place_of_any_part_gives_a_config_or_a_config_error(data: Data, draw: st.DataObject) -> None:
    """A valid config with one part replaced by anything still gives a config or a ConfigError."""
    paths = list(_paths(data))
    _replace(data, draw.draw(st.sampled_from(paths)), draw.draw(JSON))

    with contextlib.suppress(ConfigError):
        JobConfig.from_mapping(data)


def _paths(data: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items: list[tuple[Any, object]] = []
    if isinstance(data, dict):
        items = list(data.items())
    elif isinstance(data, list):
        items = list(enumerate(data))
    return [found for key, value in items for found in [(*path, key), *_paths(value, (*path, key))]]


def _replace(data: Any, path: tuple[Any, ...], value: object) -> None:
    for key in path[:-1]:
        data = data[key]
    data[path[-1]] = value


@pytest.mark.parametrize("data", [None, [], "text", 3, [("image", "i")], b"bytes", object(), {1: 2}, {None: SECRET}])
def test_what_is_no_mapping_of_names_is_refused(data: object) -> None:
    """A list, a text, a number or a key that is no name is a ConfigError too."""
    assert SECRET not in _everything_shown(_error_of(data))


def test_a_structure_that_holds_itself_is_refused() -> None:
    """A YAML anchor can make one; it cannot become JSON."""
    loop: dict[str, Any] = {}
    loop["nodeAffinity"] = loop

    error = _error_of({"image": "i", "script": "t.py", "placement": {"affinity": loop}})

    assert error.faults[0].path.startswith("placement.affinity.nodeAffinity")


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        ({"script": "t.py"}, "image: is required and missing."),
        ({"image": "i", "scirpt": "t.py"}, "scirpt: is not a known key. Did you mean 'script'?"),
        ({"image": "i", "elastic": {"nodes": 2}}, "elastic.nodes: is not a known key. Did you mean 'nnodes'?"),
        (
            {"image": "i", "storage": {"volumes": [{"name": "v", "claims": "c"}]}},
            "storage.volumes[0].claims: is not a known key. Did you mean 'claim'?",
        ),
        (
            {"image": "i", "rendezvous": {"resources": {"x": 1}}},
            "rendezvous.resources.x: is not a known key. Known here: cpu, memory.",
        ),
        ({"image": "i", "env": {"A": True}}, "env.A: write true or false in quotes"),
        ({"image": "i", "env": {"A": {"value": 3}}}, "env.A.value: must be a string; quote it if it is meant as text."),
        ({"image": "i", "autoscaling": {"metrics": []}}, "autoscaling.metrics: "),
        ({"image": "i", "labels": {"a b": "c"}}, "labels.a b: must be a label key such as"),
    ],
)
def test_a_fault_reads_as_path_and_reason(data: Data, fault: str) -> None:
    """Where, why, and what to do, in one line."""
    assert any(str(found).startswith(fault) for found in _error_of(data).faults)


@pytest.mark.parametrize("key", ["trainjob", "gang", "rdma", "network_policy", "readiness_probe"])
def test_fields_that_reach_no_manifest_are_unknown(key: str) -> None:
    """What later work brings, and what must never be, is refused like any unknown key."""
    assert [fault.path for fault in _error_of({"image": "i", "script": "t.py", key: {}}).faults] == [key]


@pytest.mark.parametrize(
    ("loc", "path"),
    [
        ((), ""),
        (("elastic", "nnodes"), "elastic.nnodes"),
        (("storage", "volumes", 0, "name"), "storage.volumes[0].name"),
        (("labels", "a b", "[key]"), "labels.a b"),
    ],
)
def test_a_path_is_spelt_as_in_the_file(loc: tuple[str | int, ...], path: str) -> None:
    """Dots between names, brackets around places in a list."""
    assert path_of(loc) == path


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
def test_an_error_survives_copying(copied: Callable[[ConfigError], ConfigError]) -> None:
    """Faults travel with the error into other processes."""
    error = ConfigError([Fault("image", "is required and missing."), Fault("", "is empty.")])

    assert copied(error).faults == error.faults
    assert str(copied(error)) == "image: is required and missing.\nis empty."
