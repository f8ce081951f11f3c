"""Fixtures for all tests: a Pulumi engine, the operator's CRD. Without one of them a test is skipped, with the reason.

And how tests run: side by side where pytest-xdist is asked for (`make test` does), with their own TMPDIR.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis.internal import constants_ast
from hypothesis.internal.conjecture import providers

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
hypothesis.settings.register_profile(
    "brief", hypothesis.settings.get_profile("repeatable"), max_examples=20
)  # where the same tests run on another Python too
hypothesis.settings.register_profile("explore", deadline=None, max_examples=2000)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "repeatable")
hypothesis.settings.load_profile(PROFILE)
if PROFILE != "explore":
    # Else the examples hold constants of the modules that this process has imported by then, so that they depend on
    # the tests before: https://hypothesis.readthedocs.io/en/latest/changelog.html#v6-131-1
    providers._get_local_constants = constants_ast.Constants


LEFT_BY_TORCH = "torchelastic_*"
"""Folders that torchrun and the launcher leave where no folder for logs is given."""
OUTSIDE = pytest.StashKey[Path]()
"""The TMPDIR that the session was given."""
LEFT_BEFORE = pytest.StashKey[frozenset[Path]]()
LEFT = pytest.StashKey[list[str]]()
"""What tests left there."""


def pytest_xdist_auto_num_workers() -> int:
    """Three workers for two processors: many tests wait for processes most of the time; four gain nothing."""
    processors = len(os.sched_getaffinity(0))
    return processors + (processors + 1) // 2


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Give tests, and all that they start, a TMPDIR that goes with the session."""
    if hasattr(config, "workerinput"):
        return  # pytest-xdist's workers have their controller's
    outside = Path(tempfile.gettempdir())
    config.stash[OUTSIDE] = outside
    config.stash[LEFT_BEFORE] = frozenset(outside.glob(LEFT_BY_TORCH))
    inside = tempfile.mkdtemp(prefix="t-")  # short: paths of Unix sockets below it must fit into 107 bytes
    os.environ["TMPDIR"] = tempfile.tempdir = inside
    if not config.option.basetemp:
        config.option.basetemp = str(Path(inside, "p"))


def pytest_report_header(config: pytest.Config) -> str:
    """Where to look after a failure."""
    return f"TMPDIR of the tests: {os.environ['TMPDIR']}" if OUTSIDE in config.stash else ""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests that may take longest, and keep those on one worker that share their module's set-up."""
    items.sort(key=_patience, reverse=True)
    for item in items:
        fixtures = item._fixtureinfo.name2fixturedefs if isinstance(item, pytest.Function) else {}
        if any(found[-1].scope in {"class", "module"} for found in fixtures.values()):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))


def _patience(item: pytest.Item) -> float:
    """The seconds that a test asks for; 0 for one that is content with what every test gets."""
    marker = item.get_closest_marker("timeout")
    return float(marker.args[0]) if marker is not None else 0.0


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Delete the session's TMPDIR, unless a test failed; fail where a test left something outside of it.

    That is looked for in CI only, where nothing else runs beside the tests.
    """
    stash = session.config.stash
    if OUTSIDE not in stash:
        return
    if exitstatus == pytest.ExitCode.OK and not _has_mounts(os.environ["TMPDIR"]):
        shutil.rmtree(os.environ["TMPDIR"], ignore_errors=True)
    now = stash[OUTSIDE].glob(LEFT_BY_TORCH)
    stash[LEFT] = sorted(path.name for path in now if path not in stash[LEFT_BEFORE]) if os.environ.get("CI") else []
    if stash[LEFT]:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _has_mounts(folder: str) -> bool:
    """Whether something is mounted below it: what is deleted there would be deleted where it comes from."""
    places = (line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines())
    return any(place.startswith(f"{folder}/") for place in places)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Name what was left, before pytest's closing line."""
    if left := config.stash.get(LEFT, []):
        terminalreporter.write_line(f"ERROR: tests left in {config.stash[OUTSIDE]}: {', '.join(left)}", red=True)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Give this process its own TMPDIR back, for what ends after the tests."""
    if OUTSIDE in config.stash:
        os.environ["TMPDIR"] = tempfile.tempdir = str(config.stash[OUTSIDE])


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
