"""The rendezvous at a size at which it once grew with the square of the nodes: messages and bytes, not seconds."""

from __future__ import annotations

import functools
import re
import statistics
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from benchmarks.common import results
from benchmarks.rendezvous import chaos, limited, limits, picture, probe, report
from benchmarks.rendezvous.__main__ import RESULTS, Figures, end, form, measure, running, serve
from benchmarks.rendezvous.probe import bytes_of
from elastic_infra.config.warnings import store_memory
from elastic_infra.launcher.protocol import turns
from elastic_infra.launcher.store import wire
from tests.ports import free_port

NODES = 64
SAID = 1 + 3 * report.MESSAGES_OF_A_CHANGE
"""Messages of a node in three changes: hello, and its records."""
MEASURED: dict[int, report.Runs] = {
    int(nodes): by_arm[report.OURS] for nodes, by_arm in results.load(RESULTS)["runs"].items()
}
"""The committed runs of each size."""


@pytest.fixture(scope="module")
def guarded() -> Figures:
    """A job of light nodes and a real one that formed, lost one and admitted one."""
    return measure(NODES, idle_seconds=1.0, silent=False)


@pytest.mark.timeout(300)
def test_a_node_says_little_however_many_there_are(guarded: Figures) -> None:
    """Each node sends a few records and its beats, and hears of each other a few times."""
    assert (guarded["lost connections"], guarded["reconnects"]) == (0, 0)
    assert guarded[report.MESSAGES] <= SAID
    assert guarded["kB sent by a node"] < 4.0 + len(wire.BEAT) * guarded[report.BEATS] / 1e3
    assert guarded["kB sent to a node and node"] < 1.0
    for name in report.IDLE_BYTES:
        assert 0 < guarded[name] <= 2 * len(wire.BEAT), "no more than two beats in a second, and nothing else"


@pytest.mark.parametrize(("change", "asked"), [("form", 1), ("lost node", 2), ("newcomer", 2)])
@pytest.mark.timeout(300)
def test_the_real_node_says_little_however_many_there_are(guarded: Figures, change: str, asked: int) -> None:
    """Its records, two messages about the workers' meeting place, and one request for each phase of the change.

    It leads the group and asks before all others, so no node says more. A request holds every member, and each other
    node says four things that the real one hears.
    """
    messages, sent, heard, received = (guarded[f"{name} by the real node, {change}"] for name in report.REAL)

    assert guarded[report.ASKED] == 5
    assert messages <= 1 + report.MESSAGES_OF_A_CHANGE + 2 + asked
    assert sent < 2.5 + 0.1 * NODES * asked
    assert heard < (report.MESSAGES_OF_A_CHANGE + 1) * NODES
    assert received < 1.0 * NODES


@pytest.mark.timeout(300)
@pytest.mark.parametrize("nodes", [32, pytest.param(160, marks=pytest.mark.slow)])
def test_light_nodes_say_what_real_ones_say(nodes: int) -> None:
    """The same messages with the same bytes; only the requests for a change are left to the real node.

    Real ones hear more bytes: each takes its own time here, and equal changes that come together are told as one.
    """
    real, light = real_lives(nodes), measure(nodes - 1, idle_seconds=0.1, silent=False)
    records = [bytes_sent(each) for each in real if said(each) == SAID]
    beats = len(wire.BEAT) * light[report.BEATS]
    heard = statistics.mean(each[bytes_of(probe.RECEIVED)] for each in real) / (nodes - 1) / 1e3

    assert len(records) >= nodes - 3, "all but the leader, which also says where the workers meet"
    assert light[report.MESSAGES] == pytest.approx(SAID, abs=SAID / nodes), "of these one came later"
    assert max(records) <= 1.02 * min(records)
    assert light["kB sent by a node"] * 1e3 - beats == pytest.approx(statistics.mean(records), rel=0.02 + 1 / nodes)
    assert 0.9 <= heard / light["kB sent to a node and node"] <= 6


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("nodes", "most"),
    [(turns.CROWD // 2, 5.0), (turns.CROWD + 2, 1.0), pytest.param(160, 0.5, marks=pytest.mark.slow)],
)
def test_few_real_nodes_ask_for_one_change(nodes: int, most: float) -> None:
    """Up to ``CROWD`` members each ask once for each of five phases; of more members few do, since they take turns."""
    asked = [each[probe.ASKING] for each in real_lives(nodes)]

    assert 5 <= sum(asked) <= most * nodes
    assert max(asked) <= 6


@functools.cache
def real_lives(nodes: int) -> list[probe.Traffic]:
    """What each of so many real nodes sent and received that formed, lost one and admitted one."""
    store = serve(port := free_port())
    crowd = probe.Probes(port, nodes)
    try:
        for index in range(nodes):
            crowd.add(index)
        crowd.settle(nodes)
        crowd.lose(nodes - 1)
        crowd.settle(nodes - 1)
        crowd.add(nodes)
        crowd.settle(nodes)
        assert {node.reconnects for node in crowd.nodes.values()} == {0}
        return [node.traffic for index, node in crowd.nodes.items() if index < nodes]
    finally:
        crowd.close()
        end(store)


def said(traffic: probe.Traffic) -> int:
    """Messages of a real node, its requests for a change left out."""
    return traffic[probe.SENT] - traffic[probe.ASKING]


def bytes_sent(traffic: probe.Traffic) -> int:
    """Of the same messages."""
    return traffic[bytes_of(probe.SENT)] - traffic[bytes_of(probe.ASKING)]


@pytest.mark.parametrize(
    ("figure", "most"),
    [
        ("form", 5.0),
        ("newcomer", 3.0),
        ("lost node", 2.0),
        (report.IDLE, 5.0),
        ("idle agent, % of a core", 1.0),
    ],
)
def test_a_thousand_nodes_were_measured_within_the_aims(figure: str, most: float) -> None:
    """Seconds, and shares of a core, of the slowest run: who measures again finds a loss here."""
    found = report.summary(MEASURED[1024], figure)

    assert (len(found.values), found.without) == (len(MEASURED[1024]), {})
    assert max(found.values) <= most


@pytest.mark.parametrize("nodes", MEASURED)
def test_no_size_was_measured_with_a_lost_connection(nodes: int) -> None:
    """A storm begins with nodes that lose the store while it tells the others."""
    assert [(run["lost connections"], run["reconnects"]) for run in MEASURED[nodes]] == [(0, 0)] * len(MEASURED[nodes])


@pytest.mark.parametrize("figure", report.IDLE_BYTES)
def test_an_idle_node_was_measured_with_the_same_bytes_at_every_size(figure: str) -> None:
    """A beat a second in both directions, and nothing about the other nodes."""
    medians = [report.median(runs, figure) for runs in MEASURED.values()]

    assert max(medians) <= 1.25 * min(medians)
    assert max(medians) <= 1.25 * len(wire.BEAT) / wire.BEAT_SECONDS


MORE_THAN_A_MESSAGE = {
    **dict.fromkeys(
        ("form", "store CPU, form", "agent CPU, form"),
        "each node is told the record of each other one, so that bytes for each pair are written and read",
    ),
    **dict.fromkeys(
        (f"{report.TOLD}, {change}" for change in report.CHANGES),
        "the bytes of all nodes together, each of which hears of each other one: its record in a start, and that it "
        "stopped and started in a change",
    ),
}
"""Figures for which one message a node is not enough, and why."""


@pytest.mark.parametrize("figure", [*report.SLOPES, report.IDLE, "idle agent, % of a core"])
def test_no_more_than_the_nodes_grow_was_measured(figure: str) -> None:
    """Where one message a node is enough; otherwise with the square of the nodes at most."""
    assert set(MEASURED) >= {256, 1024, 4096}
    assert report.slope(MEASURED, figure) <= (2 if figure in MORE_THAN_A_MESSAGE else 1.1)


def test_the_slope_is_the_power_of_the_largest_sizes() -> None:
    """Growth with the square is 2, whatever small sizes cost."""
    runs = {nodes: [{"form": nodes**2 / 1000}] for nodes in (64, 256, 1024)}

    assert report.slope({8: [{"form": 5.0}], **runs}, "form") == pytest.approx(2)


def test_torchs_rendezvous_stands_beside_ours() -> None:
    """Medians with p95 and the number of runs, a ratio of runs of the same round; what did not come has no ratio."""
    ours = [{"form": 1.0, "newcomer": 1.0}, {"form": 2.0, "newcomer": 1.0}, {"form": 6.0, "newcomer": 1.0}]
    control: list[dict[str, float | str]] = [{"form": 10.0, "newcomer": "over 120"}, {"form": 40.0}, {"form": 60.0}]
    rows = {name: cells for name, *cells in report.compared({8: {"ours": ours, "c10d": control}, 64: {"ours": ours}})}

    assert rows["form, ours"] == ["2 (p95 6, n 3)"] * 2
    assert rows["form, c10d"] == ["40 (p95 60, n 3)", "-"]
    assert rows["form, ours / c10d"] == ["0.10", "-"]
    assert (rows["newcomer, c10d"][0], rows["newcomer, ours / c10d"][0]) == ("over 120 1 of 1", "-")


def test_tries_that_did_not_form_are_counted_beside_those_that_did() -> None:
    """Of five tries the times of those that formed; measured alone, they are compared by the medians."""
    late: dict[str, float | str] = {"form": "over 120"}
    control: list[dict[str, float | str]] = [{"form": 8.0}, late, {"form": 2.0}, late, {"form": 4.0, "newcomer": 3.0}]
    runs: dict[str, report.Runs] = {"ours": [{"form": 0.8}], "c10d": control}
    rows = {name: cells for name, *cells in report.compared({32: runs}, apart=[32])}

    assert rows["form, c10d"] == ["4 (p95 8, n 3); over 120 2 of 5"]
    assert rows["form, ours / c10d"] == ["0.20"]
    assert rows["newcomer, ours / c10d"] == ["-"]


def test_a_size_that_was_measured_alone_is_known_by_its_command() -> None:
    """Its runs make no pairs, however many there are of each."""
    command = "measured 2026-01-01 by `python -m benchmarks.rendezvous"
    apart = report.alone([f"{command} --runs 3`", f"{command} --only c10d --nodes 32 64 --runs 2 --add`"])
    runs: dict[str, report.Runs] = {
        "ours": [{"form": 1.0}, {"form": 5.0}],
        "c10d": [{"form": 10.0}, {"form": 10.0}],
    }
    rows = {name: cells for name, *cells in report.compared({8: runs, 32: runs}, apart)}

    assert apart == [32, 64]
    assert rows["form, ours / c10d"] == ["0.30", "0.30"]


def test_the_picture_shows_each_median() -> None:
    """A point with its seconds for each size and rendezvous, and none for one that did not come.

    Of a size that was measured only beside the store in its pod it shows both.
    """
    control: dict[str, list[dict[str, float | str]]] = {"ours": [{"form": 2.0}], "c10d": [{"form": "over 120"}]}
    runs = {"8": {"ours": [{"form": 0.1}, {"form": 0.3}, {"form": 0.2}], "c10d": [{"form": 30.0}]}, "4096": control}
    limited = {"10000": {"in its pod": [{"form": 9.0}], "free": [{"form": 5.0}]}}
    drawn = picture.document({"runs": runs}, {"runs": limited})

    shown = re.findall(r"<title>(.*?, form, .*?)</title>", drawn)
    assert shown == [
        "this launcher, form, 8 nodes: 0.2 s",
        "this launcher, form, 4,096 nodes: 2 s",
        "this launcher, form, 10,000 nodes: 5 s",
        "the same, the store in its pod, form, 10,000 nodes: 9 s",
        "torch's c10d, form, 8 nodes: 30 s",
    ]


def test_the_page_about_the_pod_has_both_in_columns() -> None:
    """Each size with the limits of the store's pod, and without."""
    runs = {"128": {"in its pod": [{"form": 2.0}], "free": [{"form": 1.0}]}}
    found = {"machine": ["a machine"], "limits": {"cpu": 0.5, "memory": 1 << 28}, "runs": runs}
    page = limited.document(found)

    assert "| nodes | 128 in its pod | 128 free |" in page
    assert "| form | 2 (n 1) | 1 (n 1) |" in page
    assert "0.5 of a processor and 256 MB" in page


HIERARCHIES = {
    "v1": {
        "cpu/cgroup.procs": "",
        "cpu/cpu.cfs_period_us": "",
        "cpu/cpu.cfs_quota_us": "",
        "cpu/cpu.stat": "nr_periods 9\nthrottled_time 1500000000\n",
        "memory/cgroup.procs": "",
        "memory/memory.limit_in_bytes": "",
        "memory/memory.kmem.tcp.limit_in_bytes": "",
        "memory/memory.max_usage_in_bytes": "2097152\n",
        "memory/memory.kmem.tcp.max_usage_in_bytes": "1048576\n",
        "memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
    },
    "v2": {
        "cpu.max": "",
        "memory.max": "",
        "cpu.stat": "usage_usec 7\nthrottled_usec 1500000\n",
        "memory.peak": "3145728\n",
        "memory.events": "low 0\noom 2\noom_kill 1\n",
    },
}
"""Files of a group below each hierarchy, with what the kernel says in them."""
SET = {
    "v1": {"cpu/cpu.cfs_quota_us": "50000", "memory/memory.limit_in_bytes": "268435456"},
    "v2": {"cpu.max": "50000 100000", "memory.max": "268435456"},
}


@pytest.mark.parametrize("version", HIERARCHIES)
def test_a_group_has_the_limits_of_the_store_s_pod(version: str, tmp_path: Path) -> None:
    """Under the names of either version of control groups; it says what was used and who was ended."""
    for name, text in HIERARCHIES[version].items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    folders = tuple(tmp_path / name for name in ("cpu", "memory")) if version == "v1" else (tmp_path,)
    group = limits.Group(folders)
    group.count_all()
    group.set(limits.Limits.of_a_pod())

    assert {name: (tmp_path / name).read_text() for name in SET[version]} == SET[version]
    assert (group.throttled_seconds(), group.peak_megabytes(), group.kills()) == (1.5, 3.0, 1)
    assert group.command(["true"])[-2:] == ["sh", "true"]


@pytest.mark.timeout(300)
def test_light_nodes_fail_leave_and_come_back_as_real_ones() -> None:
    """A failed worker costs one more generation, who was told to end goes with the next, and a namesake comes."""
    with running(9) as run:
        number = form(run, 8)["number"]
        run.lights.fail_next(1)
        run.lights.lose(8)
        number = run.wait_for(8, number + 1)["number"]
        run.lights.tell_to_end(7)
        assert run.lights.staying == [1, 2, 3, 4, 5, 6]
        number = run.wait_for(7, number)["number"]
        assert sorted(run.lights.nodes) == [1, 2, 3, 4, 5, 6]
        run.lights.lose(6, b"")
        run.lights.add(9, place=6)
        run.wait_for(7, number)

        assert run.lights.nodes[9].said.name == "elastic-job-worker-6"
        assert run.lights.lost_connections == 0


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(chaos.LIVES))
def test_many_nodes_go_on_under_random_faults(seed: int) -> None:
    """Whatever happens, several things at a time and before the last change is over: all that are left go on."""
    life = chaos.live(seed)

    assert life.lost_connections == 0
    assert life.reconnections == life.times.get("store restarted", 0)


def test_the_page_about_chaos_counts_each_kind_of_fault() -> None:
    """Over all lives, with a row for each life; a kind that never struck has a row too."""
    lost = chaos.Life(0, 10, 21, {"lost": 9, "store restarted": 2}, {"lost": 20, "store restarted": 99}, 14, 2, 0, 33.3)
    slow = replace(lost, seed=1, times={"lost": 1, "slow": 3}, nodes={"lost": 1, "slow": 5})
    page = chaos.document({"machine": ["a machine"], "lives": [asdict(lost), asdict(slow)]})
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    counts = {cells[0]: cells[2:] for cells in rows if cells[0] in chaos.KINDS}

    assert ["0", "10", "11", "14", "21", "2", "2", "0", "33"] in rows
    assert counts == {
        "lost": ["10", "21"],
        "agent killed": ["0", "0"],
        "told to end": ["0", "0"],
        "worker failed": ["0", "0"],
        "frozen": ["0", "0"],
        "cut off": ["0", "0"],
        "slow": ["3", "5"],
        "store restarted": ["2", "99"],
    }


def test_the_store_is_given_as_much_memory_as_it_took() -> None:
    """What `validate` asks for holds each measured peak, and no more than a quarter above the largest size's."""
    sizes = limited.of_sizes(results.load(limited.RESULTS))
    peaks = {
        nodes: max(float(one[report.STORE_MEMORY]) for runs in by_arm.values() for one in runs)
        for nodes, by_arm in sizes.items()
    }
    asked = {nodes: store_memory(nodes) / (1 << 20) for nodes in peaks}

    assert all(peaks[nodes] <= asked[nodes] for nodes in peaks)
    assert asked[max(peaks)] <= 1.25 * peaks[max(peaks)]
