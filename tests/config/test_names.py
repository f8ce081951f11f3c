"""Every derived name fits where Kubernetes has a limit of 63 characters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_infra.config import JobConfig
from elastic_infra.config.names import MAX_LABEL, ObjectNames, name_faults
from tests import jobs

LABEL_LIKE = ("rendezvous",)
"""Derived names of Services, beside the operator's `<job>-worker-<i>`. Others may have 253 characters."""


def of_nodes(nodes: int) -> JobConfig:
    """A job of the operator's."""
    return jobs.job(elastic={"nnodes": nodes}, target="pytorchjob")


@given(st.integers(1, 70), st.integers(1, 10_000))
def test_a_name_is_accepted_exactly_when_every_derived_label_fits(length: int, max_nodes: int) -> None:
    """The last pod's name decides; a message says how many characters are left."""
    names = ObjectNames("a" * length)
    derived = [names.worker(max_nodes - 1), *(getattr(names, name) for name in LABEL_LIKE)]
    fits = all(len(name) <= MAX_LABEL for name in derived)

    assert (name_faults("a" * length, of_nodes(max_nodes)) == ()) == fits


@pytest.mark.parametrize(("max_nodes", "room"), [(1, 54), (10, 54), (11, 53), (100, 53), (101, 52), (10_000, 51)])
def test_the_room_shrinks_with_the_digits_of_the_last_index(max_nodes: int, room: int) -> None:
    """54 characters up to ten nodes, one less for every further digit."""
    assert name_faults("a" * room, of_nodes(max_nodes)) == ()
    (fault,) = name_faults("a" * (room + 1), of_nodes(max_nodes))
    assert f"is {room + 1} characters long" in fault.reason
    assert f"more than Kubernetes' {MAX_LABEL}. Use at most {room}." in fault.reason


@pytest.mark.parametrize("target", ["auto", "job"])
def test_a_single_pod_has_room_for_a_whole_label(target: str) -> None:
    """There is no `-worker-0`; the name is a label of the pod, whose own name Kubernetes shortens."""
    config = jobs.job(target=target)
    (fault,) = name_faults("a" * (MAX_LABEL + 1), config)

    assert name_faults("a" * MAX_LABEL, config) == ()
    assert fault.reason.endswith(f"(at most {MAX_LABEL} characters).")
    assert "worker" not in fault.reason


@pytest.mark.parametrize(("max_nodes", "room"), [(1, 48), (10, 48), (11, 47), (10_000, 45)])
def test_a_train_job_has_room_for_the_names_of_its_pods(max_nodes: int, room: int) -> None:
    """JobSet refuses a job whose pods, `<job>-node-0-<index>` with six more characters, would not fit."""
    config = jobs.job(elastic={"nnodes": max_nodes}, target="trainjob")

    assert name_faults("a" * room, config) == ()
    assert len(name_faults("a" * (room + 1), config)) == 1


@pytest.mark.parametrize(("max_nodes", "room"), [(2, 58), (10_000, 58), (1, MAX_LABEL)])
def test_an_indexed_job_has_room_for_its_host_names_and_its_service(max_nodes: int, room: int) -> None:
    """`<job>-9999` is a host name, `<job>-rdzv` the Service; one node has neither."""
    config = jobs.job(elastic={"nnodes": max_nodes}, target="job")

    assert name_faults("a" * room, config) == ()
    assert len(name_faults("a" * (room + 1), config)) == 1


@pytest.mark.parametrize("name", ["", "A", "1a", "a_b", "a.b", "-a", "a-", "a" * 64, None, 3, "a\n"])
def test_what_is_no_dns_label_is_refused(name: object) -> None:
    """The operator's webhook takes RFC 1035 labels only; so does a Service."""
    (fault,) = name_faults(name, jobs.job())

    assert fault.path == "name"


def test_derived_names_are_distinct_and_never_the_jobs_own() -> None:
    """The operator takes over an autoscaler that is named like the job."""
    names = ObjectNames("job")
    derived = [
        names.rendezvous,
        names.store_token,
        names.autoscaler,
        names.driver,
        names.disruption_budget,
        names.network_policy,
        names.checkpoint,
        names.launcher("0" * 8),
        names.worker(0),
    ]

    assert len({"job", *derived}) == len(derived) + 1
