"""A Pulumi stack with one `ElasticTrainingJob`, driven through the real engine against the cluster."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulumi
from pulumi import automation

from elastic_infra import ElasticTrainingJob
from tests.cluster import jobs

PROJECT = "cluster-tests"
PLUGIN = "pulumi-resource-kubernetes"
INSTALL_SECONDS = 60


@dataclass(frozen=True)
class Engine:
    """How to run the engine: its program and its environment."""

    root: Path
    """Folder with `bin/pulumi`."""
    env: Mapping[str, str]

    @contextmanager
    def stack(self, name: str, job: str, folder: Path, arm: jobs.Arm) -> Iterator[Stack]:
        """A stack with one job, its state in `folder`; whatever it still holds is destroyed afterwards."""
        own = {"PULUMI_BACKEND_URL": f"file://{folder}", "PULUMI_CONFIG_PASSPHRASE": "", **self.env}
        holder: list[Mapping[str, Any]] = []

        def program() -> None:
            if holder:
                options = pulumi.ResourceOptions(transforms=[_arm_transform(arm)])
                ElasticTrainingJob(job, holder[0], options)  # type: ignore[arg-type]  # a plain dict, validated inside

        stack = automation.create_or_select_stack(
            stack_name=name,
            project_name=PROJECT,
            program=program,
            opts=automation.LocalWorkspaceOptions(
                env_vars=own,
                work_dir=str(folder),
                pulumi_command=automation.PulumiCommand(str(self.root), skip_version_check=True),
            ),
        )
        try:
            yield Stack(stack, holder)
        finally:
            stack.destroy(run_program=False)


@dataclass(frozen=True)
class Stack:
    """One stack. Each verb returns what it did, as the engine counts it."""

    stack: automation.Stack
    settings: list[Mapping[str, Any]]

    def up(self, settings: Mapping[str, Any]) -> dict[str, int]:
        """Deploys the job; returns operations on resources by kind, `same` left out."""
        self.settings[:] = [settings]
        done = self.stack.up().summary.resource_changes or {}
        return _without_same(done)

    def preview(self, settings: Mapping[str, Any]) -> dict[str, int]:
        """What `up` would do."""
        self.settings[:] = [settings]
        return _without_same(self.stack.preview().change_summary)

    def refresh(self) -> dict[str, int]:
        """Reads what is live."""
        return _without_same(self.stack.refresh().summary.resource_changes or {})

    def destroy(self) -> None:
        """Removes everything."""
        self.stack.destroy()


def official_provider(pulumi_program: Path, environ: Mapping[str, str]) -> str | None:
    """None when the engine has, or can install, the official kubernetes provider; else why not."""
    if shutil.which(PLUGIN, path=environ.get("PATH")):
        return None
    command = (str(pulumi_program), "plugin", "install", "resource", "kubernetes")
    try:
        done = subprocess.run(
            command,
            cwd=environ["PULUMI_HOME"],
            env=environ,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"its download took longer than {INSTALL_SECONDS} s"
    return None if done.returncode == 0 else (done.stderr.strip().splitlines() or ["no word"])[-1]


def _without_same(counts: Mapping[Any, int]) -> dict[str, int]:
    names = {getattr(kind, "value", kind): count for kind, count in counts.items()}
    return {name: count for name, count in names.items() if name != "same"}


def _arm_transform(arm: jobs.Arm) -> Any:
    def transform(args: pulumi.ResourceTransformArgs) -> pulumi.ResourceTransformResult | None:
        if arm == "ours" or not args.type_.endswith(":PyTorchJob"):
            return None
        plain = json.loads(json.dumps(dict(args.props)))
        return pulumi.ResourceTransformResult(jobs.with_torchrun(plain, arm), args.opts)

    return transform
