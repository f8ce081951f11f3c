"""Pulumi's language hosts: those beside the CLI, else the newest that `make tools` can build."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.engine.engine import Engine
from tools import build, modules
from tools.run import ROOT, SetupError, output


def host(language: str, cli: Path) -> Path:
    """The host's program; the test is skipped where there is none."""
    name = f"pulumi-language-{language}"
    if found := shutil.which(name, path=cli.parent) or shutil.which(name):
        return Path(found)
    try:
        return build.program_path(name, modules.cache_folder(os.environ, Path.home()), build.go_program())
    except SetupError as error:
        pytest.skip(f"no {name}: {error}")


def current(older: Path, folder: Path, flags: Sequence[str] = ()) -> Path:
    """A host of the same name in this folder, which answers as one of the CLI's own time.

    Args:
        flags: a plugin's options, which old hosts take as flags of their own and the CLI no longer passes.
    """
    program = folder / older.name
    command = shlex.join([sys.executable, str(Path(__file__).with_name("current_host.py")), str(older), *flags])
    program.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    program.chmod(0o755)
    return program


def environ(engine: Engine, cli: Path, *programs: Path) -> Mapping[str, str]:
    """Variables for the CLI with these programs and the CLI first on PATH, and a backend in files."""
    path = os.pathsep.join([*(str(program.parent) for program in programs), str(cli.parent), os.environ["PATH"]])
    backend = f"file://{engine.home.parent / 'state'}"
    return {**os.environ, **engine.environ, "PATH": path, "PULUMI_BACKEND_URL": backend, "NO_COLOR": "1"}


def write_sdk(language: str, schema: Path, folder: Path, scratch: Path) -> None:
    """The package's SDK, for a host that is too old to make one; the test is skipped where there is no Go.

    Args:
        scratch: an empty folder.
    """
    try:
        go = build.go_program()
    except SetupError as error:
        pytest.skip(f"no generator of SDKs: {error}")
    for file in (ROOT / "tools/pulumi/go.mod", ROOT / "tools/pulumi/go.sum", Path(__file__).parent / "sdks/main.go"):
        shutil.copy(file, scratch)
    output([go, "run", "-mod=mod", "-trimpath", ".", language, schema, folder], folder=scratch, limit_seconds=600)
