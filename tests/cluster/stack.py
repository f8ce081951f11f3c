"""A Pulumi stack with one `ElasticTrainingJob`, driven through the real engine against the cluster."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulumi

from elastic_infra import ElasticTrainingJob
from tests.cluster import jobs
from tests.engine import engine

PLUGIN = "pulumi-resource-kubernetes"
INSTALL_SECONDS = 60


@dataclass(frozen=True)
class JobStack:
    """A stack with one job. Verbs return the engine's operation for every object that is touched, by its role."""

    stack: engine.Stack
    job: str
    arm: jobs.Arm

    def up(self, settings: Mapping[str, Any]) -> dict[str, str]:
        """Run `up` with the job's config."""
        return self._touched(self.stack.up(self._program(settings)))

    def preview(self, settings: Mapping[str, Any]) -> dict[str, str]:
        """What `up` would do."""
        return self._touched(self.stack.preview(self._program(settings)))

    def refresh(self) -> None:
        """Reads what is live."""
        self._touched(self.stack.refresh())

    def destroy(self) -> None:
        """Destroy all resources of the stack."""
        self._touched(self.stack.destroy())

    def _program(self, settings: Mapping[str, Any]) -> Callable[[], None]:
        def program() -> None:
            options = pulumi.ResourceOptions(transforms=[_arm_transform(self.arm)])
            config: Any = settings  # a plain dict, validated inside
            ElasticTrainingJob(self.job, config, options)

        return program

    def _touched(self, outcome: engine.Outcome) -> dict[str, str]:
        assert not outcome.failed, outcome.text
        return {name.removeprefix(f"{self.job}-"): op for name, op in outcome.ops().items() if name != self.job}


def job_stack(pulumi_engine: engine.Engine, job: str, arm: jobs.Arm) -> JobStack:
    """A new stack for one job, whose resources end with their namespace."""
    return JobStack(pulumi_engine.stack(), job, arm)


def why_no_official_provider(program: Path, environ: Mapping[str, str]) -> str | None:
    """None when the engine finds, or can install, the official kubernetes provider."""
    if shutil.which(PLUGIN):
        return None
    try:
        done = subprocess.run(
            (str(program), "plugin", "install", "resource", "kubernetes"),
            cwd="/",
            env={**os.environ, **environ},
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"its download took longer than {INSTALL_SECONDS} s"
    return None if done.returncode == 0 else (done.stderr.strip().splitlines() or ["no word"])[-1]


def _arm_transform(arm: jobs.Arm) -> Any:
    def transform(args: pulumi.ResourceTransformArgs) -> pulumi.ResourceTransformResult | None:
        if arm == "ours" or args.type_.rpartition(":")[2] not in jobs.HAVE_PODS:
            return None
        plain = json.loads(json.dumps(dict(args.props)))
        return pulumi.ResourceTransformResult(jobs.with_arm(plain, arm), args.opts)

    return transform
