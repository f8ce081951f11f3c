"""The program on each language's page makes the job that it says, where the language's host and tools can be had."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.engine.engine import Engine
from tests.engine.plugin import installed
from tests.languages.hosts import environ, host, write_sdk
from tests.package_schema import package_schema
from tools.run import ROOT, needed, output

NODE_SDK = "^3.142.0"
"""Where one machine's newest is older than what the page's users have."""


@pytest.fixture(scope="module")
def schema(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package's schema in a file, and the plugin where the engine finds it."""
    installed(engine.home)
    file = tmp_path_factory.mktemp("schema") / "schema.json"
    file.write_text(package_schema())
    return file


def program(page: str, fence: str) -> str:
    """The only block of its kind on a page."""
    text = (ROOT / f"docs/{page}.md").read_text()
    (block,) = re.findall(rf"^```{fence}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return str(block)


def previewed(folder: Path, variables: Mapping[str, str], cli: Path) -> dict[str, Any]:
    """The inputs of what a preview of the project in a folder would make, by their kinds."""
    for command in (["stack", "init", folder.parent.name], ["preview", "--json"]):
        done = subprocess.run(
            [cli, *command, "--non-interactive"], cwd=folder, env=variables, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    steps = json.loads(done.stdout)["steps"]
    return {step["newState"]["type"].rpartition(":")[2]: step["newState"].get("inputs", {}) for step in steps}


def says_the_job(made: dict[str, Any]) -> None:
    """The job of every page."""
    spec = made["PyTorchJob"]["spec"]
    container = spec["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]

    assert (spec["elasticPolicy"]["minReplicas"], spec["elasticPolicy"]["maxReplicas"]) == (2, 4)
    assert container["image"] == "registry.example.com/digits:1"
    assert container["resources"]["requests"]["memory"] == "4Gi"


def project(folder: Path, runtime: str, files: Mapping[str, str]) -> Path:
    """A project in a folder of its own."""
    (folder / "project").mkdir()
    for name, text in {"Pulumi.yaml": f"name: digits\nruntime: {runtime}\n", **files}.items():
        (folder / "project" / name).write_text(text)
    return folder / "project"


def test_typescript(engine: Engine, pulumi_cli: Path, schema: Path, tmp_path: Path) -> None:
    """The compiler takes the page's program with the SDK that the generator makes, and the host runs it."""
    variables = environ(engine, pulumi_cli, host("nodejs", pulumi_cli))
    npm = shutil.which("npm") or pytest.skip("no npm on PATH")
    needs = {"@pulumi/pulumi": NODE_SDK, "@pulumi/elastic-infra": "file:sdks/elastic-infra", "typescript": "^5"}
    files = {"package.json": json.dumps({"name": "digits", "main": "index.ts", "dependencies": needs})}
    made = project(tmp_path, "nodejs", {**files, "index.ts": program("typescript", "ts")})
    (tmp_path / "generator").mkdir()
    write_sdk("nodejs", schema, made / "sdks/elastic-infra", tmp_path / "generator")
    output([npm, "install", "--no-audit", "--no-fund", "--silent"], folder=made, limit_seconds=600)
    output([made / "node_modules/.bin/tsc", "--noEmit", "--strict", "--skipLibCheck", "index.ts"], folder=made)

    says_the_job(previewed(made, variables, pulumi_cli))


def test_go(engine: Engine, pulumi_cli: Path, schema: Path, tmp_path: Path) -> None:
    """The page's program compiles against the SDK that the generator makes, and the host runs it."""
    variables = {**environ(engine, pulumi_cli, host("go", pulumi_cli)), "GOFLAGS": "-mod=mod"}
    go = needed("go", "The page's program is compiled.")
    pins = {name: (ROOT / "tools/pulumi" / name).read_text() for name in ("go.mod", "go.sum")}
    made = project(tmp_path, "go", {"main.go": program("go", "go"), **pins})
    (tmp_path / "generator").mkdir()
    write_sdk("go", schema, made / "sdks/elastic-infra", tmp_path / "generator")
    (module,) = re.findall(r"^module (\S+)", (made / "sdks/elastic-infra/go.mod").read_text(), re.MULTILINE)
    output([go, "mod", "edit", f"-replace={module}=./sdks/elastic-infra", f"-require={module}@v0.0.0"], folder=made)

    says_the_job(previewed(made, variables, pulumi_cli))


def test_yaml(engine: Engine, pulumi_cli: Path, schema: Path, tmp_path: Path) -> None:
    """The host reads types from the plugin itself; an SDK is not needed."""
    variables = environ(engine, pulumi_cli, host("yaml", pulumi_cli))
    assert schema.exists()
    made = project(tmp_path, "yaml", {"Pulumi.yaml": program("yaml", "yaml")})

    says_the_job(previewed(made, variables, pulumi_cli))
