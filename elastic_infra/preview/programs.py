"""Jobs that Pulumi programs declare: each program runs under mocks, in a separate process without credentials.

This executes the code of both sides. The process gets no variable of this one's environment but PATH, an empty home,
and plain config only; it is no sandbox beyond that, so run it where the code under review may run.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

from elastic_infra.config import ConfigError, JobConfig
from elastic_infra.config.values import KnownLater
from elastic_infra.config.yaml_text import read_yaml
from elastic_infra.preview.job_files import may_declare
from elastic_infra.preview.model import Job, SideFault, SideName
from elastic_infra.preview.redaction import without_secrets
from elastic_infra.preview.sources import Source

PROJECT_FILE: Final = "Pulumi.yaml"
STACK_FILES: Final = "Pulumi.*.yaml"
TIMEOUT_SECONDS: Final = 120
"""A program that only declares resources needs a few seconds; most of it is importing."""

NO_STACK: Final = "preview"
"""Name of the stack where no file tells of one."""

ENCRYPTED: Final = "(secret-{})"
"""The replacement of an encrypted config value for a program, with a digest of what stands in the file."""

MAX_REASON: Final = 500


def program_files(source: Source) -> tuple[str, ...]:
    """Paths of the project files of Python programs in a side."""
    if source.is_file:
        return ()
    found = source.files(lambda path: may_declare(path) and PurePosixPath(path).name == PROJECT_FILE)
    return tuple(path for path, content in found if _is_python(_mapping(content)))


def program_jobs(side: SideName, source: Source, stack: str | None) -> Iterator[Job | SideFault]:
    """The jobs of every program of a side.

    Args:
        stack: the programs' stack, by name and config file; None takes the only one that has a file, if there is one.
    """
    paths = program_files(source)
    if not paths:
        return
    with source.folder() as folder:
        for path in paths:
            yield from _jobs(side, folder, path, stack)


def _jobs(side: SideName, folder: Path, path: str, stack: str | None) -> Iterator[Job | SideFault]:
    home = (folder / path).parent
    project = _mapping((folder / path).read_bytes())
    try:
        found = stack or only_stack(home)
        declared = run_program(home, project, found or NO_STACK, stack_config(home, project, found))
    except ProgramError as error:
        yield SideFault(side, path, str(error))
        return
    for name, config in declared:
        try:
            yield Job.declared(name, path, JobConfig.from_mapping(config), name)
        except ConfigError as error:
            yield from (SideFault(side, path, f"job {name}: {fault}", name) for fault in error.faults)


class ProgramError(ValueError):
    """A program did not reach its end."""


def run_program(
    home: Path, project: Mapping[str, Any], stack: str, config: Mapping[str, str]
) -> list[tuple[str, dict[str, Any]]]:
    """Name and config of every job that a program declares; what it prints is dropped.

    Raises:
        ProgramError: the program raised, exited, or did not end in time.
    """
    package = Path(__file__).parents[2]
    with tempfile.TemporaryDirectory(prefix="elastic-infra-") as place:
        result = Path(place, "jobs.json")
        order = {
            "package": str(package),
            "main": str(home / str(project.get("main", "."))),
            "project": str(project.get("name", "project")),
            "stack": stack,
            "late": _LATE,
            "config": dict(config),
            "result": str(result),
        }
        command = [sys.executable, "-I", "-B", str(Path(__file__).with_name("collector.py"))]
        _run(command, home, json.dumps(order), environment(Path(place)))
        try:
            return [(name, with_late(data)) for name, data in json.loads(result.read_text("utf-8"))]
        except (OSError, ValueError):
            message = "the program ended before its jobs were known (does it call sys.exit or os._exit?)."
            raise ProgramError(message) from None


_LATE: Final = {"elastic-infra": "known later"}
"""In place of a late value, between the two processes."""


def with_late(value: Any) -> Any:  # noqa: ANN401 - JSON
    """The collector's output, with its marks turned into late values, to which rules on text do not apply."""
    if isinstance(value, dict):
        if _LATE.items() <= value.items():
            return KnownLater(value["secret"])
        return {key: with_late(each) for key, each in value.items()}
    return [with_late(each) for each in value] if isinstance(value, list) else value


def environment(home: Path) -> dict[str, str]:
    """The environment of a program."""
    return {
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "PATH": os.environ.get("PATH", os.defpath),
        "TMPDIR": str(home),
    }


def _run(command: list[str], home: Path, order: str, environ: dict[str, str]) -> None:
    with subprocess.Popen(
        command,
        cwd=home,
        env=environ,
        text=True,
        errors="replace",
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            _, errors = process.communicate(order, timeout=TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            message = f"the program did not end within {TIMEOUT_SECONDS} seconds."
            raise ProgramError(message) from None
    if process.returncode:
        message = f"the program failed: {_reason(errors) or f'exit code {process.returncode}'}"
        raise ProgramError(message)


def _reason(errors: str) -> str:
    """The exception's own text, without the traceback above it."""
    lines = errors.strip().splitlines()
    last = max((i for i, line in enumerate(lines) if line.startswith("  ") and i + 1 < len(lines)), default=-1)
    text = " ".join(line.strip() for line in lines[last + 1 :])
    return without_secrets(text)[:MAX_REASON]


def only_stack(home: Path) -> str | None:
    """The stack that has a config file, where there is just one."""
    files = [path.name for path in home.glob(STACK_FILES)]
    return stack_of(files[0]) if len(files) == 1 else None


def stacks(source: Source) -> frozenset[str]:
    """The stacks with a config file beside a program of a side.

    Raises:
        SourceError: a file of the side cannot be read.
    """
    homes = {PurePosixPath(path).parent for path in program_files(source)}
    found = source.files(lambda path: may_declare(path) and PurePosixPath(path).match(STACK_FILES)) if homes else ()
    paths = [PurePosixPath(path) for path, _ in found]
    return frozenset(stack_of(path.name) for path in paths if path.parent in homes)


def stack_of(file: str) -> str:
    """The stack of a config file: `Pulumi.dev.yaml` is that of `dev`."""
    return file.removeprefix("Pulumi.").removesuffix(".yaml")


def stack_config(home: Path, project: Mapping[str, Any], stack: str | None) -> dict[str, str]:
    """The plain config of a stack, as Pulumi gives it to a program; encrypted values are not read."""
    name = str(project.get("name", "project"))
    declared = project.get("config") if isinstance(project.get("config"), Mapping) else {}
    defaults = {key: _default(value) for key, value in (declared or {}).items()}
    file = home / f"Pulumi.{stack}.yaml"
    given = _mapping(file.read_bytes()).get("config") if stack and file.is_file() else {}
    values = {**defaults, **(given if isinstance(given, Mapping) else {})}
    return {_qualified(name, key): _plain(value) for key, value in values.items() if value is not None}


def _default(value: object) -> object:
    return value.get("value", value.get("default")) if isinstance(value, Mapping) else value


def _qualified(project: str, key: str) -> str:
    return key if ":" in key else f"{project}:{key}"


def _plain(value: object) -> str:
    plain = _without_encrypted(value)
    return plain if isinstance(plain, str) else json.dumps(plain)


def _without_encrypted(value: Any) -> Any:  # noqa: ANN401 - JSON
    """The value with the replacement in the place of each encrypted one, as deep as it may lie."""
    if isinstance(value, Mapping):
        if set(value) == {"secure"}:
            return ENCRYPTED.format(hashlib.sha256(str(value["secure"]).encode()).hexdigest()[:12])
        return {key: _without_encrypted(each) for key, each in value.items()}
    return [_without_encrypted(each) for each in value] if isinstance(value, list) else value


def _is_python(project: Mapping[str, Any]) -> bool:
    runtime = project.get("runtime")
    return (runtime.get("name") if isinstance(runtime, Mapping) else runtime) == "python"


def _mapping(content: bytes) -> Mapping[str, Any]:
    try:
        data = read_yaml(content.decode("utf-8-sig"))
    except ValueError:
        return {}
    return data if isinstance(data, Mapping) else {}
