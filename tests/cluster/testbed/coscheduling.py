"""The scheduler of scheduler-plugins with coscheduling, beside the testbed's own scheduler."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from elastic_infra.config.placement import GANG_SCHEDULERS
from tests.cluster import kube
from tests.cluster.testbed import controllers, programs
from tests.cluster.testbed.layout import Testbed
from tools import build, modules

TOOL, PROGRAM, MODULE = "scheduler-plugins", "scheduler", "sigs.k8s.io/scheduler-plugins"
CRD = "config/crd/bases/scheduling.x-k8s.io_podgroups.yaml"


@contextmanager
def running(root: Path, api: kube.Kube) -> Iterator[None]:
    """It runs in the testbed meanwhile.

    Raises:
        MissingProgramError: it is not built.
    """
    program = programs.built(PROGRAM)
    controllers.define(build.module_folder(modules.HERE / TOOL, MODULE, build.go_program()) / CRD, api)
    file = root / "coscheduling.json"
    file.write_text(json.dumps(_settings(Testbed.read(root))))
    log = root / "logs" / "coscheduling.log"
    process = controllers.started(root, log, program, f"--config={file}", "--secure-port=0")
    try:
        yield
        assert process.poll() is None, f"{PROGRAM} ended: {log.read_text(errors='replace')[-2000:]}"
    finally:
        process.terminate()
        process.wait()


def _settings(testbed: Testbed) -> dict[str, object]:
    """As its chart has them: https://github.com/kubernetes-sigs/scheduler-plugins/tree/v0.33.5/manifests/install."""
    plugins = {
        "multiPoint": {"enabled": [{"name": "Coscheduling"}]},
        "queueSort": {"enabled": [{"name": "Coscheduling"}], "disabled": [{"name": "*"}]},
    }
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(testbed.kubeconfig)},
        "profiles": [
            {
                "schedulerName": GANG_SCHEDULERS["coscheduling"],
                "plugins": plugins,
                "pluginConfig": [{"name": "Coscheduling", "args": {"permitWaitingTimeSeconds": 5}}],
            }
        ],
    }
