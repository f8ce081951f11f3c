"""Prints an answer: what is assumed, the arms side by side, the advice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table

from elastic_infra.simulate import formatting
from elastic_infra.simulate.advice import Interval
from elastic_infra.simulate.arms import SAID
from elastic_infra.simulate.report import Answer, cost
from elastic_infra.simulate.run import ACTIVITIES
from elastic_infra.simulate.scenario import Scenario
from elastic_infra.simulate.study import Result

NEEDS: Final = "In place needs a script with training.ElasticGroup: proved on gloo, unproved on NCCL."


def print_text(said: Answer, console: Console) -> None:
    """Print an answer as tables, with what was assumed."""
    question = said.question
    low, high = question.scenario.nodes
    nodes = str(high) if low == high else f"{low} to {high}"
    console.print(f"{question.job}: {question.scenario.hours:g} h of training without any loss, on {nodes} nodes")
    console.print(_compared(said))
    console.print(f"Assumed: {'; '.join(_assumed(question.scenario))}.")
    for line in (*map(_interval, said.intervals), *_budget(said)):
        console.print(line)
    console.print(f"Means of {question.runs} runs with seed {question.seed}, with 95 % confidence intervals.")
    if question.scenario.costs.snapshot:
        console.print(NEEDS)


def _compared(said: Answer) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for result in said.results:
        table.add_column(SAID[result.arm.name], justify="right")
    for label, *cells in _rows(said):
        table.add_row(label, *cells)
    return table


def _rows(said: Answer) -> Iterator[tuple[str, ...]]:
    results, price = said.results, said.question.price
    yield "goodput", *(formatting.estimated(result.goodput, formatting.percent) for result in results)
    yield "time to finish", *(formatting.estimated(result.hours, formatting.hours) for result in results)
    yield "  9 of 10 runs", *(_spread(result) for result in results)
    if price is not None:
        yield "cost", *(formatting.estimated(cost(result.node_hours, price), formatting.money) for result in results)
    for activity, meaning in ACTIVITIES.items():
        if activity != "training":
            yield meaning, *(formatting.percent(result.share(activity)) for result in results)
    yield "changes in a run", *(f"{result.changes:,.0f}" for result in results)
    if any(result.unfinished for result in results):
        yield "runs that never end", *(str(result.unfinished) for result in results)


def _spread(result: Result) -> str:
    hours = result.hours
    return f"{formatting.hours(hours.p5)} to {formatting.hours(hours.p95)}"


def _assumed(scenario: Scenario) -> Iterator[str]:
    rates, costs = scenario.rates, scenario.costs
    if scenario.trace:
        yield f"a trace of {len(scenario.trace)} changes"
    yield (
        f"for 1,000 node-days {rates.failures:g} lost nodes, {rates.preemptions:g} preempted ones, {rates.crashes:g} "
        "crashes of a worker"
    )
    if scenario.returns:
        yield f"another node after {formatting.seconds(rates.replacement_seconds)} on average"
    checkpoint, snapshot = costs.checkpoint, costs.snapshot
    yield (
        f"a checkpoint every {formatting.seconds(checkpoint.interval_seconds)} with a pause of "
        f"{checkpoint.pause_seconds:g} s"
    )
    if snapshot:
        yield (
            f"snapshots in memory every {formatting.seconds(snapshot.interval_seconds)} with a pause of "
            f"{snapshot.pause_seconds:g} s"
        )
    yield (
        f"{costs.script_start:g} s from the script's start to its first step, {costs.load:g} s to load a checkpoint, "
        f"{costs.step:g} s a step"
    )
    if snapshot:
        rate = (
            "as fast as measured"
            if costs.transfer_rate is None
            else f"at {formatting.size(costs.transfer_rate)} a second"
        )
        yield f"{formatting.size(costs.state)} of state, which a node that comes is sent {rate}"


def _interval(best: Interval) -> str:
    formulas = f"{formatting.seconds(best.young)} by Young, {formatting.seconds(best.daly)} by Daly"
    return (
        f"{SAID[best.arm]}: the best interval between {best.saves}s is {formatting.seconds(best.searched)} by search, "
        f"{formulas}; goodput in the long run {formatting.percent(best.searched_goodput)}, and "
        f"{formatting.percent(best.given_goodput)} with {formatting.seconds(best.given)}."
    )


def _budget(said: Answer) -> Iterator[str]:
    question = said.question
    if question.budget is None or question.price is None:
        return
    for name, best in said.best_ranges.items():
        if best is None:
            yield f"{SAID[name]}: no range of nodes finishes for {formatting.money(question.budget)}."
            continue
        low, high = best.nodes
        yield (
            f"{SAID[name]}: for {formatting.money(question.budget)} nnodes {low}:{high} finishes first, after "
            f"{formatting.hours(best.hours)}, and costs {formatting.money(best.node_hours * question.price)}."
        )
