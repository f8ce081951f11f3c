"""Init containers that fetch, as objects; what their program does is in `test_fetch`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from elastic_infra import ConfigError
from elastic_infra.manifests import fetch
from elastic_infra.manifests.initializers import program
from tests import jobs

TARGETS = {"pytorchjob": jobs.elastic, "job": jobs.indexed, "single": jobs.job, "trainjob": jobs.train_job}
MODEL = {"name": "model", "kind": "huggingface", "source": "org/model", "path": "/cache/model"}
CACHE = {"volumes": [{"name": "cache", "claim": "c"}], "mounts": [{"volume": "cache", "mount_path": "/cache"}]}


def containers(target: str = "pytorchjob", *initializers: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    """The init containers of a job."""
    config = TARGETS[target](initializers=[*initializers], **fields)
    found: list[dict[str, Any]] = jobs.pod_spec(config)["initContainers"]
    return found


@pytest.mark.parametrize("target", TARGETS)
def test_every_workload_fetches_after_the_check_and_the_code(target: str) -> None:
    """With the mounts of the training, so that a script of the code can be the command."""
    fields = {
        "health_check": True,
        "workdir": {"files": {"a.py": ""}},
        "storage": CACHE,
        "resources": {"memory": "1Gi"},
    }
    found = containers(target, MODEL, {**MODEL, "name": "more", "path": "/cache/more"}, **fields)

    assert [each["name"] for each in found] == ["health", "workdir", "model", "more"]
    assert {"/cache", "/workspace"} <= {mount["mountPath"] for mount in found[2]["volumeMounts"]}
    assert found[2]["command"][:3] == ["python3", "-c", program()]
    assert found[2]["resources"]["limits"] == {"memory": "1Gi"}


def test_the_program_gets_all_that_it_reads() -> None:
    """One JSON argument; a folder inside a mount is no pod's own."""
    [model] = containers("job", {**MODEL, "revision": "abc"}, storage=CACHE)
    asked = json.loads(model["command"][3])

    assert asked.pop("own") is False
    assert fetch.content(asked) == {
        "kind": "huggingface",
        "source": "org/model",
        "revision": "abc",
        "repository": "model",
        "command": [],
    }
    assert (asked["path"], asked["name"], asked["attempts"]) == ("/cache/model", "model", 5)


def test_a_folder_in_no_mount_is_a_volume_of_each_pod() -> None:
    """The training container sees it as well."""
    config = jobs.elastic(initializers=[MODEL])
    mount = {"name": "init-model", "mountPath": "/cache/model"}

    assert {"name": "init-model", "emptyDir": {}} in jobs.pod_spec(config)["volumes"]
    assert mount in jobs.container(config)["volumeMounts"]
    assert json.loads(jobs.pod_spec(config)["initContainers"][0]["command"][3])["own"] is True


def test_credentials_are_references_and_programs_have_a_home() -> None:
    """What a user sets is set once."""
    env = {"HF_TOKEN": {"secret": "hf", "key": "token"}, "HOME": "/tmp"}
    [model] = containers("job", {**MODEL, "env": env, "image": "hub:1"}, storage=CACHE)
    found = {each["name"]: each for each in model["env"]}

    assert len(found) == len(model["env"])
    assert found["HF_TOKEN"]["valueFrom"] == {"secretKeyRef": {"name": "hf", "key": "token"}}
    assert found["HOME"]["value"] == "/tmp"
    assert model["image"] == "hub:1"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"command": ["true"]}, "command goes with kind 'command'"),
        ({"source": None}, "source goes with every kind but 'command'"),
        ({"source": "a/b/c"}, "source must be a repository"),
        ({"kind": "s3"}, "source must be an address such as 's3://bucket/folder'"),
        ({"kind": "git", "source": "https://me:hunter2@example.com/x"}, "without a password"),
        ({"kind": "git", "source": "ssh://git:hunter2@example.com/x"}, "without a password"),
        ({"kind": "git", "source": "https://hunter2@example.com/x"}, "without a name or a token"),
        ({"kind": "git", "source": "HTTP://hunter2@example.com/x"}, "without a name or a token"),
        ({"kind": "git", "source": "--upload-pack=x"}, "without a password"),
        ({"kind": "s3", "source": "s3://a", "revision": "b"}, "revision goes with kinds"),
        ({"kind": "git", "source": "x", "repository": "dataset"}, "repository goes with kind"),
        ({"name": "health"}, "(health) is taken"),
        ({"name": "a" * 59}, "at most 58 characters"),
        ({"path": "/cache"}, "(/cache) is taken"),
        ({"env": {"PET_NNODES": "1"}}, "is set by the operator or the launcher"),
    ],
)
def test_what_cannot_be_fetched_is_refused_with_the_reason(changes: dict[str, Any], why: str) -> None:
    """Before anything reaches a cluster, and without showing a password."""
    wrong = {key: value for key, value in {**MODEL, **changes}.items() if value is not None}
    with pytest.raises(ConfigError) as refused:
        jobs.elastic(initializers=[wrong], storage=CACHE)

    assert why in str(refused.value)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    "source", ["https://example.com/o/r@v1", "ssh://git@example.com/o/r", "git@example.com:o/r", "file:///srv/a@b"]
)
def test_an_address_that_names_no_more_than_the_user_of_ssh_is_taken(source: str) -> None:
    """The key of ssh is in no address, and a path may hold any character."""
    [found] = containers("job", {**MODEL, "kind": "git", "source": source}, storage=CACHE)

    assert json.loads(found["command"][3])["source"] == source


def test_two_initializers_do_not_meet() -> None:
    """Neither in their names nor in their folders, nor in a mount that refuses writes."""
    with pytest.raises(ConfigError, match=r"(?s)name: \(model\) is taken.*path: \(/cache/model\) is filled by another"):
        jobs.elastic(initializers=[MODEL, MODEL], storage=CACHE)
    locked = {**CACHE, "mounts": [{"volume": "cache", "mount_path": "/cache", "read_only": True}]}
    with pytest.raises(ConfigError, match="is in a mount with read_only"):
        jobs.elastic(initializers=[MODEL], storage=locked)


def test_the_program_is_short_and_tells_no_reader_of_a_pod_what_it_does_not_do() -> None:
    """It is in each pod's template, once for each initializer."""
    assert len(program()) < 7_000
    compile(program(), "program", "exec")
