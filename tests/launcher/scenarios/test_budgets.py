"""What failures cost, with real workers: the number of times they were started before the job ended."""

from __future__ import annotations

import pathlib

import pytest

from tests.launcher.launched import BEHAVE, Launched

pytestmark = [pytest.mark.launcher, pytest.mark.timeout(300)]

WINDOW = {"ELASTIC_INFRA_STARTUP_WINDOW_SECONDS": "600"}
CASES = [
    ("ten failures, each after progress", "fail_one_step_further", {}, 0, 11),
    ("the same step", "fail_at_one_step", {}, 93, 3),
    ("an import, with a start-up window", "fail_to_import", WINDOW, 1, 2),
    ("an import, without the window", "fail_to_import", {}, 1, 4),
    ("a death by signal, with a start-up window", "kill_itself", WINDOW, 1, 4),
]


@pytest.mark.parametrize(("case", "mode", "environ", "code", "starts"), CASES, ids=[case[0] for case in CASES])
def test_r8_the_budget(
    tmp_path: pathlib.Path, case: str, mode: str, environ: dict[str, str], code: int, starts: int
) -> None:
    """R8: with three restarts, progress resets the budget, the same step ends it at exactly three, a start at two."""
    cold = {"ELASTIC_INFRA_WARM_START": "0", **environ}
    launch = Launched(tmp_path, "--max-restarts", "3", str(BEHAVE), mode, environ=cold)
    try:
        assert launch.wait() == code, launch.output
        assert len(launch.journal("started")) == starts, case
    finally:
        launch.end()
