"""The command `explain`: the explanation of a config, as a table for readers and as JSON for programs."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elastic_infra.cli import files
from elastic_infra.cli.explanation import Explanation, explanation
from elastic_infra.config import ConfigError, JobConfig, warnings
from elastic_infra.manifests import render

if TYPE_CHECKING:
    from rich.table import Table

    from elastic_infra.simulate.prices import Offer


class Format(str, Enum):
    """How the explanation is printed."""

    TABLE = "table"
    JSON = "json"


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command()(explain)


def explain(
    file: files.File,
    name: files.Name = None,
    target: files.TargetOption = None,
    prices: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Prices of nodes; adds what the job costs on demand and on spot nodes."),
    ] = None,
    output: Annotated[Format, typer.Option("--format", help="A table, or JSON for programs.")] = Format.TABLE,
) -> None:
    """Say what a job means: nodes, processes, memory, rendezvous, and how long everything may take."""
    try:
        job, config = files.named_config(file, name, target)
        render(job, config)  # names are checked there
    except ConfigError as error:
        raise files.refuse(file, error) from None
    offers = () if prices is None else _offers(config, prices)
    found = explanation(job, config)
    if output is Format.JSON:
        faults = [{"path": fault.path, "reason": fault.reason} for fault in warnings(config)]
        typer.echo(json.dumps({**dataclasses.asdict(found), **_as_json(offers), "warnings": faults}, indent=2))
    else:
        _print(found, offers)
        files.warn(file, config)


def _offers(config: JobConfig, prices: Path) -> Sequence[Offer]:
    from elastic_infra.simulate.prices import load_prices, offers

    try:
        return offers(config, load_prices(prices))
    except ConfigError as error:
        raise files.refuse(prices, error) from None


def _as_json(offers: Sequence[Offer]) -> dict[str, Any]:
    """The offers, where there are any; what would never end has neither hours nor cost."""

    def finite(value: object) -> object:
        return None if value == math.inf else value

    found = [{key: finite(value) for key, value in dataclasses.asdict(offer).items()} for offer in offers]
    return {"offers": found} if found else {}


def _table(offers: Sequence[Offer]) -> Table:
    from rich import box
    from rich.table import Table

    from elastic_infra.simulate import formatting

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("nodes")
    for column in ("price of a node and hour", "goodput", "until it ends", "cost"):
        table.add_column(column, justify="right")
    for each in offers:
        figures = (formatting.percent(each.goodput), formatting.hours(each.hours), formatting.money(each.cost))
        table.add_row(each.name, f"{each.node_hour:,.2f}", *figures)
    return table


def _print(found: Explanation, offers: Sequence[Offer]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    facts = Table(box=None, show_header=False, padding=(0, 2, 0, 0), title=found.name, title_justify="left")
    for label, value in found.facts():
        facts.add_row(label, value)
    times = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("at most", "what", "from"):
        times.add_column(column, justify="right" if column == "at most" else "left", no_wrap=column == "at most")
    for budget in found.budgets:
        times.add_row(_duration(budget.seconds), budget.meaning, "\n".join((budget.formula, *budget.fields)))
    console = Console(file=sys.stdout, highlight=False, markup=False, width=None if sys.stdout.isatty() else 120)
    console.print(facts)
    console.print(times)
    if offers:
        console.print(_table(offers))


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "never"
    whole = int(seconds)
    hours, minutes = divmod(whole // 60, 60)
    parts = ((hours, "h"), (minutes, "min"), (whole % 60, "s"))
    return " ".join(f"{amount} {unit}" for amount, unit in parts if amount) or "at once"
