"""Lines for people: which levels are written, and where to."""

from __future__ import annotations

from typing import get_args

import pytest

from elastic_infra.launcher import log


@pytest.mark.parametrize("lowest", get_args(log.Level))
def test_a_line_below_the_level_asked_for_is_left_out(lowest: log.Level) -> None:
    """Levels have one order, and the one asked for is the first to be written."""
    written: list[str] = []
    told = log.Log(lowest.upper(), written.append)

    for level in get_args(log.Level):
        told.tell(level, level)

    assert written == [level for level in get_args(log.Level) if told.shows(level)]
    assert written == list(get_args(log.Level))[get_args(log.Level).index(lowest) :]


def test_an_unknown_level_means_warning() -> None:
    """A typo in a variable neither silences warnings nor ends a launch."""
    told = log.Log("LOUD")

    assert told.shows("warning")
    assert not told.shows("info")


def test_an_empty_line_is_not_written() -> None:
    """A caller with nothing to say need not ask."""
    written: list[str] = []

    log.Log("DEBUG", written.append).tell("error", "")

    assert written == []


def test_a_line_goes_to_stderr_under_the_programs_name(capsys: pytest.CaptureFixture[str]) -> None:
    """Stdout belongs to the workers."""
    log.say("the store is away")

    assert capsys.readouterr() == ("", "elasticrun: the store is away\n")
