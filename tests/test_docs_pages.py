"""What the pages on operating jobs tell a reader to copy works, and the site has every page."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from elastic_infra import JobConfig, render
from elastic_infra.cli.app import COMMANDS
from elastic_infra.cli.check import VERBS, actions
from elastic_infra.config.flyte import fields_of
from elastic_infra.config.resources import VENDOR_RESOURCES
from elastic_infra.config.schema import json_schema
from tests.cli import elastic_infra
from tests.jobs import IMAGE, elastic, job, objects, pod_spec, train_job
from tools import build, modules
from tools.metadata import RELATIVE
from tools.run import ROOT, SetupError

DOCS = ROOT / "docs"
FULL: dict[str, Any] = {
    "autoscaling": {"metrics": [{"type": "cpu", "target": 80}]},
    "resources": {"cpu": 2, "memory": "1Gi"},
    "storage": {"checkpoint": {"size": "1Gi"}},
    "disruption": {"pod_disruption_budget": True},
    "placement": {"gang": {"scheduler": "coscheduling"}},
}
"""Every kind of object but Volcano's."""


def blocks(page: str) -> list[str]:
    """The YAML of one page, block by block."""
    return re.findall(r"^```yaml\n(.*?)^```", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)


def named(page: str, kind: str) -> dict[str, Any]:
    """The object of a kind on a page."""
    (found,) = [document for block in blocks(page) if (document := yaml.safe_load(block)).get("kind") == kind]
    return dict(found)


def test_every_page_is_on_the_site() -> None:
    """A page that no menu names is not found by readers."""
    entries = re.findall(r"^ +- [^:]+: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)

    assert sorted(entries) == sorted(["index.md", *(path.name for path in DOCS.glob("*.md"))])


@pytest.mark.parametrize("page", sorted(path.name for path in DOCS.glob("*.md")))
def test_commands_of_a_page_exist(page: str) -> None:
    """What a page says to type is a command of ours, or a verb of make."""
    code = "".join(re.findall(r"^```sh\n(.*?)^```", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE))
    makefile = (ROOT / "Makefile").read_text()
    verbs = re.findall(r"^make ([a-z-]+)", code, re.MULTILINE)

    assert set(re.findall(r"^elastic-infra ([a-z]+)", code, re.MULTILINE)) <= set(COMMANDS)
    assert [verb for verb in verbs if not re.search(rf"^{verb}\b.*:", makefile, re.MULTILINE)] == []


@pytest.mark.parametrize("page", sorted(path.name for path in DOCS.glob("*.md")))
def test_links_have_the_form_that_the_site_rewrites(page: str) -> None:
    """A link into the repository that the hook did not see would lead nowhere on the site."""
    text = (DOCS / page).read_text()
    links = re.findall(r"\]\((\.\./[^)\s]+)\)", text)

    assert links == [target for _, _, target in RELATIVE.findall(text) if target.startswith("../")]


def rights(role: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Verb and kind of all that a Role allows."""
    return {
        (verb, ".".join(filter(None, [re.sub("ies$", "y", resource).removesuffix("s"), group])))
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_the_role_covers_all_that_a_job_needs() -> None:
    """The page's Role is enough for `pulumi up` of every kind of job, and gives rights on no other kind."""
    configs = elastic(**FULL), elastic(placement={"gang": {"scheduler": "volcano"}}), job(), train_job()
    kinds = [manifest for config in configs for manifest in objects(config).values()]
    needed = {(verb, kind) for verb, kind in actions(kinds)}

    assert {each for each in rights(named("multi-tenancy.md", "Role")) if each[0] in VERBS} == needed


@pytest.mark.parametrize("target", ["pytorchjob", "job"])
def test_a_further_role_covers_a_job_that_follows_capacity(target: str) -> None:
    """Kubernetes lets an account give only what it has: the rights of the driver's Role are among its own."""
    made = objects(elastic(target=target, autoscaling={"policy": "capacity"}))
    given = rights(named("multi-tenancy.md", "Role")) | rights(named("capacity.md", "Role"))

    assert set(actions(list(made.values()))) <= given
    assert rights(made["role"]) <= given


@pytest.mark.parametrize("target", ["pytorchjob", "job", "trainjob"])
def test_a_further_role_covers_a_job_that_makes_events(target: str) -> None:
    """The rights of the driver's Role are among the account's own."""
    made = objects(elastic(target=target, launcher={"kubernetes_events": True}))
    given = rights(named("multi-tenancy.md", "Role")) | rights(named("monitoring.md", "Role"))

    assert set(actions(list(made.values()))) <= given
    assert rights(made["role"]) <= given


def test_the_policies_are_read(tmp_path: Path) -> None:
    """The page's `policy.yaml` refuses a job that keeps none of its rules, rule by rule."""
    (text,) = [block for block in blocks("multi-tenancy.md") if "gpu_budget" in block]
    (tmp_path / "policy.yaml").write_text(text)
    (tmp_path / "job.yaml").write_text(
        "name: job\nimage: other.example.com/i:1\nscript: s\nnamespace: elsewhere\nlabels: {team: other}\n"
        "resources: {memory: 1Gi, gpu: 32}\nsecurity: {profile: baseline, run_as_user: 0}\n"
    )
    done = elastic_infra("validate", tmp_path / "job.yaml", "--policy", tmp_path / "policy.yaml")

    assert done.code == 2
    broken = set(re.findall(r"mandatory (\w+):", done.err))
    assert broken == yaml.safe_load(text).keys() - {"labels"}, done.err


def test_each_row_of_devices_is_what_a_pod_asks_for() -> None:
    """The second column is the field, and the third the resource that is rendered for it."""
    page = (DOCS / "placement.md").read_text().partition("## Devices")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| [^|]+ \| `([^`]+)` \| (?:`([^`]+)`)?.* \|$", page, re.MULTILINE)
    vendors = set()
    for given, asked in rows:
        resources = {"memory": "64Gi", **yaml.safe_load(f"{{{given}}}")}
        locks = {"security": {"profile": "baseline", "run_as_user": 0}} if "rdma" in resources else {}
        pod = pod_spec(elastic(resources=resources, **locks))
        limits, wanted = pod["containers"][0]["resources"].get("limits", {}), yaml.safe_load(asked or "{}")
        assert {name: str(count) for name, count in wanted.items()}.items() <= limits.items()
        assert wanted or pod["resourceClaims"]
        vendors.add(next(iter(wanted), "claims"))

    assert vendors >= {*VENDOR_RESOURCES.values(), "hugepages-2Mi", "claims"}


def test_the_kustomization_is_built(tmp_path: Path) -> None:
    """What Flux is to leave alone says so; all other objects stay as they are."""
    try:
        kubectl = build.program_path("kubectl", modules.cache_folder(os.environ, Path.home()), build.go_program())
    except SetupError as error:
        pytest.skip(f"no kubectl: {error}")
    text = next(block for block in blocks("gitops.md") if block.startswith("# deploy/kustomization.yaml"))
    (tmp_path / "kustomization.yaml").write_text(text)
    given = {"name": "quickstart", "image": IMAGE, "script": "s", "elastic": {"nnodes": "2:4"}, **FULL}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(given))
    rendered = elastic_infra("render", tmp_path / "job.yaml", "--into", tmp_path)
    assert rendered.code == 0, rendered.err
    done = subprocess.run([kubectl, "kustomize", tmp_path], capture_output=True, text=True, check=True)
    before = {each["kind"]: each for each in yaml.safe_load_all((tmp_path / "quickstart.yaml").read_text())}
    after = {each["kind"]: each for each in yaml.safe_load_all(done.stdout)}
    flux = {
        kind: {key: value for key, value in each["metadata"].get("annotations", {}).items() if "fluxcd" in key}
        for kind, each in after.items()
    }

    assert {kind: found for kind, found in flux.items() if found} == {
        "PyTorchJob": {"kustomize.toolkit.fluxcd.io/ssa": "IfNotPresent"},
        "Deployment": {"kustomize.toolkit.fluxcd.io/ssa": "IfNotPresent"},
        "ConfigMap": {"kustomize.toolkit.fluxcd.io/prune": "disabled"},
        "PersistentVolumeClaim": {"kustomize.toolkit.fluxcd.io/prune": "disabled"},
    }
    assert {kind: each for kind, each in after.items() if not flux[kind]} == {
        kind: each for kind, each in before.items() if not flux[kind]
    }


def test_each_field_of_a_flyte_task_has_its_row() -> None:
    """What is read from a task's config is in the table, and each name of ours there is a field."""
    rows = re.findall(r"^\| `([\w.]+)` \| `([\w.]+)` \|", (DOCS / "migration.md").read_text(), re.MULTILINE)
    ours = {name.partition(".")[0] for _, name in rows}
    policy = {"clean_pod_policy": None, "ttl_seconds_after_finished": 1}
    policy |= {"active_deadline_seconds": 1, "backoff_limit": 1}
    same = {"nnodes": 2, "nproc_per_node": 1, "start_method": "spawn", "monitor_interval": 5, "max_restarts": 3}
    task = {**same, "rdzv_configs": {}, "increase_shared_mem": True, "run_policy": type("Policy", (), policy)}
    fields = fields_of(type("Task", (), task))  # type: ignore[arg-type]  # attributes are all that is read

    assert {name for name, _ in rows} == {*same, "rdzv_configs", "increase_shared_mem"} | {
        f"run_policy.{name}" for name in policy
    }
    assert ours == fields.keys() - {"target"}
    assert ours <= json_schema()["properties"].keys()


@pytest.mark.parametrize("page", ["migration.md", "overlays.md"])
def test_job_files_on_a_page_are_valid(page: str) -> None:
    """Keys that complete a job."""
    for text in blocks(page):
        assert render("job", JobConfig.from_mapping({"image": IMAGE, "script": "s", **yaml.safe_load(text)})).workload
