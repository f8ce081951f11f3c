"""Progress bars of workers whose output is teed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.frameworks.conftest import SCRIPTS
from tests.frameworks.test_frameworks import ELASTICRUN, TORCHRUN
from tests.launcher.launched import Launched

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(300)]


def shown(launch: Launched, rank: int) -> list[int]:
    """The percentages of a worker's bar so far, in their order."""
    return [int(found) for found in re.findall(rf"\[default{rank}\]:\s*(\d+)%\|", launch.output)]


@pytest.mark.parametrize("module", [TORCHRUN, ELASTICRUN], ids=["torchrun", "elasticrun"])
def test_a_bar_moves_while_its_worker_runs(module: str, tmp_path: Path) -> None:
    """A bar of tqdm is drawn anew by carriage returns: each is shown when it is drawn, not when the bar is full."""
    go = tmp_path / "go"
    options = ("--standalone", "--nproc-per-node", "2", "--tee", "3", "--log-dir", str(tmp_path / "logs"))
    launch = Launched(tmp_path, *options, str(SCRIPTS / "progress_bar.py"), str(go), module=module)
    try:
        launch.wait_for(lambda: all(25 in shown(launch, rank) for rank in (0, 1)), "a quarter of both bars")
        assert not any(100 in shown(launch, rank) for rank in (0, 1)), launch.output
        go.touch()

        assert launch.wait() == 0, launch.output
        for rank in (0, 1):
            assert shown(launch, rank) == sorted(shown(launch, rank)), launch.output
            assert shown(launch, rank)[-1] == 100, launch.output
    finally:
        launch.end()
