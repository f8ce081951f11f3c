"""What linters find in the rendered objects is explained on a page, and nothing else is found."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
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

ROW: Final = re.compile(
    r"^\| ([a-z-]+) \| `(\S+)` \| ([\w, ]+) \| ([\w, -]+) \| [^|]+ \| (?:`([^|]+)` )?\|$", re.MULTILINE
)
EVERY_KIND: Final = "every kind"
EXAMPLE: Final = "example-"
"""Begins the names of examples: an example and a shape may be called the same."""
TARGETS: Final = ("pytorchjob", "job", "trainjob")
WITHOUT_OVERLAYS: Final = {key: SHAPES[key] for key in SHAPES if not key.startswith("overlays")}
OPTIONS: Final[Mapping[str, dict[str, Any]]] = {
    "gang-coscheduling": {"placement": {"gang": {"scheduler": "coscheduling"}}},
    "gang-volcano": {"placement": {"gang": {"scheduler": "volcano", "queue": "research"}, "priority_class": "high"}},
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
    "claims": {
        "elastic": {"nnodes": "2:4", "nproc_per_node": 2},
        "resources": {"cpu": "8", "memory": "64Gi", "claims": [{"name": "gpus", "template": "two-h100"}]},
    },
    "amd": {"resources": {"cpu": "8", "memory": "64Gi", "gpu": {"count": 8, "vendor": "amd"}}},
    "tpu": {"target": "job", "resources": {"cpu": "8", "memory": "64Gi", "gpu": {"count": 4, "vendor": "google"}}},
}
"""Further objects, containers and devices: keys of the config beside those of `JOB`."""


@dataclasses.dataclass(frozen=True, order=True)
class Explained:
    """What one check has against one kind of object, as the page has it.

    Attributes:
        jobs: of which jobs: `all` that have such an object, `all but` some, or only some.
        ends: the fields that end it.
    """

    linter: str
    check: str
    place: str
    jobs: str
    ends: str

    def findings(self, having: Mapping[str, AbstractSet[str]]) -> set[Finding]:
        """What the linters find if the page is right.

        Args:
            having: the jobs that have an object of each place.
        """
        but = self.jobs.startswith("all but ")
        named = set(self.jobs.removeprefix("all but ").split(", ")) - {"all"}
        assert named <= having[EVERY_KIND], f"{self.check}: no job {', '.join(named - having[EVERY_KIND])}"
        of = having[self.place] - named if but or not named else named
        return {Finding(self.linter, self.check, self.place, job) for job in of}

    def fields(self) -> dict[str, Any]:
        """The fields as a job file has them."""
        whole: dict[str, Any] = yaml.safe_load(self.ends.replace("sha256:...", f"sha256:{'0' * 64}") or "{}")
        return whole


def rows() -> Iterator[Explained]:
    """Each finding that the page explains."""
    for linter, check, places, *rest in ROW.findall((ROOT / "docs/linters.md").read_text()):
        yield from (Explained(linter, check, place, *rest) for place in places.split(", "))


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
    """What the linters find, as the page has it: a check of every kind once for a job."""
    (folder / "schemas").mkdir()
    try:
        shapes = linters.kubeconform(folder, folder / "schemas")
    except kubernetes_schema.SchemasMissing as error:
        pytest.skip(str(error))
    found = shapes | linters.kube_score(folder) | linters.checkov(folder)
    everywhere = {finding.check for finding in found if finding.place == "ConfigMap"}
    return {
        dataclasses.replace(finding, place=EVERY_KIND) if finding.check in everywhere else finding for finding in found
    }


def test_every_finding_is_explained_and_every_explanation_holds(tmp_path: Path) -> None:
    """All expected files and all shapes of a job: what the page's table has, in the jobs that it has, and no more."""
    for file in ROOT.glob("examples/*/expected.yaml"):
        linters.write(tmp_path, f"{EXAMPLE}{file.parent.name}", yaml.safe_load_all(file.read_text()))
    for shape, fields in {**WITHOUT_OVERLAYS, **OPTIONS}.items():
        linters.write(tmp_path, shape, manifests("train", {**JOB, **fields}))
    having = linters.places(tmp_path)
    having[EVERY_KIND] = set().union(*having.values())

    assert sorted(findings(tmp_path)) == sorted(set().union(*(row.findings(having) for row in rows())))


def test_fields_of_the_page_end_what_they_are_said_to_end(tmp_path: Path) -> None:
    """A job with all of them is left with what no field ends, whatever its workload object."""
    fields = merged([{"image": "-", "script": "train.py", "elastic": {"nnodes": "2:4"}}, *(r.fields() for r in rows())])
    for target in TARGETS:
        linters.write(tmp_path, target, manifests("train", {**fields, "target": target}))
    autoscaling = {"autoscaling": {"metrics": [{"type": "cpu", "target": "80"}]}}
    linters.write(tmp_path, "autoscaled", manifests("train", {**fields, **autoscaling}))

    left = {(finding.check, finding.place) for finding in findings(tmp_path)}
    assert left <= {(row.check, row.place) for row in rows() if not row.ends}


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
        Finding("kube-score", "container-security-context-privileged", "store", "train"),
        Finding("kube-score", "container-resources", "store", "train"),
        Finding("checkov", "CKV_K8S_16", "store", "train"),
    } <= found
    assert {finding.place for finding in found if finding.linter == "kubeconform"} == {"store", "PyTorchJob"}
