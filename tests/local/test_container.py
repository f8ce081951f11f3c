"""A container as a program of this machine."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_infra.local.container import Place, mapped, program, unresolved

PLACE = Place(
    name="node-0",
    fields={"status.podIP": "127.0.0.1", "metadata.name": "node-0"},
    folders={"/checkpoints": "/w/claims/c", "/checkpoints/deep": "/w/deep", "/opt/elastic-infra": "/w/launcher"},
    home="/home/me/job",
    python="/venv/bin/python",
    machine={"PATH": "/bin", "PET_NNODES": "9", "ELASTIC_INFRA_EVENTS": "-", "RANK": "7", "LANG": "C.UTF-8"},
    values={},
    overrides={"GLOO_SOCKET_IFNAME": "lo"},
)
CONTAINER: dict[str, Any] = {
    "command": ["python3", "/opt/elastic-infra/launcher.zip"],
    "args": ["train.py", "--save=/checkpoints/a", "/checkpoints/deep/b", "$(GREETING)", "$$(GREETING)"],
    "workingDir": "/app",
    "env": [
        {"name": "DIR", "value": "/checkpoints"},
        {"name": "GREETING", "value": "hello $(DIR)"},
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "GLOO_SOCKET_IFNAME", "value": "eth0"},
        {"name": "PET_NNODES", "value": "1:1"},
    ],
}


def test_command_and_arguments() -> None:
    """Mounted paths become folders, python3 the interpreter, $(NAME) its value; the longest mount wins."""
    assert program(CONTAINER, {}, PLACE).argv == (
        "/venv/bin/python",
        "/w/launcher/launcher.zip",
        "train.py",
        "--save=/w/claims/c/a",
        "/w/deep/b",
        "hello /w/claims/c",
        "$(GREETING)",
    )


def test_working_dir() -> None:
    """The image's working dir is the job file's folder, a mounted one its own."""
    assert program(CONTAINER, {}, PLACE).folder == "/home/me/job"
    assert program({**CONTAINER, "workingDir": "/checkpoints/x"}, {}, PLACE).folder == "/w/claims/c/x"
    assert program({"command": ["true"]}, {}, PLACE).folder == "/home/me/job"
    assert program({**CONTAINER, "args": ["/app/train.py"]}, {}, PLACE).argv[2] == "/home/me/job/train.py"


def test_environment() -> None:
    """The machine's variables but for those of a launch, then the container's, the operator's, and what must be."""
    found = program(CONTAINER, {"PET_NNODES": "2:4"}, PLACE).environ
    assert found == {
        "PATH": "/bin",
        "LANG": "C.UTF-8",
        "DIR": "/w/claims/c",
        "GREETING": "hello /w/claims/c",
        "POD_IP": "127.0.0.1",
        "PET_NNODES": "2:4",
        "GLOO_SOCKET_IFNAME": "lo",
    }


def test_references_to_the_cluster() -> None:
    """What only a cluster can resolve is named with the option that gives it, unless it is optional or given."""
    refer = [
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}},
        {"name": "MODE", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
        {"name": "MAYBE", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "x", "optional": True}}},
    ]
    (fault,) = unresolved({"env": refer}, {"MODE": "fast"})
    assert str(fault) == "env.TOKEN: comes from a Secret of the cluster. Give it here with `--env TOKEN=VALUE`."


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("/data", "/m"),
        ("/data/", "/m/"),
        ("a=/data:/data/x", "a=/m:/m/x"),
        ("/database", "/database"),
        ("/data-old", "/data-old"),
        ("/my/data", "/my/data"),
        ("~/data", "~/data"),
        ("x/data", "x/data"),
        ('{"dir": "/data"}', '{"dir": "/m"}'),
    ],
)
def test_mapped(text: str, result: str) -> None:
    """Whole paths under a mount are mapped, and nothing that only looks like one."""
    assert mapped(text, {"/data": "/m"}) == result


@given(st.text())
def test_nothing_mounted(text: str) -> None:
    """Without mounts every text stays as it is."""
    assert mapped(text, {}) == text
