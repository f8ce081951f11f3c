"""What every test may ask for: a Pulumi engine, the operator's CRD. Each is there or skips with its reason."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tools import build, setup
from tools.run import SetupError

hypothesis.settings.register_profile(
    "repeatable",
    derandomize=True,  # the same examples every time: a test that fails one time in fifty is a bug
    database=None,
    deadline=None,  # a busy machine is no fault of the code
    max_examples=100,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=2000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


@pytest.fixture(scope="session")
def pulumi_cli() -> Path:
    """The Pulumi engine: on PATH, or where set-up put it."""
    if found := shutil.which("pulumi") or shutil.which("pulumi", path=setup.VENV / "bin"):
        return Path(found)
    why = setup.read_record(setup.RECORD).missed.get("pulumi", "`make setup` gets one")
    pytest.skip(f"no Pulumi engine: {why}")


@pytest.fixture(scope="session")
def pytorchjob_crd() -> dict[str, Any]:
    """The PyTorchJob CRD of the pinned training operator, read from its own Go module."""
    import yaml

    try:
        path = build.crd_path(build.go_program())
    except SetupError as error:
        pytest.skip(f"no CRD of the training operator: {error}")
    crd: dict[str, Any] = yaml.safe_load(path.read_text())
    return crd
