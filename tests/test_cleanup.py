"""The command `cleanup` without a cluster: what its answers mean. A real cluster's are in `tests/cluster`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from elastic_infra import JobConfig, render
from elastic_infra.cli import cleanup
from elastic_infra.cli.cleanup import CannotTellError, Launcher
from elastic_infra.cli.kubectl import Answer
from elastic_infra.manifests import launcher, workdir
from tests.cli import elastic_infra

OLD, NOW = "2025-01-01T00:00:00Z", datetime(2025, 1, 2, tzinfo=timezone.utc)
CONFIG = JobConfig.from_mapping({"image": "i", "script": "s.py", "namespace": "team", "elastic": {"nnodes": "1:3"}})


def config_map(name: str, created: str = OLD, data: dict[str, str] | None = None) -> dict[str, Any]:
    """A ConfigMap as the cluster shows it; one with a launcher unless it is told another content."""
    metadata = {"name": name, "namespace": "team", "creationTimestamp": created}
    return {"kind": "ConfigMap", "metadata": metadata, "binaryData": {launcher.ARCHIVE: ""} if data is None else data}


class Cluster:
    """Answers `get` with these objects, and writes down what is asked."""

    def __init__(self, config_maps: Sequence[Any], templates: Sequence[Any] = (), refused: str = "") -> None:
        self.asked: list[str] = []
        self._config_maps = config_maps
        self._templates = templates
        self._refused = refused

    def __call__(self, *arguments: str) -> Answer:
        self.asked.append(" ".join(arguments))
        if self._refused and self._refused in self.asked[-1]:
            return Answer(1, "", "Error from server (Forbidden): pods is forbidden: User may not list")
        if arguments[0] == "api-resources":
            return Answer(0, "pytorchjobs.kubeflow.org\n" if "kubeflow.org" in arguments else "", "")
        found = self._config_maps if arguments[1] == "configmaps" else self._templates
        return Answer(0, json.dumps({"items": found}), "")


def unused(cluster: Cluster) -> list[str]:
    """Names of what nothing mounts."""
    return [each.name for each in cleanup.unused(cluster, ("--namespace", "team"), NOW)]


def test_launchers_that_a_job_mounts_are_kept() -> None:
    """Those of PyTorchJobs, of the store and of pods; the rest is found, in order."""
    jobs = [render("train", CONFIG, "mounted"), render("tune", CONFIG, "shared")]
    templates = [jobs[0].workload, jobs[1].store]
    cluster = Cluster([config_map(name) for name in ("zombie", "mounted", "shared", "gone")], templates)

    assert unused(cluster) == ["gone", "zombie"]
    assert "pytorchjobs.kubeflow.org" in cluster.asked[-1]
    assert all("--namespace team" in asked for asked in cluster.asked if asked.startswith("get"))


def test_a_launcher_of_another_namespace_is_another() -> None:
    """A pod mounts ConfigMaps of its own namespace only."""
    other = JobConfig.from_mapping({"image": "i", "script": "s.py", "namespace": "other"})

    assert unused(Cluster([config_map("mounted")], [render("train", other, "mounted").workload])) == ["mounted"]


def test_a_projected_volume_names_a_launcher_too() -> None:
    """As sidecars and pods of other tools mount it."""
    volume = {"name": "v", "projected": {"sources": [{"configMap": {"name": "mounted"}}]}}
    pod = {"metadata": {"name": "p", "namespace": "team"}, "spec": {"volumes": [volume]}}

    assert unused(Cluster([config_map("mounted")], [pod])) == []


def test_a_template_of_the_whole_cluster_names_a_launcher_of_any_namespace() -> None:
    """A ClusterTrainingRuntime has no namespace of its own: its pods come up in those of its jobs."""
    pod = {"spec": {"volumes": [{"name": "v", "configMap": {"name": "mounted"}}]}}
    runtime = {"kind": "ClusterTrainingRuntime", "metadata": {"name": "torch"}, "spec": {"template": pod}}

    assert unused(Cluster([config_map("mounted"), config_map("gone")], [runtime])) == ["gone"]


def test_young_and_newest_launchers_are_kept() -> None:
    """A job that is about to be made names them: the ConfigMap comes first."""
    young = config_map("young", "2025-01-02T00:00:00Z")
    newest = config_map(f"team-launcher-{launcher.digest()}-abc")
    settings = config_map("settings", data={"other.zip": ""})

    assert unused(Cluster([young, newest, settings])) == []


@pytest.mark.parametrize("refused", ["get configmaps", "get pods", "api-resources"])
def test_what_cannot_be_seen_is_not_judged(refused: str) -> None:
    """An account that may not list one kind cannot tell which launchers it names."""
    with pytest.raises(CannotTellError, match="has to list ConfigMaps and every kind that holds a pod template"):
        unused(Cluster([config_map("gone")], refused=refused))


def test_a_launcher_is_written_with_its_namespace() -> None:
    """As kubectl's users read it."""
    assert str(Launcher("team", "gone")) == "team/gone"


@pytest.mark.parametrize(
    ("options", "said"),
    [(("-n", "team", "-A"), "exclude each other"), (("--min-age", "-1"), "min-age"), ((), "kubectl is not on PATH")],
)
def test_bad_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], said: str) -> None:
    """Exit code 2, the reason, and nothing is asked of a cluster."""
    monkeypatch.setenv("PATH", str(tmp_path))
    result = elastic_infra("cleanup", *options)

    assert (result.code, result.out) == (2, "")
    assert said in result.err


def test_code_that_no_job_mounts_is_found() -> None:
    """Each edit of the code leaves a ConfigMap where objects are applied by hand."""
    code = {"workdir": {"files": {"s.py": "cGFzcwo="}}}
    now = render("train", JobConfig.from_mapping({**CONFIG.model_dump(exclude_unset=True), **code}))
    held = {workdir.ARCHIVE: ""}
    mounted = json.loads(json.dumps(now.workdir))["metadata"]["name"]
    made = [config_map(name, data=held) for name in (mounted, "train-workdir-00000000")]

    assert unused(Cluster(made, [now.workload])) == ["train-workdir-00000000"]
