"""The table of prices that a user gives, and what a job costs by it on demand and on spot nodes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pydantic
from pydantic import Field

from elastic_infra.config import ConfigError, Fault, JobConfig
from elastic_infra.config.base import Part
from elastic_infra.config.errors import faults_of
from elastic_infra.config.load import read_mapping
from elastic_infra.simulate import study
from elastic_infra.simulate.scenario import MOST, Rates, Scenario, faults, wanted_nodes

Amount = Annotated[float, Field(ge=0, le=MOST)]


class Spot(Part):
    """What spot nodes have beyond those on demand."""

    discount: Annotated[float, Field(ge=0, lt=1)]
    """The share of the price that is saved: 0.6 means that a node costs 40 % of its price on demand."""

    preemptions: Amount
    """Nodes taken back with a notice, per 1,000 node-days: a node that lives for a day has 1,000."""

    replacement_seconds: Annotated[float, Field(gt=0, le=MOST)] = Rates.replacement_seconds
    """Mean time until another node runs in place of one that was taken back."""


class Prices(Part):
    """Prices in any one currency."""

    node_hour: Amount = 0.0
    """Price of a node and hour without its accelerators."""

    device_hour: dict[str, Amount] = {}
    """Price of one accelerator and hour by its extended resource, such as `nvidia.com/gpu: 2.50`; of what one claim
    brings, by the claim's template."""

    hours: Annotated[float, Field(gt=0, le=MOST)] = 24.0
    """Time of the training on all nodes, without any loss."""

    failures: Amount = Rates.failures
    """Nodes lost without notice, per 1,000 node-days."""

    spot: Spot | None = None
    """Spot nodes; unset leaves them out."""


@dataclass(frozen=True)
class Offer:
    """What the job takes and costs on one kind of node, by simulation, with this launcher's measured latencies."""

    name: str
    """``on demand`` or ``spot``."""
    node_hour: float
    """Price of a node and hour, its accelerators included."""
    goodput: float
    """Mean share of the time for training that was kept."""
    hours: float
    """Mean time to finish; infinite where a run does not end."""
    cost: float
    """Mean price of the whole job; infinite where a run does not end, at any price."""


def load_prices(path: Path) -> Prices:
    """The table in a YAML or JSON file.

    Raises:
        ConfigError: the file cannot be read or parsed, or its content is not valid.
    """
    try:
        return Prices.model_validate(read_mapping(path, "table of prices", "device_hour: and spot:"))
    except pydantic.ValidationError as error:
        raise ConfigError(faults_of(error, Prices)) from None


def offers(config: JobConfig, prices: Prices) -> tuple[Offer, ...]:
    """The job on demand, and on spot nodes where the table has them.

    Raises:
        ConfigError: the table has no price for the job's accelerators, or what it says cannot be simulated.
    """
    whole = prices.node_hour + _devices(config, prices)
    nodes = (config.elastic.min_nodes, wanted_nodes(config))
    return tuple(
        _offer(name, price, Scenario(nodes, prices.hours, config.elastic.node_unit, rates=rates))
        for name, price, rates in _kinds(prices, whole)
    )


def _kinds(prices: Prices, whole: float) -> Iterator[tuple[str, float, Rates]]:
    yield "on demand", whole, Rates(prices.failures)
    if prices.spot is not None:
        rates = Rates(prices.failures, prices.spot.preemptions, replacement_seconds=prices.spot.replacement_seconds)
        yield "spot", whole * (1 - prices.spot.discount), rates


def _devices(config: JobConfig, prices: Prices) -> float:
    asked = [*_asked(config)]
    missing = [name for name, _ in asked if name not in prices.device_hour]
    if missing:
        message = "has no price for {0}, which the job asks for. Add `{0}: PRICE`; 0 where node_hour includes it."
        raise ConfigError([Fault("device_hour", message.format(name)) for name in dict.fromkeys(missing)])
    return sum(count * prices.device_hour[name] for name, count in asked)


def _asked(config: JobConfig) -> Iterator[tuple[str, int]]:
    """What a node asks for, and how many: accelerators by their resource, claims by their template.

    Templates are objects of the cluster, so what a claim brings is not known here.
    """
    if gpu := config.resources.gpu:
        yield gpu.resource_name, gpu.count
    for claim in config.resources.claims:
        yield claim.template, 1


def _offer(name: str, price: float, scenario: Scenario) -> Offer:
    if wrong := list(faults(scenario)):
        raise ConfigError(wrong)
    result = study.result(scenario, "restarts", study.RUNS, seed=0)
    node_hours = result.node_hours.mean
    cost = node_hours * price if math.isfinite(node_hours) else math.inf
    return Offer(name, price, result.goodput.mean, result.hours.mean, cost)
