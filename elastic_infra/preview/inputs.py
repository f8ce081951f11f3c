"""Reads the two sides of a comparison: arguments become jobs, and each unreadable file becomes an error."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from elastic_infra.config import ConfigError, Fault, JobConfig
from elastic_infra.config.load import job_name
from elastic_infra.config.workdir_files import with_workdir
from elastic_infra.preview import git
from elastic_infra.preview.job_files import config_of, declares, may_declare
from elastic_infra.preview.model import Job, Side, SideFault, SideName
from elastic_infra.preview.package_version import pinned_package
from elastic_infra.preview.programs import program_files, program_jobs, stacks
from elastic_infra.preview.sources import OnDisk, Source, SourceError


@dataclasses.dataclass(frozen=True)
class Given:
    """The argument for one side, and the source that it names."""

    side: SideName
    spec: str
    source: Source


@dataclasses.dataclass(frozen=True)
class Reading:
    """The options for reading sides.

    Attributes:
        name: the job's name when both sides are one file each; None takes the file's.
        run_programs: whether Pulumi programs are run, which executes their code.
        stack: whose plain config the programs get.
    """

    name: str | None = None
    run_programs: bool = False
    stack: str | None = None


def read_sides(base: str, head: str, folder: Path, reading: Reading) -> tuple[Side, Side]:
    """Both sides with their jobs; a side that cannot be read at all has only its fault.

    Args:
        base: a file, a folder, a revision, or ``revision:path``.
        head: the same.
        folder: where relative paths and git start.
    """
    sources = {"base": _opened("base", base, head, folder), "head": _opened("head", head, base, folder)}
    if all(isinstance(each, Given) and not getattr(each.source, "is_there", True) for each in sources.values()):
        sources = {"base": SideFault("base", base, _NOWHERE), "head": SideFault("head", head, _NOWHERE)}
    given = [each for each in sources.values() if isinstance(each, Given)]
    single = len(given) == 2 and all(each.source.is_file for each in given)  # noqa: PLR2004 - both
    root = given[-1].source.name if given else ""
    named = reading.name or (job_name(_placed(given[-1], folder), root) if single else None)
    exact = dataclasses.replace(reading, name=named)
    before, after = _side(sources["base"], root, exact), _side(sources["head"], root, exact)
    if reading.run_programs and reading.stack is not None and before.is_read and after.is_read:
        after = dataclasses.replace(after, notices=(*after.notices, *_unknown_stack(given, reading.stack)))
    return before, after


def opened(spec: str, other: str, folder: Path) -> Source:
    """The source behind an argument: an existing path, else a revision.

    A revision without a path is read where the other side lies, when that is in the same repository, and is empty
    where it lacks the other's path.

    Raises:
        SourceError: the argument is neither.
    """
    path = folder / spec
    if path.exists():
        return OnDisk(path)
    return git.revision(spec, folder, _place_in_repository(other, folder))


_NOWHERE: Final = "neither side has this path. Look with: git ls-tree REVISION"


def _place_in_repository(spec: str, folder: Path) -> str:
    path = folder / spec
    if not path.exists():
        return git.normal(spec.partition(":")[2])
    top = git.repository(path if path.is_dir() else path.parent)
    place = path.resolve().relative_to(top.resolve()) if top else Path()
    return "" if place == Path() else place.as_posix()


def _opened(side: SideName, spec: str, other: str, folder: Path) -> Given | SideFault:
    try:
        return Given(side, spec, opened(spec, other, folder))
    except SourceError as error:
        return SideFault(side, spec, str(error))


def _placed(given: Given, folder: Path) -> str:
    """The whole path of a file, so that `job.yaml` finds its folder."""
    if isinstance(given.source, OnDisk):
        return (folder / given.spec).resolve().as_posix()
    return f"{folder.resolve().as_posix()}/{getattr(given.source, 'path', given.source.name)}"


def _side(given: Given | SideFault, root: str, reading: Reading) -> Side:
    if isinstance(given, SideFault):
        return Side((), (given,), is_read=False)
    found: list[Job | SideFault] = []
    package: str | None = None
    notices: tuple[str, ...] = ()
    is_read = True
    try:
        package = pinned_package(given.source)
        found.extend(_declared(given, root, reading.name))
        if reading.run_programs:
            programs = list(program_jobs(given.side, given.source, reading.stack))
            found = [*(each for each in found if not _is_read_by(programs, each)), *programs]
        else:
            notices = _not_run(given)
    except SourceError as error:
        found, is_read = [SideFault(given.side, given.spec, str(error))], False
    jobs = tuple(each for each in found if isinstance(each, Job))
    faults = tuple(each for each in found if isinstance(each, SideFault))
    return Side(jobs, faults, package, notices, given.source.is_file, is_read)


def _is_read_by(programs: Sequence[Job | SideFault], file: Job | SideFault) -> bool:
    """Whether a file became the job of that name of a program in the same folder or above."""
    return any(
        isinstance(program, Job)
        and isinstance(file, Job)
        and program.name == file.name
        and PurePosixPath(file.path).is_relative_to(PurePosixPath(program.path).parent)
        for program in programs
    )


def _not_run(given: Given) -> tuple[str, ...]:
    programs = program_files(given.source)
    if not programs:
        return ()
    return (f"{given.side}: {len(programs)} Pulumi programs were not looked into; --run-programs executes them.",)


def _unknown_stack(given: Sequence[Given], stack: str) -> tuple[str, ...]:
    """That the stack may be misspelt: no program has a file of its config, and some have one of another stack."""
    known = sorted({name for each in given for name in stacks(each.source)})
    if not known or stack in known:
        return ()
    notice = (
        f"--stack {stack}: there is no Pulumi.{stack}.yaml, so the programs ran without a stack's config. There are "
        f"files of these stacks: {', '.join(known)}."
    )
    return (notice,)


def _declared(given: Given, root: str, name: str | None) -> Iterator[Job | SideFault]:
    for path, content in given.source.files(may_declare):
        if given.source.is_file or declares(path, content):
            job = name or job_name(path, root)
            try:
                yield Job.declared(job, path, _with_code(given.source, path, config_of(content)))
            except ConfigError as error:
                yield from (SideFault(given.side, path, str(fault), job) for fault in error.faults)


def _with_code(source: Source, path: str, config: JobConfig) -> JobConfig:
    """The config of a file of a side, with that side's files of its `workdir`.

    Raises:
        ConfigError: the folder cannot be read, or does not fit.
    """
    if config.workdir is None or config.workdir.path is None:
        return config
    try:
        with source.beside(path, config.workdir.path) as folder:
            return with_workdir(config, folder)
    except SourceError as error:
        raise ConfigError([Fault("workdir.path", str(error))]) from None
