"""The library for scripts as a distribution of its own: alone, and beside the main package."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest

from tests.distribution import Environment, build
from tools.run import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SCRIPT = """
import torch
from torch.utils.data import DataLoader, TensorDataset
from elastic_infra.training import Elastic, ElasticSampler, ElasticState, Snapshots

def train(until):
    data = TensorDataset(torch.arange(12.0).reshape(12, 1))
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    sampler = ElasticSampler(data, global_batch=4)
    state = ElasticState("checkpoints", model=model, optimizer=optimizer, data=sampler)
    elastic = Elastic(state, DataLoader(data, batch_sampler=sampler), Snapshots(durable_steps=3))
    for step, micro in elastic.steps(until):
        with elastic.step():
            for (inputs,), sync in micro:
                with sync:
                    elastic.backward(model(inputs).pow(2).mean())
            optimizer.step()
            optimizer.zero_grad()
    return elastic

first, second = train(3), train(4)
print(first.finished, first.restored.source, second.finished, second.restored.source, second.restored.step)
"""


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """An environment without anything of ours."""
    return Environment.empty(tmp_path / "venv")


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the library alone."""
    return build("wheel", tmp_path_factory.mktemp("training"), ROOT / "distributions/training")


def site_packages(environment: Environment) -> Path:
    """The folder of an environment's packages."""
    (found,) = environment.folder.glob("lib/python*/site-packages")
    return found


def test_it_trains_alone(environment: Environment, training: Path, tmp_path: Path) -> None:
    """Three steps, and one more from their snapshot, in an environment that has torch and this wheel."""
    environment.install(training)
    version = environment.run("python", "-c", "import elastic_infra; print(elastic_infra.__version__)", folder=tmp_path)
    (site_packages(environment) / "with-torch.pth").write_text(sysconfig.get_path("purelib"))
    done = environment.run("python", "-W", "error:::elastic_infra", "-c", SCRIPT, folder=tmp_path)

    assert version.stdout.strip() == training.name.split("-")[1], version.stderr
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == "True nothing True disk 3"


def test_it_stands_beside_the_main_package(
    environment: Environment, training: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The main package's modules are imported while it is there; taking out either leaves the other whole."""
    main = build("wheel", tmp_path_factory.mktemp("main"))
    alone, both = (
        f"{site_packages(environment)}{part}/elastic_infra/training/__init__.py"
        for part in ("/elastic_infra_training", "")
    )

    def found() -> str:
        program = "import elastic_infra.training as t; print(t.__file__, t.Progress.__name__)"
        done = environment.run("python", "-c", program, folder=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()[0]

    environment.install(training)
    assert found() == alone
    environment.install(main)
    assert found() == both
    environment.uninstall("elastic-infra-training")
    assert found() == both
    environment.install(training)
    environment.uninstall("elastic-infra")
    assert found() == alone
