"""Reads job files for the commands: only this module turns a fault into lines on stderr and exit code 2."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from elastic_infra.config import ConfigError, Fault, JobConfig, warnings
from elastic_infra.config.load import JOB_STEM, job_name, named_by, read_mapping
from elastic_infra.config.names import name_faults
from elastic_infra.config.workdir_files import with_workdir

BAD_INPUT = 2


class Target(str, Enum):
    """Workload objects that a job can become."""

    AUTO = "auto"
    PYTORCHJOB = "pytorchjob"
    JOB = "job"
    TRAINJOB = "trainjob"


File = Annotated[Path, typer.Argument(metavar="FILE", help="A job in YAML or JSON.", show_default=False)]
Name = Annotated[
    str | None,
    typer.Option(help="Name of the job. Default: the file's `name`, else its stem, or for job.yaml its folder."),
]
TargetOption = Annotated[Target | None, typer.Option(help="Workload object, in place of the file's `target`.")]


def named_config(file: Path, name: str | None, target: Target | None) -> tuple[str, JobConfig]:
    """The job in a file, with the changes of the command line.

    Raises:
        ConfigError: the file cannot be read, its content is invalid, or the name that its path gives is.
    """
    data = dict(read_mapping(file))
    if target is not None:
        data["target"] = target.value
    config = with_workdir(JobConfig.from_mapping(data), file.parent)
    if name is not None:
        return name, config.model_copy(update={"name": None})
    if config.name is not None:
        return config.name, config
    path = file.resolve().as_posix()
    job = job_name(path, "")
    if file.stem == JOB_STEM and file.parent == Path():
        report(file, [_named_by_the_checkout(job)], "warning: ")
    if faults := name_faults(job, config):
        raise ConfigError(Fault(fault.path, f"{fault.reason} {named_by(path)}") for fault in faults)
    return job, config


def _named_by_the_checkout(job: str) -> Fault:
    reason = (
        f"is not set, so the folder in which this is run names the job ({job}): elsewhere the same file is another "
        "job, with other checkpoints. Set one."
    )
    return Fault("name", reason)


def refuse(file: Path | str, error: ConfigError) -> typer.Exit:
    """Report the faults of a file, or of what a text names; returns the exception to raise."""
    report(file, error.faults)
    return typer.Exit(BAD_INPUT)


def warn(file: Path, config: JobConfig) -> None:
    """Report settings that are allowed but likely to surprise."""
    report(file, warnings(config), "warning: ")


def report(file: Path | str, faults: Iterable[Fault], kind: str = "") -> None:
    """Write one line for each fault on stderr: ``FILE: path: reason``."""
    for fault in faults:
        typer.echo(f"{file}: {kind}{fault}", err=True)
