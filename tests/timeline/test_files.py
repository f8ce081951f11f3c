"""Reading files, whole and while they grow."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elastic_infra.timeline.clocks import Clocks
from elastic_infra.timeline.files import EventFileError, Reader, read
from elastic_infra.timeline.records import Record
from tests.timeline.events import RECORDINGS, recording

LINE = '{"time": "2026-01-01T00:00:00Z", "monotonic": 5.0, "event": "rendezvous_started", "node": "a"}'


def test_a_last_line_without_its_end(tmp_path: Path) -> None:
    """A half written line is left out without a word; a whole one that lacks only its end counts."""
    torn, cut = tmp_path / "torn.jsonl", tmp_path / "cut.jsonl"
    torn.write_text(f"{LINE}\n{LINE[:40]}")
    cut.write_text(f"{LINE}\n{LINE}")

    assert [len(found) for found in read([torn])] == [1, 0]
    assert [len(found) for found in read([cut])] == [2, 0]


def test_a_console_log_with_events_in_it(tmp_path: Path) -> None:
    """Other lines are left out and counted, with the place of the first."""
    log = tmp_path / "pod.log"
    log.write_text(f'elasticrun: hello\n{LINE}\n{{"loss": 1}}\n\n{LINE}\n')
    records, notices = read([log])

    assert len(records) == 2
    assert notices == (f"{log}:1: this is no event: it is not JSON; 2 such lines are left out.",)


def test_what_is_no_event_log(tmp_path: Path) -> None:
    """The error names file, line and reason, and says what to give."""
    wrong = tmp_path / "job.yaml"
    wrong.write_text("\nimage: i\n")
    with pytest.raises(EventFileError) as caught:
        read([RECORDINGS / "faults", wrong])

    assert str(caught.value).startswith(f"{wrong}:2: this is no event: it is not JSON. Give files that ")


@pytest.mark.parametrize("name", ["missing", "empty", "none", "locked"])
def test_what_cannot_be_read(tmp_path: Path, name: str) -> None:
    """A path that is not there, an empty folder, a file without a line: each is told with its name."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "none").touch()
    (tmp_path / "locked").symlink_to("/proc/self/mem")
    with pytest.raises(EventFileError, match=str(tmp_path / name) if name != "locked" else "cannot be read"):
        read([tmp_path / name])


def test_folders_and_files_given_twice(tmp_path: Path) -> None:
    """A run's folder means its events; a file is read once, however it is named."""
    (tmp_path / "events").mkdir()
    file = tmp_path / "events" / "node-0.jsonl"
    file.write_text(f"{LINE}\n")
    (tmp_path / "events" / "node-0.log").write_text("not looked at")

    assert len(read([tmp_path, tmp_path / "events", file])[0]) == 1


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.integers(1, 4000), min_size=1, max_size=12))
def test_a_growing_file_gives_the_same_records(tmp_path: Path, pieces: list[int]) -> None:
    """However the bytes arrive, each line is read once and whole."""
    data = (RECORDINGS / "faults" / "node-0.jsonl").read_bytes()
    file = tmp_path / "growing.jsonl"
    file.write_bytes(b"")
    reader, found, at = Reader([file]), list[Record](), 0
    for piece in (*pieces, len(data)):
        with file.open("ab") as stream:
            stream.write(data[at : at + piece])
        at = min(len(data), at + piece)
        found += reader.read()

    assert found == list(read([RECORDINGS / "faults" / "node-0.jsonl"])[0])


def test_a_folder_is_watched(tmp_path: Path) -> None:
    """A reader starts before there are files, and finds those that come later."""
    reader = Reader([tmp_path])
    before = reader.read()
    (tmp_path / "node-7.jsonl").write_text(f"{LINE}\n")

    assert (before, len(reader.read()), reader.read()) == ((), 1, ())


def test_one_machine_is_ordered_by_its_monotonic_clock() -> None:
    """Half a second of correction of the wall clock moves nothing."""
    clocks = Clocks()
    moments = [clocks.place(1000.0, 10.0), clocks.place(1000.5, 11.0), clocks.place(1002.2, 12.0)]

    assert moments == [1000.0, 1001.0, 1002.0]


def test_machines_are_ordered_by_utc() -> None:
    """Clocks that count from different boots are told apart; a line without one has only its UTC."""
    clocks = Clocks()

    assert [clocks.place(1000.0, 10.0), clocks.place(1001.0, 90000.0), clocks.place(1002.0, 12.0)] == [1000, 1001, 1002]
    assert clocks.place(1003.0, None) == 1003


def test_files_of_many_machines_are_one_story(tmp_path: Path) -> None:
    """Another boot of one node's machine, by whole days, changes no order."""
    for file in (RECORDINGS / "faults").iterdir():
        moved = 864000 if file.stem == "node-1" else 0
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        shifted = (json.dumps({**line, "monotonic": line["monotonic"] + moved}) for line in lines)
        (tmp_path / file.name).write_text("\n".join(shifted))
    expected = [(found.event, found.node) for found in recording("faults") if found.node != "node-1"]

    found = read([tmp_path])[0]
    assert [(each.event, each.node) for each in found if each.node != "node-1"] == expected
    assert [each.at for each in found] == pytest.approx([each.at for each in recording("faults")], abs=0.01)
