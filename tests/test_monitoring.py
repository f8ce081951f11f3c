"""The monitoring example: its alerts fire when they should, and its queries find what the launcher serves."""

from __future__ import annotations

import functools
import http
import itertools
import json
import re
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from elastic_infra import JobConfig, render
from elastic_infra.launcher.agent.status_server import METRICS
from elastic_infra.manifests.figures import pod_template, workload_of
from elastic_infra.manifests.model import Manifests
from tests import grafana, kubernetes_schema
from tests.launcher.launched import Launched
from tests.ports import free_port
from tools.run import ROOT, SetupError, needed

FOLDER: Final = ROOT / "examples/monitoring"
TARGETS: Final = ("pytorchjob", "job", "trainjob")
WHERE: Final = "Debian's package `prometheus` has it: apt-get download prometheus; dpkg -x prometheus_*.deb FOLDER."


def _rules() -> dict[str, Any]:
    spec: dict[str, Any] = yaml.safe_load((FOLDER / "prometheus-rule.yaml").read_text())["spec"]
    return spec


def _dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text())
    return found


def _panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = _dashboard()["panels"]
    return found


def _queries() -> list[str]:
    recorded = [rule["expr"] for group in _rules()["groups"] for rule in group["rules"]]
    return [*recorded, *(target["expr"] for panel in _panels() for target in panel["targets"])]


def test_every_metric_is_served() -> None:
    """A name that the launcher does not serve is a panel that stays empty."""
    served = {f"elastic_infra_{name}" for name, *_ in METRICS} | {"elastic_infra_phase"}
    named = set(itertools.chain.from_iterable(re.findall(r"\belastic_infra_\w+", query) for query in _queries()))

    assert named <= served
    assert len(named) > 8, "the pattern finds the names"


def test_every_recorded_series_is_recorded() -> None:
    """Alerts are on series that other rules make."""
    recorded = {rule["record"] for group in _rules()["groups"] for rule in group["rules"] if "record" in rule}
    named = set(itertools.chain.from_iterable(re.findall(r"\btraining_job:[\w:]+", query) for query in _queries()))

    assert named == recorded


def test_every_alert_is_tried_both_ways() -> None:
    """For each there is a case in which it fires, and one in which it does not."""
    alerts = {rule["alert"] for group in _rules()["groups"] for rule in group["rules"] if "alert" in rule}
    tests = yaml.safe_load((FOLDER / "rules-test.yaml").read_text())["tests"]
    cases = [case for each in tests for case in each["alert_rule_test"]]

    assert {case["alertname"] for case in cases if case.get("exp_alerts")} == alerts
    assert {case["alertname"] for case in cases if not case.get("exp_alerts")} == alerts


MONITORS: Final = ("pod-monitor.yaml", "prometheus-rule.yaml")


@pytest.mark.parametrize("file", MONITORS)
def test_the_prometheus_operator_takes_the_file(file: str) -> None:
    """A field that its definition lacks is dropped in silence, and nothing is scraped or alerts."""
    assert _shape_faults(yaml.safe_load((FOLDER / file).read_text())) == []


@pytest.mark.parametrize(
    ("file", "place", "change", "fault"),
    [
        ("pod-monitor.yaml", "podMetricsEndpoints", {"ports": "status"}, "podMetricsEndpoints[0].ports: is unknown"),
        ("pod-monitor.yaml", "podMetricsEndpoints", {"interval": "15 s"}, "[0].interval: does not match"),
        ("prometheus-rule.yaml", "groups", {"every": "30s"}, "groups[0].every: is unknown"),
        ("prometheus-rule.yaml", "groups", {"rules": [{"alert": "A"}]}, "rules[0].expr: is required"),
    ],
)
def test_what_the_prometheus_operator_would_not_know_is_found(
    file: str, place: str, change: Mapping[str, Any], fault: str
) -> None:
    """The check can fail: in each file a key that is not known, and a value that is no value."""
    manifest = yaml.safe_load((FOLDER / file).read_text())
    manifest["spec"][place][0] |= change
    (found,) = _shape_faults(manifest)

    assert fault in found


def _shape_faults(manifest: Mapping[str, Any]) -> list[str]:
    try:
        return kubernetes_schema.faults(manifest)
    except kubernetes_schema.SchemasMissing as error:
        pytest.skip(str(error))


def test_the_panels_lie_beside_each_other() -> None:
    """Grafana moves panels that overlap."""
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in _panels())
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]

    assert len(set(cells)) == len(cells)
    assert {panel["id"] for panel in _panels()} == set(range(1, len(_panels()) + 1))


def test_grafana_knows_every_key_of_the_dashboard() -> None:
    """Its own types read the whole file, and every value is of the type that the key has."""
    assert grafana.findings(_dashboard()) == []


@pytest.mark.parametrize(
    ("path", "value", "finding"),
    [
        ((), {"titel": "x"}, "dashboard.titel is unknown"),
        (("panels", 0), {"dataSource": "x"}, "dashboard.panels[0].dataSource is unknown"),
        (("panels", 0, "fieldConfig", "defaults"), {"custom": {"fill": 1}}, "custom.fill is unknown"),
        (("panels", 0, "gridPos"), {"h": "8"}, "GridPos.h is '8'"),
        (("templating", "list", 1), {"type": "querry"}, "VariableModel.type_val is 'querry'"),
    ],
)
def test_what_grafana_would_not_know_is_found(path: tuple[str | int, ...], value: Any, finding: str) -> None:
    """Keys at any depth, those of panels' own options as well, and values of another type."""
    dashboard = _dashboard()
    place: Any = dashboard
    for part in path:
        place = place[part]
    place.update(value)

    assert any(finding in each for each in grafana.findings(dashboard))


@pytest.mark.parametrize("target", TARGETS)
def test_the_monitor_selects_the_pods_of_every_target(target: str) -> None:
    """By the labels and the name of the port that a job's pods have."""
    monitor = yaml.safe_load((FOLDER / "pod-monitor.yaml").read_text())["spec"]
    job = {"image": "i", "script": "s", "elastic": {"nnodes": "2:4"}, "launcher": {"metrics_port": 9100}}
    pod = _pod(render("digits", JobConfig.from_mapping({**job, "target": target})))
    ports = [port["name"] for port in pod["spec"]["containers"][0]["ports"]]
    (label,) = (each["sourceLabels"][0] for each in monitor["podMetricsEndpoints"][0]["relabelings"])

    assert monitor["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert monitor["podMetricsEndpoints"][0]["port"] in ports
    assert label in _as_prometheus_has_them(pod["metadata"]["labels"])


@pytest.mark.parametrize("target", TARGETS)
def test_logs_are_found_by_the_labels_of_the_page(target: str) -> None:
    """Selectors for kubectl pick the nodes of the job, and collectors take over labels that nodes and store have."""
    page, timeline = ((ROOT / "docs" / name).read_text() for name in ("monitoring.md", "timeline.md"))
    selectors = re.findall(r"kubectl logs (?:-l|--selector) (\S+)", page + timeline)
    (relabelings,) = re.findall(r"^relabel_configs:\n.*?(?=^```)", page, re.MULTILINE | re.DOTALL)
    collected = {each["source_labels"][0] for each in yaml.safe_load(relabelings)["relabel_configs"]}
    of_records = set(re.findall(r"\$kubernetes\['labels'\]\['(\S+)'\]", page))
    job = {"image": "i", "script": "s", "elastic": {"nnodes": "2:4"}, "target": target}
    made = render("digits", JobConfig.from_mapping(job))
    node, store = _pod(made)["metadata"]["labels"], _template(made.store)["metadata"]["labels"]

    assert (len(selectors), len(collected), len(of_records)) == (3, 2, 2)
    for selector in selectors:
        wanted = dict(part.split("=") for part in selector.split(","))
        wanted["app.kubernetes.io/instance"] = "digits"
        assert wanted.items() <= node.items()
        assert not wanted.items() <= store.items()
    for labels in (node, store):
        assert collected <= _as_prometheus_has_them(labels)
        assert of_records <= labels.keys()


def _pod(made: Manifests) -> Any:
    """The template of the nodes' pods."""
    return pod_template(workload_of(made))


def _template(manifest: Any) -> Any:
    return manifest["spec"]["template"]


def _as_prometheus_has_them(labels: Mapping[str, str]) -> set[str]:
    """The names under which Prometheus and Promtail see a pod's labels before relabeling."""
    return {f"__meta_kubernetes_pod_label_{re.sub(r'[./-]', '_', name)}" for name in labels}


def _program(name: str) -> str:
    """Where a program of Prometheus is; skips where it is not."""
    try:
        return needed(name, WHERE)
    except SetupError as error:
        pytest.skip(str(error))


@pytest.mark.slow
def test_the_alerts_pass_promtool(tmp_path: Path) -> None:
    """Prometheus's own checker reads the rules, and its tests run.

    The alerts' texts are left out of the tests: promtool asks for them word by word.
    """
    promtool = _program("promtool")
    (tmp_path / "whole.yaml").write_text(yaml.safe_dump(_rules()))
    silent = _rules()
    for rule in silent["groups"][0]["rules"]:
        rule.pop("annotations", None)
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(silent))
    (tmp_path / "rules-test.yaml").write_text((FOLDER / "rules-test.yaml").read_text())

    for command in (["check", "rules", "whole.yaml"], ["test", "rules", "rules-test.yaml"]):
        done = subprocess.run([promtool, *command], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


SCRIPT: Final = """
import time
from elastic_infra.training import Progress

progress = Progress()
step = 0
while not progress.step(step):
    progress.checkpoint(step)
    step += 1
    time.sleep(0.1)
"""


@pytest.mark.slow
def test_every_query_of_the_dashboard_finds_a_real_job(tmp_path: Path) -> None:
    """A real Prometheus scrapes a real launcher, and no panel stays empty."""
    prometheus, port, status = _program("prometheus"), free_port(), free_port()
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(_rules()).replace("interval: 30s", "interval: 1s"))
    labels = {"namespace": "a", "training_job": "job", "pod": "job-0"}
    scrape = {"job_name": "jobs", "static_configs": [{"targets": [f"127.0.0.1:{status}"], "labels": labels}]}
    settings = {"global": {"scrape_interval": "1s"}, "rule_files": ["rules.yaml"], "scrape_configs": [scrape]}
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump(settings))
    environ = {"ELASTIC_INFRA_METRICS_PORT": str(status)}
    listen = f"--web.listen-address=127.0.0.1:{port}"
    server = [prometheus, "--config.file=prometheus.yaml", "--storage.tsdb.path=data", listen]
    launcher = Launched(tmp_path, "--standalone", "--nproc-per-node", "2", "train.py", environ=environ)
    with subprocess.Popen(server, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        try:
            for query in (target["expr"] for panel in _panels() for target in panel["targets"]):
                asked = query.replace("$namespace", ".*").replace("$training_job", "job")
                launcher.wait_for(functools.partial(_result, port, asked), f"an answer to {asked}")
        finally:
            running.terminate()
            launcher.end()


def _result(port: int, query: str) -> list[Any]:
    """What Prometheus answers; nothing while it starts."""
    address = f"http://127.0.0.1:{port}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    try:
        with urllib.request.urlopen(address) as answer:
            found: list[Any] = json.load(answer)["data"]["result"]
            return found
    except urllib.error.HTTPError as error:
        if error.code == http.HTTPStatus.SERVICE_UNAVAILABLE:
            return []
        raise
    except urllib.error.URLError:
        return []
