"""The picture: well-formed, whole, readable without colours, and readable when there is much of everything."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from elastic_infra.timeline import lanes, layout, picture, theme
from elastic_infra.timeline.figures import figures
from elastic_infra.timeline.history import History, Interval, Lane, Mark, history
from elastic_infra.timeline.nodes import Phase
from elastic_infra.timeline.scale import Scale, clock, columns, together
from tests.golden import assert_golden
from tests.timeline.events import record, start, steps, told

SVG = "{http://www.w3.org/2000/svg}"
ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = {"faults": ROOT / "docs/timeline.svg", "never_stops": ROOT / "examples/never-stops/timeline.svg"}


def drawn(found: History) -> str:
    """The picture of a history."""
    return picture.draw(found, figures(found))


def texts(svg: str) -> list[str]:
    """Every line of text in a picture."""
    return [text.text or "" for text in ET.fromstring(svg).iter(f"{SVG}text")]


@pytest.mark.parametrize("recording", EXAMPLES)
def test_the_examples_are_golden(recording: str) -> None:
    """Each committed picture is what is drawn of its committed recording."""
    assert_golden(EXAMPLES[recording], drawn(told(recording)))


def test_it_says_what_it_shows() -> None:
    """The picture has a title and a description for screen readers; figures, nodes and outages are text."""
    found = told("quiet_faults")
    root = ET.fromstring(drawn(found))
    lines = texts(drawn(found))
    known = figures(found)

    assert root.get("role") == "img"
    assert [child.tag.removeprefix(SVG) for child in root][:2] == ["title", "desc"]
    assert "goodput" in (root.findtext(f"{SVG}desc") or "")
    assert {"node-0", "node-1", "node-2", "the job", "hang", "start", "train", "stop", "goodput"} <= set(lines)
    assert [line for line in lines if line.startswith("hang: ")] != []
    assert f"{100 * (known.goodput or 0):.1f} %" in lines


def test_samples_and_snapshots_are_drawn() -> None:
    """In one line below the figures; a script that reports neither has no such line."""
    before, after = start(0, "a", 1, 1), [steps(1, "a", 1, 0, 0), record(9, "succeeded", "a", 1)]
    kept = steps(8, "a", 1, 0, 7, samples=12345, memory_step=7, checkpoint=4)

    assert "12,345 samples; newest snapshots: step 4 on disk, step 7 in memory" in texts(
        drawn(history([*before, kept, *after]))
    )
    assert not any("snapshots" in text for text in texts(drawn(history([*before, *after]))))


def test_nothing_is_loaded() -> None:
    """No reference leads outside of the document, and nothing in it runs."""
    svg = drawn(told("quiet_faults"))
    references = re.findall(r"url\(([^)]*)\)|href=\"([^\"]*)\"", svg)

    assert {outside or inside for outside, inside in references} == {
        f"#p-{name}" for name in theme.SURFACES if name != "run"
    }
    assert re.findall(r"<script|@import|javascript:|\bon\w+=", svg) == []
    assert svg.count("http") == svg.count("http://www.w3.org/2000/svg")


def test_hostile_names_stay_text() -> None:
    """What a script or a pod is called can neither break the picture nor put markup into it."""
    name = '<script>alert("x")</script>&\x00\x1b[31m\ud800'
    found = history([*start(0, name, 1, 1), record(1, "worker_exited", name, 1, exit_code=1, message=name)])
    root = ET.fromstring(drawn(found))

    assert [element.tag for element in root.iter() if "script" in element.tag] == []


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("name", theme.SURFACES)
def test_words_stand_out(name: str, scheme: int) -> None:
    """Text on a surface has WCAG's contrast of 4.5; a hatch stands out from its ground by 3 for graphics."""
    look = theme.SURFACES[name]

    assert contrast(look.text[scheme], look.base[scheme]) >= 4.5
    assert not look.path or contrast(look.hatch[scheme], look.base[scheme]) >= 3


def test_each_phase_has_a_hatch_of_its_own() -> None:
    """In black and white the hatches tell the phases apart, and each mark has its shape."""
    assert len({look.path for look in theme.SURFACES.values()}) == len(theme.SURFACES)
    assert len(set(theme.MARKS.values())) == len(theme.MARKS)


def test_a_dark_page_has_its_own_colours() -> None:
    """Every colour of the light scheme is set again for the dark one, the ground included."""
    light, _, dark = theme.style().partition("@media (prefers-color-scheme:dark){")
    rules = re.findall(r"([^{}]+)\{(?:fill|stroke):#", light)

    assert len(rules) > 15
    assert [rule for rule in rules if f"{rule}{{" not in dark] == []


@pytest.mark.parametrize("nodes", [1, 16, 64])
def test_many_nodes_stay_apart(nodes: int) -> None:
    """Lanes do not overlap, each has its name, and the picture grows less than the number of nodes."""
    records = [
        each
        for index in range(nodes)
        for each in (
            *start(0, f"n-{index}", 1, nodes),
            steps(5, f"n-{index}", 1, 0, 0),
            steps(9, f"n-{index}", 1, 0, 9),
        )
    ]
    svg = drawn(history(records))
    names = [text for text in ET.fromstring(svg).iter(f"{SVG}text") if (text.text or "").startswith("n-")]
    tops = [float(text.get("y", "0")) for text in names]

    assert [text.text for text in names] == [f"n-{index}" for index in range(nodes)]
    assert all(after - before >= 14 for before, after in itertools.pairwise(tops))
    assert float(ET.fromstring(svg).get("height", "0")) < 320 + 32 * nodes


def test_long_runs_stay_small() -> None:
    """A thousand generations and faults are no more rectangles than there are places, and no more marks than fit."""
    records = []
    for number in range(1, 1001):
        at = 60.0 * number
        records += [
            *start(at, "a", number, 1),
            steps(at + 20, "a", number, number, number),
            steps(at + 50, "a", number, number, number + 1),
        ]
        records.append(record(at + 55, "worker_exited", "a", number, local_rank=0, exit_code=1, message="boom"))
    svg = drawn(history(records))

    assert len(svg) < 1_000_000
    assert svg.count(' fill="url(#') < 3 * layout.WIDTH
    assert svg.count("translate(") <= layout.WIDTH / lanes.MARK_WIDTH + len(theme.MARKS)
    assert "The 10 longest of 999 outages" in texts(svg)


def test_a_place_shows_what_it_holds_most_of() -> None:
    """Intervals narrower than a place are summed up in it; wider ones are kept."""
    phases: list[Phase] = ["start", "train", "train"]
    parts = [Interval(phases[index % 3], 1, float(index), float(index + 1)) for index in range(300)]
    (train,) = columns(parts, Scale(0, 300, 0, 30))

    assert (train.phase, train.begin, train.end) == ("train", 0, 300)
    assert columns(parts[:3], Scale(0, 3, 0, 30)) == tuple(parts[:3])


def test_marks_on_one_place_are_counted() -> None:
    """Marks that would overlap are drawn as one, with their number; all of them are in its title."""
    marks = tuple(Mark(50 + index / 100, "fault", f"fault: {index}") for index in range(3))
    found = History(0, 100, (Lane("a", (), marks),), (), (), "running", "", "", "")
    svg = drawn(found)

    assert [len(group) for _, group in together(marks, Scale(0, 100, 0, 800), 11)] == [3]
    assert "3" in texts(svg)
    assert "fault: 0; 0:50 fault: 1; 0:50 fault: 2" in svg


@pytest.mark.parametrize("seconds", [0.5, 4.0, 59.0, 600.0, 86_400.0, 30 * 86_400.0, 9e8])
def test_the_axis(seconds: float) -> None:
    """From half a second to years: some ticks, never more than asked for, at round distances from the begin."""
    ticks = Scale(1000.0, 1000.0 + seconds, 0, 800).ticks(12)

    assert 2 <= len(ticks) <= 13
    assert ticks[0][0] == 1000.0
    assert len({text for _, text in ticks}) == len(ticks)


def test_clocks() -> None:
    """A distance in time is written as on a stopwatch."""
    assert [clock(5), clock(65), clock(3725), clock(0.25, 0.1)] == ["0:05", "1:05", "1:02:05", "0.2"]


def contrast(one: str, other: str) -> float:
    """WCAG's contrast ratio of two colours (https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio)."""

    def luminance(colour: str) -> float:
        parts = [int(colour[index : index + 2], 16) / 255 for index in (1, 3, 5)]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)
