"""A real Pulumi engine with the stand-in provider, for programs that are no tests."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.engine.engine import Engine, Stack
from tests.engine.provider import KubernetesProvider, serving


@contextlib.contextmanager
def empty_stack(provider: KubernetesProvider | None = None) -> Iterator[Stack]:
    """A new, empty stack on an engine of its own; a program without an engine ends with the way to get one."""
    pulumi = shutil.which("pulumi", path=Path(sys.executable).parent) or shutil.which("pulumi")
    if pulumi is None:
        sys.exit("No Pulumi engine here. `make setup` tries to get one.")
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(provider or KubernetesProvider()) as providers,
        Engine.started(Path(pulumi), Path(folder), providers) as engine,
    ):
        yield engine.stack()
