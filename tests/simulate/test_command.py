"""The command: text, JSON and a picture out, what is wrong on stderr."""

from __future__ import annotations

import json
import re
import time
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

import pytest

from elastic_infra.simulate import arms, run, study
from elastic_infra.simulate.changes import Changes
from elastic_infra.simulate.scenario import Change, Costs, Rates
from tests.cli import elastic_infra
from tests.simulate.cases import scenario

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """The file of a job with 4 to 16 nodes."""
    path = tmp_path / "llm.yaml"
    path.write_text("image: i\nscript: s\nelastic: {nnodes: '4:16'}\n")
    return path


def test_json(job: Path) -> None:
    """Only the document on stdout, the same for the same seed; means within their bounds; shares that add up to 1."""
    options = ("--price", "30", "--budget", "20000", "--runs", "10", "--format", "json")
    first, second = (elastic_infra("simulate", job, *options) for _ in range(2))
    said = json.loads(first.out)

    assert (first.code, first.err) == (0, "")
    assert first.out == second.out
    assert elastic_infra("simulate", job, *options, "--seed", "1").out != first.out
    assert [arm["name"] for arm in said["arms"]] == list(arms.NAMES)
    for arm in said["arms"]:
        assert arm["goodput"]["low"] <= arm["goodput"]["mean"] <= arm["goodput"]["high"] <= 1
        assert sum(arm["shares"].values()) == pytest.approx(1)
        assert arm["cost"]["mean"] == pytest.approx(30 * arm["node_hours"]["mean"])
        assert arm["unfinished"] == 0
    assert [interval["arm"] for interval in said["intervals"]] == ["torchrun", "restarts"]
    assert [best["arm"] for best in said["best_ranges"]] == list(arms.NAMES)
    for best in said["best_ranges"]:
        assert re.fullmatch(r"\d+:\d+", best["nodes"])
        assert best["cost"] <= 20_000


def test_text(job: Path) -> None:
    """The arms beside each other, what is assumed, the advice; no picture without --output."""
    result = elastic_infra("simulate", job, "--price", "30", "--runs", "10")

    assert (result.code, result.err) == (0, "")
    for said in (
        "torchrun",
        "elastic-infra, in place",
        "goodput",
        "time to finish",
        "cost",
        "Assumed: ",
        "by Young",
        "on gloo",
    ):
        assert said in result.out
    assert [path.name for path in job.parent.iterdir()] == [job.name]


def test_a_script_without_the_library_returns_to_its_checkpoint(job: Path) -> None:
    """It has no snapshots in memory, stops at no agreed step, and cannot keep its processes."""
    said = json.loads(elastic_infra("simulate", job, "--no-elastic", "--runs", "5", "--format", "json").out)

    assert said["scenario"]["costs"]["snapshot"] is None
    assert [arm["name"] for arm in said["arms"]] == ["torchrun", "restarts"]
    assert {interval["saves"] for interval in said["intervals"]} == {"checkpoint"}
    assert len({interval["interruptions"] for interval in said["intervals"]}) == 1


def test_a_budget_is_searched_for_each_way(job: Path) -> None:
    """A line for each in the text; where no range meets it the text says so, and the document has nulls."""
    options = ("--price", "30", "--runs", "5", "--budget")
    told = elastic_infra("simulate", job, *options, "20000").out
    small = json.loads(elastic_infra("simulate", job, *options, "1", "--format", "json").out)["best_ranges"]

    for name in arms.SAID.values():
        assert re.search(rf"^{name}: for 20,000 nnodes \d+:\d+ finishes first", told, re.MULTILINE)
    assert small == [{"arm": name, "nodes": None, "hours": None, "cost": None} for name in arms.NAMES]
    assert json.loads(elastic_infra("simulate", job, "--runs", "5", "--format", "json").out)["best_ranges"] == []
    assert f"{arms.SAID['in place']}: no range of nodes" in elastic_infra("simulate", job, *options, "1").out


def test_a_larger_state_costs_each_change_more(job: Path) -> None:
    """As bytes with units; torchrun reads the state from disk, in the seconds that are given for that."""
    small, large, fast = (
        json.loads(elastic_infra("simulate", job, "--failures", "200", "--runs", "5", "--format", "json", *given).out)
        for given in (("--state", "1G"), ("--state", "100G"), ("--state", "100G", "--transfer-rate", "10G"))
    )
    goodput = [[arm["goodput"]["mean"] for arm in said["arms"]] for said in (small, large, fast)]

    assert small["scenario"]["costs"]["state"] == 1e9
    assert fast["scenario"]["costs"]["transfer_rate"] == 1e10
    assert goodput[0][0] == goodput[1][0] == goodput[2][0]
    for arm in (1, 2):
        assert goodput[1][arm] < goodput[2][arm] < goodput[0][arm]


def test_a_trace(job: Path, tmp_path: Path) -> None:
    """Its changes are the only ones, unless rates are given as well."""
    trace = tmp_path / "trace.csv"
    trace.write_text("hours,event,nodes\n1,preemption,4\n2,return,4\n3,loss,1\n")
    said = [
        json.loads(elastic_infra("simulate", job, "--trace", trace, "--runs", "5", "--format", "json", *more).out)
        for more in ((), ("--failures", "500"))
    ]

    assert said[0]["arms"][0]["changes"] == 3
    assert said[1]["arms"][0]["changes"] > 10


def test_an_autoscaled_job_wants_the_most_nodes(tmp_path: Path) -> None:
    """Without an autoscaler a job keeps its first number of nodes."""
    text = "image: i\nscript: s\nelastic: {nnodes: '4:16', initial_nodes: 8}\nresources: {cpu: 1}\n"
    wanted = []
    for name, more in (("a", ""), ("b", "autoscaling: {metrics: [{type: cpu, target: '80'}]}\n")):
        path = tmp_path / f"{name}.yaml"
        path.write_text(text + more)
        said = json.loads(elastic_infra("simulate", path, "--runs", "5", "--format", "json").out)
        wanted.append(said["scenario"]["nodes"])

    assert wanted == [[4, 8], [4, 16]]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--hours", "0"], "--hours: must be a number from 0.001 to 1e+12."),
        (["--hours", "nan"], "--hours: must be a number from 0.001 to 1e+12."),
        (["--failures", "-1"], "--failures: must be a number from 0 to 1e+12."),
        (["--failures", "inf"], "--failures: must be a number from 0 to 1e+12."),
        (["--replacement", "0"], "--replacement: "),
        (["--checkpoint-interval", "0"], "--checkpoint-interval: "),
        (["--checkpoint-pause", "-3"], "--checkpoint-pause: "),
        (["--snapshot-pause", "nan"], "--snapshot-pause: "),
        (["--snapshot-pause", "1e300"], "--snapshot-pause: "),
        (["--hours", "1e300"], "--hours: "),
        (["--step", "0"], "--step: "),
        (["--efficiency", "1.5"], "--efficiency: must be from 0.5"),
        (["--state", "large"], "--state: must be a Kubernetes quantity such as"),
        (["--state", "2000G"], "--state: must be a number from 0 to 1e+12."),
        (["--transfer-rate", "0"], "--transfer-rate: must be a number of bytes a second from 1 to 1e+12."),
        (["--runs", "1"], "--runs: must be from 5 to 1000."),
        (["--price", "0"], "--price: must be a number from 0.001 to 1e+12."),
        (["--budget", "5"], "--budget: needs --price"),
        (["--trace", "missing.csv"], "--trace: missing.csv cannot be read"),
        (["-o", "picture.pdf"], "--output: the picture's form is not known."),
    ],
)
def test_bad_input(job: Path, options: list[str], said: str) -> None:
    """The option and the reason, nothing on stdout, exit 2."""
    result = elastic_infra("simulate", job, *options)

    assert (result.code, result.out) == (2, "")
    assert said in result.err
    assert "Traceback" not in result.err


def test_an_invalid_job(tmp_path: Path) -> None:
    """A fault of the file is told as everywhere."""
    path = tmp_path / "llm.yaml"
    path.write_text("image: i\nscript: s\nelastic: {nnodes: '9:1'}\n")
    result = elastic_infra("simulate", path)

    assert result.code == 2
    assert f"{path}: elastic.nnodes: " in result.err


def test_the_picture(job: Path) -> None:
    """Well-formed, with the figures as text and a description for screen readers; nothing is loaded."""
    output = job.with_suffix(".svg")
    result = elastic_infra("simulate", job, "--name", "llm", "--runs", "10", "--price", "30", "-o", output)
    text = output.read_text()
    root = ET.fromstring(text)
    lines = [each.text or "" for each in root.iter(f"{SVG}text")]

    assert result.code == 0
    assert [child.tag.removeprefix(SVG) for child in root][:2] == ["title", "desc"]
    assert "goodput" in (root.findtext(f"{SVG}desc") or "")
    assert {*arms.SAID.values(), "Simulation of llm"} <= set(lines)
    assert re.findall(r"href|<script|@import", text) == []


def test_a_picture_that_cannot_be_written(job: Path) -> None:
    """One line, exit 2."""
    result = elastic_infra("simulate", job, "--runs", "5", "-o", job / "picture.svg")

    assert result.code == 2
    assert "cannot be written" in result.err


def test_a_job_that_never_ends(monkeypatch: pytest.MonkeyPatch, job: Path) -> None:
    """Ten failures a minute: text, picture and JSON say so without a number."""
    monkeypatch.setattr(run, "MOST_CHANGES", 200)
    output = job.with_suffix(".svg")
    options = ("--failures", "1000000", "--runs", "5", "-o", output)
    told = elastic_infra("simulate", job, *options)
    said = json.loads(elastic_infra("simulate", job, *options, "--format", "json").out)

    assert "runs that never end" in told.out
    assert "5 of 5 runs never end" in output.read_text()
    assert said["arms"][0]["hours"]["mean"] is None


def test_ten_thousand_nodes_are_no_more_work_than_their_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many nodes there are and however much happens to them, a run draws no more changes than the bound."""
    drawn = Counter[str]()
    after = Changes.after

    def counted(self: Changes, now: float, up: int, group: int) -> Change | None:
        drawn["all"] += 1
        return after(self, now, up, group)

    monkeypatch.setattr(Changes, "after", counted)
    spot = scenario((1, 10_000), hours=24.0, rates=Rates(preemptions=1000.0), costs=Costs(state=0.0))
    lived = study.result(spot, "in place", 2, 0)

    assert 0 < drawn["all"] <= 2 * run.MOST_CHANGES
    assert 0.95 < lived.goodput.mean < 0.99


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "options",
    [
        (),
        pytest.param(("--preemptions", "300"), marks=pytest.mark.slow),
        pytest.param(("--price", "30", "--budget", "1e7", "--efficiency", "0.95"), marks=pytest.mark.slow),
    ],
    ids=["failures", "spot", "budget"],
)
def test_ten_thousand_nodes_take_less_than_a_minute(tmp_path: Path, options: tuple[str, ...]) -> None:
    """All arms, all runs and the advice, by the processor time that they take: a busy machine adds none."""
    path = tmp_path / "large.yaml"
    path.write_text("image: i\nscript: s\nelastic: {nnodes: '5000:10000'}\n")
    begin = time.process_time()
    told = elastic_infra("simulate", path, *options)

    assert (told.code, told.err) == (0, "")
    assert "on 5000 to 10000 nodes" in told.out
    assert time.process_time() - begin < 60
