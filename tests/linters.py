"""Linters of manifests: what kube-score, kubeconform and checkov find in files of objects.

Their programs are built and installed by `make linters`. They know the pods of built-in kinds only, so each workload of
another kind is shown to them as a Job with the same pods.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from elastic_infra.manifests.figures import pod_template, with_runtime
from tests import kubernetes_schema
from tools import build, extra_env, modules
from tools.run import SetupError

ALL_OK: Final = 10
"""The grade that kube-score gives where it has nothing against an object."""


@dataclasses.dataclass(frozen=True, order=True)
class Finding:
    """What one check has against one kind of object.

    Attributes:
        check: the linter's name of it.
        place: `store` or `node` for what concerns a pod, else the kind of the object.
        file: the job that has it, by the name under which its objects were written.
    """

    linter: str
    check: str
    place: str
    file: str


def write(folder: Path, name: str, documents: Iterable[Mapping[str, Any]]) -> None:
    """Write the objects of one job to a file for the linters."""
    objects = list(documents)
    text = yaml.safe_dump_all([*objects, *_stand_ins(objects)], sort_keys=False)
    (folder / f"{name}.yaml").write_text(text)


def places(folder: Path) -> dict[str, set[str]]:
    """The names of the jobs that have an object of each place, among the files of a folder."""
    found: dict[str, set[str]] = {}
    for file in folder.glob("*.yaml"):
        for each in yaml.safe_load_all(file.read_text()):
            found.setdefault(_place(each["kind"]), set()).add(file.stem)
    return found


def kube_score(folder: Path) -> set[Finding]:
    """What kube-score has against the files of a folder, one after the other: it takes several for one cluster."""
    found = set()
    for file in sorted(folder.glob("*.yaml")):
        for each in json.loads(_run(_built("kube-score"), "score", "--output-format", "json", file)):
            failed = [check for check in each["checks"] if check["grade"] < ALL_OK and not check["skipped"]]
            place = _place(each["type_meta"]["kind"])
            found |= {Finding("kube-score", check["check"]["id"], place, file.stem) for check in failed}
    return found


def checkov(folder: Path) -> set[Finding]:
    """What checkov has against the files of a folder."""
    program = extra_env.EXTRAS["linters"].folder / "bin/checkov"
    if not program.exists():
        pytest.skip("no checkov: `make linters` installs it")
    options = ("--framework", "kubernetes", "--output", "json", "--soft-fail", "--skip-download")
    report = json.loads(_run(program, "--directory", folder, *options))
    assert report["summary"]["parsing_errors"] == 0
    return {
        Finding("checkov", check["check_id"], _place(check["resource"]), Path(check["file_path"]).stem)
        for check in report["results"]["failed_checks"]
    }


def kubeconform(folder: Path, schemas: Path) -> set[Finding]:
    """What kubeconform has against the files of a folder; kinds without a definition that can be had are left out.

    Args:
        schemas: an empty folder.
    """
    files = sorted(folder.glob("*.yaml"))
    documents = [document for file in files for document in yaml.safe_load_all(file.read_text())]
    kinds = {(each["apiVersion"], each["kind"]) for each in documents}
    undefined = {each for each in kinds if each[0] in kubernetes_schema.UNDEFINED}
    for version, kind in kinds - undefined:
        group, _, short = version.rpartition("/")
        suffix = "-".join(filter(None, [group.partition(".")[0], short]))
        (schemas / f"{kind.lower()}-{suffix}.json").write_text(json.dumps(kubernetes_schema.json_schema(version, kind)))
    location = f"{schemas}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"
    skipped = ",".join("/".join(each) for each in sorted(undefined))
    options = ("-strict", "-verbose", "-output", "json", "-schema-location", location, "-skip", skipped)
    resources = json.loads(_run(_built("kubeconform"), *options, *files))["resources"]
    assert len(resources) == len(documents)
    bad = [each for each in resources if each["status"] not in {"statusValid", "statusSkipped"}]
    return {Finding("kubeconform", each["msg"], _place(each["kind"]), Path(each["filename"]).stem) for each in bad}


def _stand_ins(objects: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    by_kind = {each["kind"]: each for each in objects}
    train_job, runtime = by_kind.get("TrainJob"), by_kind.get("TrainingRuntime")
    workloads = [each for each in objects if each["kind"] == "PyTorchJob"]
    for each in [*workloads, *([with_runtime(train_job, runtime)] if train_job and runtime else [])]:
        template: Any = pod_template(each)
        pods = {**template, "spec": {**template["spec"], "restartPolicy": "Never"}}
        yield {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": each["metadata"],
            "spec": {"template": pods},
        }


def _place(resource: str) -> str:
    """The place of a kind, or of what checkov calls a resource: the kind, the namespace, the name and labels."""
    if resource.startswith("Deployment") or resource.endswith("component-rendezvous"):
        return "store"
    if resource.startswith("Job") or resource.endswith("component-worker"):
        return "node"
    return resource.partition(".")[0]


def _built(program: str) -> Path:
    try:
        return build.program_path(program, modules.cache_folder(os.environ, Path.home()), build.go_program())
    except SetupError as error:
        pytest.skip(f"no {program}: {error}")


def _run(*command: str | Path) -> str:
    """What a linter prints; its exit code only says whether it found something."""
    environ = {**os.environ, "CKV_SKIP_PACKAGE_UPDATE_CHECK": "true"}
    return subprocess.run(command, env=environ, stdout=subprocess.PIPE, text=True, check=False).stdout
