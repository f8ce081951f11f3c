"""Ranges of nodes and numbers of processes, in every spelling."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_infra.config import ConfigError
from elastic_infra.config.elastic import MAX_NODES, node_range
from tests import jobs


@given(st.integers(1, MAX_NODES), st.integers(1, MAX_NODES))
def test_a_range_reads_as_its_bounds_or_is_refused(low: int, high: int) -> None:
    """Two numbers in order are the bounds; else the message has both."""
    if low <= high:
        assert node_range(f"{low}:{high}") == (low, high)
    else:
        with pytest.raises(ValueError, match=rf"minimum \({low}\) .* maximum \({high}\)"):
            node_range(f"{low}:{high}")


@pytest.mark.parametrize(
    ("nnodes", "bounds", "text"),
    [
        (1, (1, 1), "1"),
        (3.0, (3, 3), "3"),
        ("4", (4, 4), "4"),
        ("004", (4, 4), "4"),
        ("2:4", (2, 4), "2:4"),
        ("02:04", (2, 4), "2:4"),
        ("1:10000", (1, 10_000), "1:10000"),
    ],
)
def test_numbers_and_ranges_are_accepted(nnodes: object, bounds: tuple[int, int], text: str) -> None:
    """As a number, as text, as a float that JSON made of a whole number."""
    elastic = jobs.job(elastic={"nnodes": nnodes}).elastic

    assert (elastic.min_nodes, elastic.max_nodes) == bounds
    assert elastic.nnodes == text
    assert elastic.is_range == (bounds[0] < bounds[1])


@pytest.mark.parametrize(
    "nnodes",
    [
        *(0, 10_001, 2.5, True, None, [1]),
        *("", ":", "0:2", "1:10001", "4:2", "2:", ":4", "1:2:3", "-1", "2-4", " 2", "2:4 ", "2.0", "٣"),
    ],
)
def test_what_is_no_range_is_refused(nnodes: object) -> None:
    """Only whole numbers from 1 to the limit, in order."""
    with pytest.raises(ConfigError) as caught:
        jobs.job(elastic={"nnodes": nnodes})

    assert [fault.path for fault in caught.value.faults] == ["elastic.nnodes"]


@pytest.mark.parametrize(
    ("fields", "initial"),
    [
        ({"elastic": {"nnodes": 3}}, 3),
        ({"elastic": {"nnodes": "2:4"}}, 4),
        ({"elastic": {"nnodes": "2:4", "initial_nodes": 3}}, 3),
        ({"elastic": {"nnodes": "2:4"}, "autoscaling": {"metrics": [{"type": "pods", "name": "q", "target": 1}]}}, 2),
    ],
)
def test_a_job_starts_with(fields: dict[str, object], initial: int) -> None:
    """The maximum as in Flyte, the minimum when an autoscaler is to decide, or what is given."""
    assert jobs.job(**fields).initial_nodes == initial


@pytest.mark.parametrize(
    ("wanted", "gpu", "processes"),
    [
        ("auto", None, 1),
        ("auto", 8, 8),
        ("auto", {"count": 4, "vendor": "amd"}, 4),
        ("auto", {"count": 2, "resource": "nvidia.com/mig-1g.10gb"}, 2),
        (4, None, 4),
        ("4", 8, 4),
        (2.0, None, 2),
    ],
)
def test_processes_of_a_node(wanted: object, gpu: object, processes: int) -> None:
    """`auto` is the GPU count and never the cluster node's cores."""
    resources = {} if gpu is None else {"gpu": gpu}
    config = jobs.job(elastic={"nproc_per_node": wanted, "nnodes": 2}, resources=resources)

    assert config.nproc_per_node == processes
    assert jobs.objects(config)["workload"]["spec"]["nprocPerNode"] == str(processes)


@pytest.mark.parametrize("wanted", [0, "00", "gpu", "cpu", "", -1, 1.5, True, "10000", "²"])
def test_what_is_no_number_of_processes_is_refused(wanted: object) -> None:
    """Torchrun's `gpu` and `cpu` would count on the cluster node, which the manifest cannot show."""
    with pytest.raises(ConfigError, match=r"^elastic\.nproc_per_node: "):
        jobs.job(elastic={"nproc_per_node": wanted})
