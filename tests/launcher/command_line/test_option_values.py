"""The small grammars inside option values: what they mean, and what is refused."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from elastic_infra.launcher.command_line import option_values
from elastic_infra.launcher.command_line.options import OptionsError

BOTH = frozenset({"stdout", "stderr"})


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (option_values.node_range, "2", (2, 2)),
        (option_values.node_range, "2:4", (2, 4)),
        (lambda text: option_values.endpoint(text, 1), "", ("localhost", 1)),
        (lambda text: option_values.endpoint(text, 1), " host:80 ", ("host", 80)),
        (lambda text: option_values.endpoint(text, 1), "[::1]", ("::1", 1)),
        (lambda text: option_values.endpoint(text, 1), "[::1]:80", ("::1", 80)),
        (option_values.rendezvous_conf, "a=1, b = 2", {"a": "1", "b": "2"}),
        (option_values.rendezvous_conf, " ", {}),
        (lambda text: option_values.stream_map("--tee", text), "3", {None: BOTH}),
        (lambda text: option_values.stream_map("--tee", text), "0:1,1:3", {0: frozenset({"stdout"}), 1: BOTH}),
        (option_values.local_ranks, "", None),
        (option_values.local_ranks, "0,2", frozenset({0, 2})),
        (lambda text: option_values.number("--x", text), "1.5", 1.5),
        (option_values.tristate, None, None),
        (option_values.tristate, "Yes", True),
        (option_values.tristate, "0", False),
    ],
)
def test_a_value_is_read(read: Callable[[object], object], text: object, value: object) -> None:
    """As torchrun reads it."""
    assert read(text) == value


@pytest.mark.parametrize(
    ("read", "text", "form"),
    [
        (option_values.node_range, "two", "MIN:MAX"),
        (option_values.node_range, "1:2:3", "MIN:MAX"),
        (option_values.node_range, "4:2", "at most the maximum"),
        (option_values.node_range, "0", "at least 1"),
        (lambda text: option_values.endpoint(text, 1), "host:65536", "below 65536"),
        (lambda text: option_values.endpoint(text, 1), "a b", "HOST:PORT"),
        (option_values.rendezvous_conf, "a=", "KEY=VALUE"),
        (lambda text: option_values.stream_map("--tee", text), "4", "--tee must be 0, 1, 2 or 3"),
        (option_values.local_ranks, "0,x", "--local-ranks-filter"),
        (lambda text: option_values.number("--x", text), "-1", "--x must be a number of seconds"),
        (option_values.tristate, "maybe", "true or false"),
    ],
)
def test_a_wrong_value_is_refused_with_its_form(read: Callable[[str], object], text: str, form: str) -> None:
    """The message shows the text and the form that it must have."""
    with pytest.raises(OptionsError) as refused:
        read(text)

    assert form in str(refused.value)


def test_signals_are_names_and_unknown_ones_are_told() -> None:
    """A typo among them does not end a launch."""
    assert option_values.signal_numbers("SIGTERM, SIGINT,SIGTREM,") == (
        {"SIGTERM": signal.SIGTERM, "SIGINT": signal.SIGINT},
        ("SIGTREM",),
    )


@pytest.mark.parametrize(("value", "passes"), [(0, False), (1, True), (2, True)])
def test_a_bound_is_inclusive(value: int, passes: bool) -> None:
    """The message names both numbers."""
    if passes:
        assert option_values.at_least(1, "--n", value) == value
        return
    with pytest.raises(OptionsError, match="--n must be at least 1, it is 0"):
        option_values.at_least(1, "--n", value)
