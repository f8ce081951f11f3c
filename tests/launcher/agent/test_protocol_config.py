"""What the machine is configured with, from command line and settings."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from elastic_infra.launcher.agent import protocol_config
from elastic_infra.launcher.command_line import options, plan
from elastic_infra.launcher.protocol.limits import Limits
from elastic_infra.launcher.protocol.state import start
from elastic_infra.launcher.settings import LauncherSettings

RANGE = ("--nnodes", "2:4", "--rdzv-backend", "c10d", "--rdzv-endpoint", "job-0:1")


def launch(*words: str) -> plan.Plan:
    """What a command line means."""
    given = options.parse([*words, "train.py"], {})
    resolved = plan.resolve(given, LauncherSettings(), {}, nproc_per_node=3, new_run_id="job")
    assert isinstance(resolved, plan.Plan)
    return resolved


@pytest.mark.parametrize(
    ("settings", "limits"),
    [
        ({}, {"min_nodes": 2, "max_nodes": 4, "initial_nodes": 4, "failure_grace": 30.0}),
        ({"initial_nodes": 3}, {"initial_nodes": 3}),
        ({"initial_nodes": 9}, {"initial_nodes": 4}),
        ({"failure_grace_seconds": 0.0}, {"failure_grace": 0.0, "shutdown_grace": 30.0}),
        ({"orphan_timeout_seconds": 7.0, "startup_wait_seconds": 8.0}, {"orphan_timeout": 7.0, "startup_wait": 8.0}),
    ],
)
def test_numbers_come_from_both(settings: dict[str, Any], limits: dict[str, object]) -> None:
    """The command line's range bounds the settings; a grace of zero is a value."""
    made: Limits = protocol_config.limits_of(launch(*RANGE), LauncherSettings(**settings))

    assert {name: getattr(made, name) for name in limits} == limits


def test_a_node_is_new_with_every_launcher() -> None:
    """A pod's second launcher is another node for the protocol; the name says that it is the same for people."""
    settings = LauncherSettings(node_name="job-1", replica_index=1)
    first, second = (protocol_config.node_of(launch(*RANGE), settings) for _ in range(2))

    assert first.uuid != second.uuid
    assert first.joined <= second.joined
    assert (first.name, first.replica_index, first.local_world_size) == ("job-1", 1, 3)


@pytest.mark.parametrize(
    ("words", "address"),
    [
        (("--local-addr", "10.0.0.1", *RANGE), "10.0.0.1"),
        (RANGE, ""),
        (("--master-addr", "here", "--master-port", "1"), "here"),
    ],
)
def test_a_given_address_is_kept(words: tuple[str, ...], address: str) -> None:
    """Without one the way to the store shows it."""
    node = protocol_config.node_of(launch(*words), LauncherSettings())
    state = start(node, Limits(), 0.0)

    assert node.address == address
    assert protocol_config.with_address(state, "10.0.0.9").node == dataclasses.replace(node, address="10.0.0.9")
