"""Accounts of a namespace with the Roles that the documentation has, which run the commands of `elastic-infra`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.cluster import Namespace

PAGE = Path(__file__).parents[2] / "docs" / "rbac.md"


@dataclass(frozen=True)
class Result:
    """What one command came to."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Account:
    """An account of the namespace that has one Role of the page."""

    space: Namespace
    kubeconfig: Path

    def run(self, *arguments: str) -> Result:
        """Run a command of `elastic-infra` as this account."""
        command = self.command(*arguments)
        done = subprocess.run(command, env=self.environ(), capture_output=True, text=True, timeout=300, check=False)
        return Result(done.returncode, done.stdout, done.stderr)

    def command(self, *arguments: str) -> tuple[str, ...]:
        """The command line that asks this account's cluster for a job."""
        where = ("--namespace", self.space.name, "--kubeconfig", str(self.kubeconfig))
        return sys.executable, "-m", "elastic_infra.cli", *arguments, *where

    def environ(self) -> dict[str, str]:
        """With the cluster's own kubectl, and no kubeconfig but the one that is given."""
        path = os.pathsep.join([str(Path(self.space.cluster.kubectl).parent), os.environ["PATH"]])
        return {**os.environ, "PATH": path, "KUBECONFIG": os.devnull}


def roles() -> dict[str, dict[str, Any]]:
    """The Roles that the page shows, by name."""
    blocks = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    found = [each for block in blocks for each in yaml.safe_load_all(block)]
    return {each["metadata"]["name"]: each for each in found if each["kind"] == "Role"}


def account(space: Namespace, name: str, role: Mapping[str, Any] | None, folder: Path) -> Account:
    """A service account with this Role."""
    space.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}})
    if role is not None:
        space.apply({**role, "metadata": {"name": name}})
        binding = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": name}}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
        space.apply({**binding, "roleRef": reference, "subjects": [{"kind": "ServiceAccount", "name": name}]})
    token = space.cluster.run("-n", space.name, "create", "token", name).strip()
    config = json.loads(space.cluster.run("config", "view", "--raw", "--flatten", "-o", "json"))
    kubeconfig = folder / f"{name}.json"
    kubeconfig.write_text(
        json.dumps({**config, "users": [{**each, "user": {"token": token}} for each in config["users"]]})
    )
    return Account(space, kubeconfig)
