"""The command `simulate`: what a job will take and cost on a cluster that fails. Exit codes: 0, 2 (bad input)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from elastic_infra.cli import files
from elastic_infra.config import ConfigError, Fault
from elastic_infra.config.values import quantity
from elastic_infra.simulate import study, trace
from elastic_infra.simulate.estimate import FEWEST_RUNS
from elastic_infra.simulate.measured import GIGABYTE
from elastic_infra.simulate.scenario import LEAST, MOST, Costs, Rates, Saving, Scenario, faults, wanted_nodes

if TYPE_CHECKING:
    from elastic_infra.simulate.report import Answer, Question

RATES: Final = Rates()
COSTS: Final = Costs()
SNAPSHOT_PAUSE: Final = 1.0
SNAPSHOT_SHARE: Final = 0.01
"""Share of the time for snapshots: `training.Elastic` chooses their interval by it."""
STATE: Final = f"{COSTS.state / GIGABYTE:g}G"
SUFFIX: Final = ".svg"


class Format(str, Enum):
    """How the answer is printed: text for readers, or JSON for programs."""

    TEXT = "text"
    JSON = "json"


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command()(simulate)


def simulate(  # noqa: PLR0913, PLR0917 - one parameter an option
    file: files.File,
    name: files.Name = None,
    hours: Annotated[float, typer.Option(help="Time of the training on all nodes, without any loss.")] = 24.0,
    failures: Annotated[
        float | None,
        typer.Option(help="Nodes lost without notice, per 1,000 node-days. Default: 6.5, or 0 with --trace."),
    ] = None,
    preemptions: Annotated[
        float, typer.Option(help="Nodes taken back with a notice, per 1,000 node-days.")
    ] = RATES.preemptions,
    crashes: Annotated[
        float, typer.Option(help="Failed workers whose node stays, per 1,000 node-days.")
    ] = RATES.crashes,
    replacement: Annotated[
        float, typer.Option(metavar="SECONDS", help="Mean time until another node runs in place of one that is gone.")
    ] = RATES.replacement_seconds,
    changes: Annotated[
        Path | None,
        typer.Option(
            "--trace",
            metavar="CSV",
            help="Changes at known times: columns hours,event,nodes; events loss, preemption, crash, return.",
        ),
    ] = None,
    checkpoint_interval: Annotated[
        float, typer.Option(metavar="SECONDS", help="Training between two checkpoints on disk.")
    ] = COSTS.checkpoint.interval_seconds,
    checkpoint_pause: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long training waits for a checkpoint.")
    ] = COSTS.checkpoint.pause_seconds,
    elastic: Annotated[  # noqa: FBT002 - a flag
        bool, typer.Option(help="Whether the script uses training.Elastic: snapshots in memory, planned stops.")
    ] = True,
    snapshot_pause: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long training waits for a snapshot.")
    ] = SNAPSHOT_PAUSE,
    script_start: Annotated[
        float, typer.Option(metavar="SECONDS", help="From the script's start to its first step, without loading.")
    ] = COSTS.script_start,
    load: Annotated[float, typer.Option(metavar="SECONDS", help="Loading a checkpoint from disk.")] = COSTS.load,
    state: Annotated[
        str,
        typer.Option(metavar="BYTES", help="Model and optimizer of a node, which one that comes is sent: 500M, 16Gi."),
    ] = STATE,
    transfer_rate: Annotated[
        str | None,
        typer.Option(metavar="BYTES", help="Bytes a second at which it is sent them: 1G. Default: as measured."),
    ] = None,
    step: Annotated[float, typer.Option(metavar="SECONDS", help="One step.")] = COSTS.step,
    efficiency: Annotated[
        float, typer.Option(help="Speed of twice the nodes as a share of twice the speed, from 0.5 to 1.")
    ] = 1.0,
    price: Annotated[float | None, typer.Option(help="Price of a node and hour, in any currency.")] = None,
    budget: Annotated[
        float | None, typer.Option(help="Find the ranges of nodes that finish first for this; needs --price.")
    ] = None,
    runs: Annotated[int, typer.Option(help="Runs of each way to run the job.")] = study.RUNS,
    seed: Annotated[int, typer.Option(help="The same seed gives the same answer.")] = 0,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write a picture: .svg.")] = None,
    form: Annotated[Format, typer.Option("--format", help="Text, or JSON for programs.")] = Format.TEXT,
) -> None:
    """Simulate a job on a cluster that fails: goodput, time to finish and cost, with torchrun and this launcher."""
    from elastic_infra.simulate.report import Question, answer

    try:
        job, config = files.named_config(file, name, None)
        known = () if changes is None else trace.read(changes)
        if failures is None:
            failures = RATES.failures if changes is None else 0.0
        snapshot = Saving(max(step, snapshot_pause / SNAPSHOT_SHARE), snapshot_pause) if elastic else None
        scenario = Scenario(
            (config.elastic.min_nodes, wanted_nodes(config)),
            hours,
            config.elastic.node_unit,
            efficiency=efficiency,
            rates=Rates(failures, preemptions, crashes, replacement),
            costs=Costs(
                script_start,
                load,
                step,
                Saving(checkpoint_interval, checkpoint_pause),
                snapshot,
                _bytes("--state", state),
                None if transfer_rate is None else _bytes("--transfer-rate", transfer_rate),
            ),
            trace=known,
            returns=all(change.kind != "return" for change in known),
        )
        question = Question(job, scenario, runs, seed, price, budget)
        _check(question, output)
    except ConfigError as error:
        raise files.refuse(file, error) from None
    said = answer(question)
    if output is not None:
        _write(output, said)
    _print(said, form)


def _bytes(option: str, text: str) -> float:
    try:
        return float(quantity(text))
    except ValueError as error:
        raise ConfigError([Fault(option, str(error))]) from None


def _check(question: Question, output: Path | None) -> None:
    """Refuse what cannot be simulated, with all reasons at once."""
    if wrong := [*faults(question.scenario), *_faults(question, output)]:
        raise ConfigError(wrong)


def _faults(question: Question, output: Path | None) -> Iterator[Fault]:
    if not FEWEST_RUNS <= question.runs <= study.MOST_RUNS:
        yield Fault("--runs", f"must be from {FEWEST_RUNS} to {study.MOST_RUNS}.")
    for option, amount in (("--price", question.price), ("--budget", question.budget)):
        if amount is not None and not LEAST <= amount <= MOST:
            yield Fault(option, f"must be a number from {LEAST:g} to {MOST:g}.")
    if question.budget is not None and question.price is None:
        yield Fault("--budget", "needs --price, which says what a node costs.")
    if output is not None and output.suffix != SUFFIX:
        yield Fault("--output", f"the picture's form is not known. Name a file that ends in {SUFFIX}.")


def _write(output: Path, said: Answer) -> None:
    from elastic_infra.simulate.picture import draw

    try:
        output.write_text(draw(said), encoding="utf-8")
    except OSError as error:
        typer.echo(f"{output}: cannot be written: {error.strerror}.", err=True)
        raise typer.Exit(files.BAD_INPUT) from None


def _print(said: Answer, form: Format) -> None:
    if form is Format.JSON:
        from elastic_infra.simulate.report import as_json

        typer.echo(json.dumps(as_json(said), indent=2))
        return
    from rich.console import Console

    from elastic_infra.simulate.text import print_text

    width = None if sys.stdout.isatty() else 120
    print_text(said, Console(file=sys.stdout, highlight=False, markup=False, width=width))
