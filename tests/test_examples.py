"""Every example is complete, valid and runs; what it becomes is in its `expected.yaml`."""

from __future__ import annotations

import base64
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from elastic_infra import JobConfig, render
from elastic_infra.cli.documents import text
from elastic_infra.config.load import load, read_mapping
from elastic_infra.config.schema import json_schema
from elastic_infra.manifests.launcher import archive, digest, whole_digest
from elastic_infra.preview import programs
from tests import kubernetes_schema
from tests.cli import elastic_infra
from tests.golden import assert_golden

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = sorted(path.parent for path in ROOT.glob("examples/*/Pulumi.yaml"))
FILES = [folder for folder in EXAMPLES if (folder / "job.yaml").exists()]

each_example = pytest.mark.parametrize("folder", EXAMPLES, ids=lambda folder: folder.name)
each_file = pytest.mark.parametrize("folder", FILES, ids=lambda folder: folder.name)


def declared(folder: Path) -> list[tuple[str, JobConfig]]:
    """Name and config of each job that the example's program declares, when it runs with its stack's config."""
    project = yaml.safe_load((folder / "Pulumi.yaml").read_text())
    found = programs.run_program(folder, project, "dev", programs.stack_config(folder, project, "dev"))
    return [(name, JobConfig.from_mapping(data)) for name, data in found]


def documents(name: str, config: JobConfig) -> str:
    """The job as YAML, with placeholders for what changes with the launcher's sources."""
    rendered = text(render(name, config)).replace(base64.b64encode(archive()).decode(), "<launcher>")
    for found in (whole_digest(), digest()):
        rendered = re.sub(f"'?{found}'?", "<launcher hash>", rendered)  # YAML quotes one that could be a number
    return re.sub(rf"\b{name}-[0-9a-f]{{8}}\b", f"{name}-<workload>", rendered)


def strings(value: Any) -> Iterator[str]:
    """Every text in a document."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            yield from strings(part)
    elif isinstance(value, str):
        yield value


@each_example
def test_expected_yaml_is_what_the_program_declares(folder: Path) -> None:
    """A program runs under Pulumi's mocks, and its jobs become exactly these objects."""
    jobs = declared(folder)

    assert jobs
    assert_golden(folder / "expected.yaml", "".join(documents(name, config) for name, config in jobs))


@each_file
def test_job_file_is_the_programs_job(folder: Path) -> None:
    """Where an example has a program and a job file, both declare the same job."""
    [(name, config)] = declared(folder)

    assert name == folder.name
    assert documents(name, config) == documents(name, load(folder / "job.yaml"))


@each_file
def test_job_file_keeps_the_json_schema(folder: Path) -> None:
    """An editor with the schema shows no fault in a valid job, shorthands included."""
    jsonschema.Draft202012Validator(json_schema()).validate(read_mapping(folder / "job.yaml"))


def test_a_table_of_prices_has_those_of_the_job_beside_it() -> None:
    """`explain` takes the table, and says what the job costs on demand and on spot nodes."""
    tables = sorted(ROOT.glob("examples/*/prices.yaml"))

    assert tables
    for table in tables:
        done = elastic_infra("explain", table.with_name("job.yaml"), "--prices", table)
        assert done.code == 0, done.err
        assert re.findall(r"^ (on demand|spot) +[\d.]+ ", done.out, re.MULTILINE) == ["on demand", "spot"]


def test_the_claims_of_a_job_are_those_of_the_template_beside_it() -> None:
    """The API server would take the template, and the job's pods claim by it, in its namespace."""
    folder = ROOT / "examples/devices"
    template, config = yaml.safe_load((folder / "claims.yaml").read_text()), load(folder / "job.yaml")
    try:
        faults = kubernetes_schema.faults(template)
    except kubernetes_schema.SchemasMissing as error:
        pytest.skip(str(error))

    assert faults == []
    assert [claim.template for claim in config.resources.claims] == [template["metadata"]["name"]]
    assert config.namespace == template["metadata"]["namespace"]


@each_example
def test_example_is_complete(folder: Path) -> None:
    """Program, project and README belong together, and the README names the project's files only if they are there."""
    readme = (folder / "README.md").read_text()
    named = set(re.findall(r"`((?:[\w-]+\.)+(?:py|yaml))`", readme))

    assert (folder / "__main__.py").exists()
    assert {name for name in named if not (folder / name).exists()} == set()
    assert yaml.safe_load((folder / "Pulumi.yaml").read_text())["name"] == folder.name


def test_every_program_and_job_is_tested() -> None:
    """None of them lies where these tests do not look."""
    programs_and_jobs = {*ROOT.glob("examples/**/__main__.py"), *ROOT.glob("examples/**/job.yaml")}

    assert {file.parent for file in programs_and_jobs} == set(EXAMPLES)


@each_example
def test_program_passes_the_type_checker(folder: Path) -> None:
    """A user who checks types sees no error in what was copied from here."""
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", str(folder / "__main__.py")],
        cwd=ROOT,
        env={"MYPYPATH": str(folder), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )

    assert checked.returncode == 0, checked.stdout + checked.stderr
