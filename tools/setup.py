"""Sets this checkout up: ``.venv`` from the lock, a Pulumi engine, the sources that tests read. Quick when done.

``python3 -m tools.setup`` does what is missing; with ``--again`` it also tries again what could not be had before.
A part that cannot be had is named in one line and the rest goes on; only the environment itself is indispensable.
Standard library only.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tools import build, modules, pulumi_cli, python_env
from tools.run import ROOT, Say, SetupError, alone, stopwatch

VENV: Final = ROOT / ".venv"
RECORD: Final = VENV / "setup.json"

MISSED: Final[Mapping[str, str]] = {
    "pulumi": "No Pulumi engine, so previews are left out and tests of it are skipped",
    "sources": "No sources of Kubernetes and of Kubeflow's operators, so tests against their schemas are skipped",
}
"""What a missing part means, by the part's name."""


@dataclasses.dataclass(frozen=True)
class Record:
    """What the last set-up left, kept in the environment itself."""

    interpreter: str = ""
    """The Python and the folder the environment was made for: scripts in it hold both."""
    lock: str = ""
    """Checksum of the lock files and of the project's metadata."""
    tools: str = ""
    """Checksum of the tools' module files."""
    missed: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Why a part could not be had, by the part's name."""


@dataclasses.dataclass(frozen=True)
class Steps:
    """What is left to do."""

    make: bool
    """Make the environment itself."""
    clear: bool
    """Remove what is in it first: it belongs to another Python or folder."""
    install: bool
    parts: tuple[str, ...]
    """Which of ``MISSED``'s parts to get."""

    @property
    def any(self) -> bool:
        """Whether there is anything to do."""
        return self.make or self.install or bool(self.parts)


def steps(last: Record, now: Record, *, environment: bool, again: bool) -> Steps:
    """What is to be done, given the last set-up, today's files, and whether an environment is there."""
    moved = bool(last.interpreter) and last.interpreter != now.interpreter
    make = moved or not environment
    changed = make or last.tools != now.tools
    parts = tuple(part for part in MISSED if changed or (again and part in last.missed))
    return Steps(make=make, clear=moved, install=make or last.lock != now.lock, parts=parts)


def record_now() -> Record:
    """Today's interpreter and checksums, nothing missed."""
    metadata, _, _ = (ROOT / "pyproject.toml").read_text().partition("\n[tool.")
    locks = [(ROOT / lock).read_text() for lock in (python_env.BOOTSTRAP_LOCK, python_env.LOCK)]
    tools = [
        (modules.HERE / tool / "go.sum").read_text()
        for tool in ("kubernetes", "pulumi", "trainer", "training-operator")
    ]
    version = ".".join(map(str, sys.version_info[:2]))
    return Record(interpreter=f"{version} {ROOT}", lock=_checksum([metadata, *locks]), tools=_checksum(tools))


def read_record(path: Path) -> Record:
    """The record of the last set-up; an empty one where there is none that can be read."""
    try:
        return Record(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return Record()


def set_up(todo: Steps, now: Record, say: Say) -> Record:
    """Do the steps, downloads beside builds; what cannot be had is in the record's ``missed``.

    Raises:
        SetupError: the environment cannot be made.
    """
    if todo.make:
        first = python_env.installer_here()
        say(f"python: making {VENV.name} by {first}")
        python_env.make(VENV, first, clear=todo.clear)
    with ThreadPoolExecutor() as pool:
        parts = {part: pool.submit(_PARTS[part], say) for part in todo.parts}
        if todo.install:
            say("python: installing the locked packages; torch is gigabytes, the first time takes minutes")
            python_env.install(VENV, say)
            say("python: installed")
    return dataclasses.replace(now, missed=_reasons(parts))


def _reasons(parts: Mapping[str, Future[None]]) -> dict[str, str]:
    errors = {part: future.exception() for part, future in parts.items()}
    unexpected = [error for error in errors.values() if error and not isinstance(error, SetupError)]
    if unexpected:
        raise unexpected[0]
    return {part: str(error) for part, error in errors.items() if error}


def _get_pulumi(say: Say) -> None:
    """Get an engine and put it, unless it is on PATH, into the environment's ``bin``, its language host beside it."""
    cache = modules.cache_folder(os.environ, Path.home())
    own = VENV / "bin"
    path = os.pathsep.join(folder for folder in os.get_exec_path() if Path(folder) != own)
    program = pulumi_cli.get(pulumi_cli.ways_here(cache, path, say), say)
    if str(program) != shutil.which("pulumi", path=path):
        _link(program, own)
        for helper in pulumi_cli.language_host(program, cache):
            _link(helper, own)


def _get_sources(say: Say) -> None:
    go = build.go_program()
    build.crd_path(go)
    build.module_folder(modules.HERE / "kubernetes", build.KUBERNETES_MODULE, go)
    build.module_folder(modules.HERE / "trainer", build.TRAINER_MODULE, go)
    say("sources: Kubernetes, the training operator and Trainer are there")


_PARTS: Final = {"pulumi": _get_pulumi, "sources": _get_sources}


def _link(program: Path, folder: Path) -> None:
    link = folder / program.name
    link.unlink(missing_ok=True)
    link.symlink_to(program)


def _checksum(texts: list[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def _set_up_here(*, again: bool) -> Record:
    last, now = read_record(RECORD), record_now()
    todo = steps(last, now, environment=python_env.is_there(VENV), again=again)
    if not todo.any:
        return last
    done = set_up(todo, now, stopwatch())
    kept = {part: why for part, why in last.missed.items() if part not in todo.parts}
    done = dataclasses.replace(done, missed={**kept, **done.missed})
    RECORD.write_text(json.dumps(dataclasses.asdict(done), indent=2))
    return done


def main() -> int:
    """Set up; 0 when the environment is there, 1 with the reason when not."""
    parser = argparse.ArgumentParser(prog="python3 -m tools.setup", description="Sets this checkout up.")
    parser.add_argument("--again", action="store_true", help="try again what could not be had before")
    arguments = parser.parse_args()
    try:
        with alone(ROOT):  # two set-ups of one checkout
            done = _set_up_here(again=arguments.again)
    except SetupError as error:
        print(f"Set-up failed: {error}", file=sys.stderr)
        return 1
    for part, why in done.missed.items():
        print(f"{MISSED[part]} ({why}). `make setup` tries again.", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
