"""What a job costs by a table of prices."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from elastic_infra.config import ConfigError, JobConfig
from elastic_infra.simulate.prices import Offer, Prices, Spot, load_prices, offers
from tests.cli import elastic_infra

JOB = {"image": "registry.example.com/llm:1", "script": "train.py", "elastic": {"nnodes": "2:8"}}
GPUS = JobConfig.from_mapping({**JOB, "resources": {"gpu": 8, "memory": "64Gi"}})
PRICES = Prices(node_hour=1.0, device_hour={"nvidia.com/gpu": 2.0})


def test_a_node_that_never_fails_costs_its_hours() -> None:
    """Eight nodes for ten hours, each with its eight accelerators, and a little for starts and saves."""
    (only,) = offers(GPUS, PRICES.model_copy(update={"hours": 10.0, "failures": 0.0}))

    assert (only.name, only.node_hour) == ("on demand", 17.0)
    assert only.cost == pytest.approx(8 * only.hours * 17.0)
    assert 10.0 < only.hours < 11.0


def test_spot_nodes_are_cheaper_and_take_longer() -> None:
    """The discount lowers the price; what is taken back costs time."""
    spot = Spot(discount=0.6, preemptions=1000.0)
    on_demand, cheap = offers(GPUS, PRICES.model_copy(update={"spot": spot}))

    assert cheap.node_hour == pytest.approx(0.4 * on_demand.node_hour)
    assert cheap.goodput < on_demand.goodput
    assert cheap.hours > on_demand.hours
    assert cheap.cost < on_demand.cost


def test_a_job_that_never_ends_costs_without_bound(tmp_path: Path) -> None:
    """Even where a node costs nothing; null for programs."""
    job, prices = tmp_path / "llm.yaml", tmp_path / "prices.yaml"
    job.write_text("image: registry.example.com/llm:1\nscript: train.py\n")
    prices.write_text("failures: 1.0e+9\n")
    said = elastic_infra("explain", job, "--prices", prices, "--format", "json").out

    assert "NaN" not in said
    assert [(offer["hours"], offer["cost"]) for offer in json.loads(said)["offers"]] == [(None, None)]


def test_the_autoscalers_most_is_asked_for() -> None:
    """As `simulate` has it: with an autoscaler the job may grow to its maximum, without one it begins with less."""
    fixed = GPUS.model_copy(update={"elastic": GPUS.elastic.model_copy(update={"initial_nodes": 2})})

    assert offers(fixed, PRICES)[0].cost < offers(GPUS, PRICES)[0].cost


def test_an_accelerator_without_a_price_is_named() -> None:
    """A job whose accelerators are left out would look cheap."""
    with pytest.raises(ConfigError, match=r"device_hour: has no price for nvidia\.com/gpu"):
        offers(GPUS, Prices(node_hour=1.0))


CLAIMED = JobConfig.from_mapping(
    {
        **JOB,
        "elastic": {"nnodes": "2:8", "nproc_per_node": 8},
        "resources": {
            "memory": "64Gi",
            "claims": [
                {"name": "first", "template": "four-h100"},
                {"name": "second", "template": "four-h100"},
                {"name": "links", "template": "nics"},
            ],
        },
    }
)
"""What its claims bring is in the cluster alone."""


def test_claims_are_priced_by_their_templates() -> None:
    """Each claim of a node counts."""
    (only,) = offers(CLAIMED, Prices(node_hour=1.0, device_hour={"four-h100": 8.0, "nics": 0.0}))

    assert only.node_hour == 17.0


def test_a_claim_without_a_price_is_named() -> None:
    """Once for each template, with what to do: claims that are left out would look cheap as well."""
    with pytest.raises(ConfigError) as refused:
        offers(CLAIMED, PRICES)

    assert [str(fault) for fault in refused.value.faults] == [
        f"device_hour: has no price for {name}, which the job asks for. "
        f"Add `{name}: PRICE`; 0 where node_hour includes it."
        for name in ("four-h100", "nics")
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("spot: {discount: 1.5, preemptions: 1}", "spot.discount"),
        ("hours: 0", "hours"),
        ("node_hour: -1", "node_hour"),
        ("currency: EUR", "currency"),
        ("", "A table of prices starts with keys such as device_hour:"),
    ],
)
def test_bad_tables_are_refused(tmp_path: Path, text: str, said: str) -> None:
    """Each fault names its place."""
    file = tmp_path / "prices.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=said):
        load_prices(file)


def test_explain_adds_the_offers(tmp_path: Path) -> None:
    """As rows of a table and for programs; a fault of the table is a line that names the file."""
    job, prices = tmp_path / "llm.yaml", tmp_path / "prices.yaml"
    job.write_text("image: registry.example.com/llm:1\nscript: train.py\nelastic: {nnodes: 2:4}\n")
    prices.write_text("node_hour: 3\nspot: {discount: 0.5, preemptions: 500}\n")
    table = elastic_infra("explain", job, "--prices", prices)
    document = json.loads(elastic_infra("explain", job, "--prices", prices, "--format", "json").out)
    prices.write_text("node_hour: three\n")
    refused = elastic_infra("explain", job, "--prices", prices)

    assert table.code == 0
    assert [line.split()[0] for line in table.out.splitlines()[-3:] if line.strip()] == ["on", "spot"]
    assert [Offer(**offer).name for offer in document["offers"]] == ["on demand", "spot"]
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith(f"{prices}: node_hour: ")
