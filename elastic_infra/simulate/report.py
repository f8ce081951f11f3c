"""The whole answer: the compared arms with the advice, as data for programs. Pure."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from elastic_infra.simulate import advice, study
from elastic_infra.simulate.arms import Name, names
from elastic_infra.simulate.estimate import Estimate
from elastic_infra.simulate.scenario import Scenario


@dataclass(frozen=True)
class Question:
    """What is asked about a scenario.

    Attributes:
        runs: runs of each arm.
        price: of a node and hour, in any currency; None: no cost is told.
        budget: the most that the job may cost; None: no range of nodes is searched for.
    """

    job: str
    scenario: Scenario
    runs: int = study.RUNS
    seed: int = 0
    price: float | None = None
    budget: float | None = None


@dataclass(frozen=True)
class Answer:
    """What the simulation says."""

    question: Question
    results: tuple[study.Result, ...]
    intervals: tuple[advice.Interval, ...]
    best_ranges: Mapping[Name, advice.Range | None]
    """The range of nodes for the budget with each arm, None where no range meets it; empty without a budget."""


def answer(question: Question) -> Answer:
    """Simulate everything that is asked."""
    scenario, seed = question.scenario, question.seed
    results = study.study(scenario, question.runs, seed)
    intervals = (advice.interval(scenario, result.arm.name, seed) for result in results)
    return Answer(question, results, tuple(found for found in intervals if found), _best_ranges(question))


def _best_ranges(question: Question) -> Mapping[Name, advice.Range | None]:
    if not question.price or question.budget is None:
        return {}
    node_hours, scenario = question.budget / question.price, question.scenario
    return {name: advice.best_range(scenario, name, node_hours, question.seed) for name in names(scenario)}


def cost(node_hours: Estimate, price: float) -> Estimate:
    """The price of so many node-hours."""
    return Estimate(*(value * price for value in dataclasses.astuple(node_hours)))


def as_json(said: Answer) -> dict[str, Any]:
    """The answer as plain data; what has no finite value is None."""
    question = said.question
    scenario = dataclasses.asdict(question.scenario)
    scenario["trace"] = len(question.scenario.trace)
    document = {
        "job": question.job,
        "runs": question.runs,
        "seed": question.seed,
        "price": question.price,
        "budget": question.budget,
        "scenario": scenario,
        "arms": [_arm(result, question.price) for result in said.results],
        "intervals": [dataclasses.asdict(interval) for interval in said.intervals],
        "best_ranges": [_range(name, best, question.price) for name, best in said.best_ranges.items()],
    }
    return {key: _finite(value) for key, value in document.items()}


def _arm(result: study.Result, price: float | None) -> Mapping[str, Any]:
    return {
        "name": result.arm.name,
        "goodput": dataclasses.asdict(result.goodput),
        "hours": dataclasses.asdict(result.hours),
        "node_hours": dataclasses.asdict(result.node_hours),
        "cost": None if price is None else dataclasses.asdict(cost(result.node_hours, price)),
        "shares": result.shares(),
        "changes": result.changes,
        "unfinished": result.unfinished,
    }


def _range(name: Name, best: advice.Range | None, price: float | None) -> Mapping[str, Any]:
    if best is None or price is None:
        return {"arm": name, "nodes": None, "hours": None, "cost": None}
    low, high = best.nodes
    return {"arm": name, "nodes": f"{low}:{high}", "hours": best.hours, "cost": best.node_hours * price}


def _finite(value: Any) -> Any:  # noqa: ANN401 - any part of a document
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
