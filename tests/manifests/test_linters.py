"""What linters find in the rendered objects is explained on a page, and nothing else is found."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from elastic_infra import JobConfig, render
from tests import kubernetes_schema, linters
from tests.linters import Finding
from tests.manifests.test_released_pods import JOB, SHAPES
from tools.run import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROW: Final = re.compile(r"^\| ([a-z-]+) \| `(\S+)` \| ([\w, ]+) \| [^|]+ \| (?:`([^|]+)` )?\|$", re.MULTILINE)
EVERY_KIND: Final = "every kind"
TARGETS: Final = ("pytorchjob", "job", "trainjob")
WITHOUT_OVERLAYS: Final = {key: SHAPES[key] for key in SHAPES if not key.startswith("overlays")}
OPTIONS: Final[Mapping[str, dict[str, Any]]] = {
    "gang-coscheduling": {"placement": {"gang": {"scheduler": "coscheduling"}}},
    "gang-kai": {"placement": {"gang": {"scheduler": "kai", "queue": "research"}}},
    "kueue-partial": {"target": "job", "placement": {"queue": "research", "kueue": {"mode": "partial"}}},
    "kueue-elastic": {"target": "job", "placement": {"queue": "research", "kueue": {"mode": "elastic"}}},
    "capacity": {"target": "job", "autoscaling": {"policy": "capacity"}},
    "events": {"launcher": {"kubernetes_events": True}},
    "avoid-bad-nodes": {"placement": {"avoid_bad_nodes": True}},
    "own-account": {"security": {"own_service_account": True}},
    "health-check": {"health_check": True},
    "initializers": {
        "initializers": [{"name": "model", "kind": "huggingface", "source": "org/model", "path": "/cache/model"}],
        "storage": {
            "volumes": [{"name": "cache", "claim": "models"}],
            "mounts": [{"volume": "cache", "mount_path": "/cache"}],
        },
    },
    "workdir": {"workdir": {"files": {"train.py": "cHJpbnQoKQo="}}},
    "spot": {
        "placement": {"spot": "required", "topology_pack": {"topology_key": "topology.kubernetes.io/zone"}},
        "disruption": {"pod_disruption_budget": True},
    },
    "rdma": {
        "resources": {"cpu": "8", "memory": "64Gi", "gpu": 8, "rdma": {"resource": "vpc.amazonaws.com/efa"}},
        "security": {"profile": "baseline", "run_as_user": 0},
    },
}
"""Further objects, containers and devices: keys of the config beside those of `JOB`."""


def rows() -> Iterator[tuple[Finding, dict[str, Any]]]:
    """Each finding that the page explains, and the fields that end it."""
    for linter, check, places, fields in ROW.findall((ROOT / "docs/linters.md").read_text()):
        ends: dict[str, Any] = yaml.safe_load(fields.replace("sha256:...", f"sha256:{'0' * 64}") or "{}")
        yield from ((Finding(linter, check, place), ends) for place in places.split(", "))


def manifests(name: str, fields: Mapping[str, Any]) -> list[Any]:
    """A job's objects as plain JSON."""
    found = render(name, JobConfig.from_mapping(dict(fields))).objects()
    return [json.loads(json.dumps(manifest)) for _, manifest in found]


def merged(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The fields of all, group by group."""
    whole: dict[str, Any] = {}
    for key, value in (item for part in parts for item in part.items()):
        whole[key] = {**whole.get(key, {}), **value} if isinstance(value, dict) else value
    return whole


def findings(folder: Path) -> set[Finding]:
    """What the linters find, as the page has it: a check of every kind once."""
    (folder / "schemas").mkdir()
    try:
        shapes = linters.kubeconform(folder, folder / "schemas")
    except kubernetes_schema.SchemasMissing as error:
        pytest.skip(str(error))
    found = shapes | linters.kube_score(folder) | linters.checkov(folder)
    everywhere = {finding.check for finding in found if finding.place == "ConfigMap"}
    return {
        Finding(finding.linter, finding.check, EVERY_KIND if finding.check in everywhere else finding.place)
        for finding in found
    }


def test_every_finding_is_explained_and_every_explanation_holds(tmp_path: Path) -> None:
    """All expected files and all shapes of a job: the linters find what the page's table has, no more and no less."""
    for file in ROOT.glob("examples/*/expected.yaml"):
        linters.write(tmp_path, file.parent.name, yaml.safe_load_all(file.read_text()))
    for shape, fields in {**WITHOUT_OVERLAYS, **OPTIONS}.items():
        linters.write(tmp_path, shape, manifests("train", {**JOB, **fields}))

    assert sorted(findings(tmp_path)) == sorted(finding for finding, _ in rows())


def test_fields_of_the_page_end_what_they_are_said_to_end(tmp_path: Path) -> None:
    """A job with all of them is left with what no field ends, whatever its workload object."""
    fields = merged([{"image": "-", "script": "train.py", "elastic": {"nnodes": "2:4"}}, *(ends for _, ends in rows())])
    for target in TARGETS:
        linters.write(tmp_path, target, manifests("train", {**fields, "target": target}))
    autoscaling = {"autoscaling": {"metrics": [{"type": "cpu", "target": "80"}]}}
    linters.write(tmp_path, "autoscaled", manifests("train", {**fields, **autoscaling}))

    assert findings(tmp_path) <= {finding for finding, ends in rows() if not ends}


def test_each_linter_finds_what_is_wrong(tmp_path: Path) -> None:
    """The check can fail: a privileged store without limits, and a field that Kubernetes does not know."""
    objects = manifests("train", JOB)
    (store,) = [each for each in objects if each["kind"] == "Deployment"]
    (container,) = store["spec"]["template"]["spec"]["containers"]
    container |= {"securityContext": {"privileged": True}, "resources": {}, "comand": ["sh"]}
    (job,) = [each for each in objects if each["kind"] == "PyTorchJob"]
    job["spec"]["elasticPolicy"]["minReplicas"] = "two"
    linters.write(tmp_path, "train", objects)
    found = findings(tmp_path)

    assert {
        Finding("kube-score", "container-security-context-privileged", "store"),
        Finding("kube-score", "container-resources", "store"),
        Finding("checkov", "CKV_K8S_16", "store"),
    } <= found
    assert {finding.place for finding in found if finding.linter == "kubeconform"} == {"store", "PyTorchJob"}
