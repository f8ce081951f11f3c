"""Which accelerators workers see."""

from __future__ import annotations

import pytest

from elastic_infra.launcher.command_line import options, plan
from elastic_infra.launcher.command_line.options import OptionsError
from elastic_infra.launcher.command_line.visible_devices import listed
from elastic_infra.launcher.settings import LauncherSettings


def test_hips_own_variable_leads() -> None:
    """As in torchrun; spaces count for nothing."""
    assert listed({}) == ("CUDA_VISIBLE_DEVICES", None)
    assert listed({"CUDA_VISIBLE_DEVICES": "5, 7", "HIP_VISIBLE_DEVICES": ""}) == ("CUDA_VISIBLE_DEVICES", ["5", "7"])
    assert listed({"CUDA_VISIBLE_DEVICES": "5", "HIP_VISIBLE_DEVICES": "1"}) == ("HIP_VISIBLE_DEVICES", ["1"])


@pytest.mark.parametrize("name", ["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"])
def test_each_worker_needs_a_device_of_its_own(name: str) -> None:
    """It is refused before any worker starts: no further try could help."""
    given = options.parse(["--virtual-local-rank", "train.py"], {})
    for workers, environ in ((2, {}), (2, {name: "4,5"})):
        plan.resolve(given, LauncherSettings.from_env({}), environ, nproc_per_node=workers, new_run_id="fresh")

    with pytest.raises(OptionsError, match=f"3 workers need a device each, and {name} has 2"):
        plan.resolve(given, LauncherSettings.from_env({}), {name: "4,5"}, nproc_per_node=3, new_run_id="fresh")
