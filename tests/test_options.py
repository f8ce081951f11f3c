"""The table of options is whole: what the tests in a cluster try is every field of a job file."""

from __future__ import annotations

import itertools

import pytest

from tests import options

KNOWN = options.options()


def test_every_field_has_a_value() -> None:
    """A new field is tried in a cluster as well: one that the schema does not tell enough of needs a row."""
    assert [path for path in options.fields() if not options.values(path)] == []


def test_no_value_is_the_default() -> None:
    """A row that only repeats what holds without it would try nothing."""
    fields = options.fields()

    assert [str(option) for option in KNOWN if option.value == fields[option.path].get("default")] == []


def test_every_value_is_accepted_with_a_target() -> None:
    """No row is out of date: what the config refuses with every target is tried nowhere."""
    taken = {str(option) for target in options.TARGETS for option, _ in options.alone(target)}

    assert {str(option) for option in KNOWN} - taken == set()


def test_no_row_is_of_a_field_that_is_gone() -> None:
    """What a row says beside a value holds for a field that there is, or for a part."""
    paths = [*options.fields()]
    rows = [*options.VALUES, *(row.partition("=")[0] for row in options.NEEDS)]

    assert [row for row in rows if not any(path == row or path.startswith(f"{row}.") for path in paths)] == []


def test_every_target_is_tried() -> None:
    """The matrix has a column for each target that the config knows, `auto` included."""
    assert {column["target"] for column in options.TARGETS.values()} == set(options.fields()["target"]["enum"])


def test_every_reason_for_a_wider_namespace_has_an_option() -> None:
    """No reason is left that no option needs any more."""
    configs = [config for target in options.TARGETS for _, config in options.alone(target)]

    assert [lift.why for lift in options.LIFTS if not any(map(lift.holds, configs))] == []


@pytest.mark.parametrize("target", options.TARGETS)
def test_many_random_combinations_are_valid_and_a_seed_gives_the_same(target: str) -> None:
    """Else the matrix would spend its time on what is refused before any cluster, or could not be repeated."""
    first, again = (list(itertools.islice(options.combinations(1, target), 30)) for _ in range(2))

    assert first == again
    assert sum(config is not None for _, config in first) > len(first) / 2
