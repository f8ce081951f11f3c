"""One engine for all tests here; without a Pulumi CLI they are skipped, and say so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.engine import Engine, Stack
from tests.engine.provider import KubernetesProvider, serving

STATE_AT_THE_END = {"PULUMI_SKIP_CHECKPOINTS": "true", "PULUMI_EXPERIMENTAL": "true"}
"""Have the engine write the state once an operation, not once a resource, for which it wants the second variable."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.engine)


@pytest.fixture(scope="session")
def provider() -> KubernetesProvider:
    """What takes the place of the kubernetes one, for tests that have an operation fail."""
    return KubernetesProvider()


@pytest.fixture(scope="session")
def engine(
    pulumi_cli: Path, tmp_path_factory: pytest.TempPathFactory, provider: KubernetesProvider
) -> Iterator[Engine]:
    """A real engine with the test-only provider."""
    folder = tmp_path_factory.mktemp("engine")
    with serving(provider) as providers, Engine.started(pulumi_cli, folder, providers) as engine:
        yield Engine(folder, {**engine.environ, **STATE_AT_THE_END})


@pytest.fixture
def stack(engine: Engine) -> Stack:
    """A new, empty stack."""
    return engine.stack()


@pytest.fixture(scope="session")
def scratch(engine: Engine) -> Stack:
    """An empty stack that stays empty: for previews and for what fails."""
    return engine.stack()
