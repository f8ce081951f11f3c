"""Every test here starts language hosts, package managers and an engine: minutes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.engine import Engine
from tests.engine.provider import KubernetesProvider, serving


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            for marker in (pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(900)):
                item.add_marker(marker)


@pytest.fixture(scope="module")
def engine(pulumi_cli: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """A real engine with the test-only provider, its folder a module's own: plugins are installed into it."""
    with (
        serving(KubernetesProvider()) as providers,
        Engine.started(pulumi_cli, tmp_path_factory.mktemp("engine"), providers) as engine,
    ):
        yield engine
