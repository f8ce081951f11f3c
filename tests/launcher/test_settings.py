"""The settings are one type for both ends of the wire."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_infra.launcher.settings import LauncherSettings, SettingsError, env_name

SECONDS = st.floats(min_value=0, max_value=1e6, allow_nan=False)
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)
BY_KIND = {
    "float": SECONDS,
    "float | None": st.none() | SECONDS,
    "int": st.integers(0, 2**31),
    "int | None": st.none() | st.integers(0, 2**31),
    "bool": st.booleans(),
    "bool | None": st.none() | st.booleans(),
    "str": TEXT,
    "Count": st.integers(1, 2**31),
    "tuple[Count, ...]": st.sets(st.integers(1, 2**31)).map(lambda sizes: tuple(sorted(sizes))),
    "HangTimeout": st.sampled_from(["auto", "off"]) | SECONDS,
}
SETTINGS = st.builds(
    LauncherSettings, **{field.name: BY_KIND[str(field.type)] for field in dataclasses.fields(LauncherSettings)}
)


@given(settings=SETTINGS)
def test_round_trip(settings: LauncherSettings) -> None:
    """What the manifest writes the container reads: from_env(to_env(s)) == s."""
    assert LauncherSettings.from_env(settings.to_env()) == settings


def test_defaults_write_nothing() -> None:
    """Only what differs from its default reaches the manifest."""
    assert LauncherSettings().to_env() == {}


@pytest.mark.parametrize(
    "field",
    ["shutdown_grace_seconds", "metrics_port", "warm_start", "hang_timeout_seconds", "node_unit", "world_sizes"],
)
def test_a_value_that_cannot_be_read(field: str) -> None:
    """The error names the variable and never its value, which may be secret."""
    with pytest.raises(SettingsError) as raised:
        LauncherSettings.from_env({env_name(field): "hunter2"})

    assert env_name(field) in str(raised.value)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(("field", "text"), [("node_unit", "0"), ("world_sizes", "0,8"), ("world_sizes", "8,,16")])
def test_numbers_of_nodes_and_workers_start_at_one(field: str, text: str) -> None:
    """A unit of no nodes divides nothing."""
    with pytest.raises(SettingsError, match=env_name(field)):
        LauncherSettings.from_env({env_name(field): text})
