"""Every option, alone and many at once, and every example, as a real API server judges them.

It refuses nothing and warns of nothing unknown.
"""

from __future__ import annotations

import itertools
import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

import tests.jobs
from elastic_infra import JobConfig, render
from elastic_infra.config.load import load
from elastic_infra.manifests import gang
from tests import kubernetes_schema, options
from tests.cluster import kube
from tests.cluster.cluster import Cluster, Namespace
from tests.cluster.testbed import controllers
from tests.cluster.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
FOLDER = Path(__file__).parents[2] / "examples"
EXAMPLES = sorted(FOLDER.glob("*/job.yaml"))
JOB = "matrix"
COMBINATIONS = 500 // len(options.TARGETS)
"""With each target."""
UNSEEN = "must be created before the TrainJob is created"
"""What Trainer says as long as it has not heard of a runtime that is there."""
NARROWER: Mapping[options.Profile, options.Profile] = {"privileged": "baseline", "baseline": "restricted"}


@dataclass(frozen=True)
class Matrix:
    """A namespace for each Pod Security profile, and what has been sent to them: most options change one object."""

    spaces: Mapping[options.Profile, Namespace]
    undefined: frozenset[str]
    """Versions of which the cluster has no definition, so that it judges none of their objects."""
    answers: dict[str, list[str]] = field(default_factory=dict)

    def faults(self, config: JobConfig) -> list[str]:
        """What the server says against the objects of the job, and against the pods that controllers make of them."""
        profile = options.profile(config)
        found = self._judged(self.spaces[profile], config)
        if narrower := NARROWER.get(profile):
            pods = _pods(_objects(self.spaces[narrower], config))
            refused = any(self._answer(self.spaces[narrower], pod) for pod in pods)
            found += [] if refused else [f"Pod: profile {narrower} allows it"]
        return found

    def _judged(self, space: Namespace, config: JobConfig) -> list[str]:
        objects = _objects(space, config)
        runtime = objects.get("runtime")
        faults = [
            f"{manifest['kind']}: {fault}"
            for manifest in (*objects.values(), *_pods(objects), *([_job(runtime)] if runtime else []))
            if manifest["kind"] != "TrainJob" and manifest["apiVersion"] not in self.undefined
            for fault in self._answer(space, manifest)
        ]
        if runtime is None or faults:
            return faults
        space.apply(runtime)  # for which Trainer looks when it judges the TrainJob
        return [f"TrainJob: {fault}" for fault in self._answer(space, objects["workload"])]

    def _answer(self, space: Namespace, manifest: kube.Object) -> list[str]:
        key = json.dumps(manifest, sort_keys=True)
        if key not in self.answers:
            (self.answers[key],) = until("Trainer to hear of the runtime", lambda: _said(space, manifest))
        return self.answers[key]


def _said(space: Namespace, manifest: kube.Object) -> list[list[str]]:
    """What the server says against an object; nothing yet where Trainer has not heard of the runtime that it names."""
    try:
        return [space.unexpected_warnings(manifest)]
    except kube.KubeError as error:
        return [] if UNSEEN in str(error) else [[str(error)]]


def _objects(space: Namespace, config: JobConfig) -> dict[str, Any]:
    """The job's objects; the account that its pods name is there, for the server looks for it."""
    inside = config.model_copy(update={"namespace": space.name})
    objects: dict[str, Any] = json.loads(json.dumps(dict(render(JOB, inside).objects())))
    for manifest in objects.values():
        if manifest["kind"] == "ServiceAccount":
            space.apply(manifest)
    return objects


def _pods(objects: dict[str, Any]) -> list[kube.Object]:
    """What controllers make of the templates: Pod Security refuses nothing but pods."""
    space = objects["workload"]["metadata"]["namespace"]
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**template["metadata"], "name": f"{JOB}-pod-{i}", "namespace": space},
            "spec": template["spec"],
        }
        for i, template in enumerate(tests.jobs.templates(objects))
    ]


def _job(runtime: kube.Object) -> kube.Object:
    """The Job that Trainer and JobSet make of a runtime, with the number of pods that they fill in."""
    nodes = runtime["spec"]["mlPolicy"]["numNodes"]
    spec = {**tests.jobs.replicated_job(runtime), "parallelism": nodes, "completions": nodes}
    metadata = {"name": f"{JOB}-node-0", "namespace": runtime["metadata"]["namespace"]}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


@pytest.fixture(scope="module")
def matrix(cluster: Cluster, api: kube.Kube) -> Iterator[Matrix]:
    """Namespaces in which the server judges what would be made there."""
    with ExitStack() as stack:
        profiles: Sequence[options.Profile] = get_args(options.Profile)
        spaces = {profile: stack.enter_context(_enforcing(cluster, api, profile)) for profile in profiles}
        yield Matrix(spaces, _undefined(cluster, api))


def _undefined(cluster: Cluster, api: kube.Kube) -> frozenset[str]:
    """The testbed lacks only Volcano's definitions; a cluster of one's own may lack those of all gangs."""
    if cluster.testbed is not None:
        _define(gang.VERSIONS["coscheduling"], "PodGroup", api)
        return kubernetes_schema.UNDEFINED
    return frozenset(version for version in gang.VERSIONS.values() if not _is_known(api, version, "PodGroup"))


def _define(version: str, kind: str, api: kube.Kube) -> None:
    """Has the server know a kind whose controller is not wanted here."""
    controllers.define(kubernetes_schema.definition(kind), api)
    until(f"{kind} to be known", lambda: _is_known(api, version, kind))


def _is_known(api: kube.Kube, version: str, kind: str) -> bool:
    try:
        api.collection(version, kind, "default")
    except kube.KubeError as error:
        if error.status != kube.NOT_FOUND:
            raise
        return False
    return True


@contextmanager
def _enforcing(cluster: Cluster, api: kube.Kube, profile: str) -> Iterator[Namespace]:
    """A namespace that refuses pods beyond the profile, and warns of workloads whose pods are."""
    labels = {f"pod-security.kubernetes.io/{mode}": profile for mode in ("enforce", "warn")}
    place = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"{profile}-{secrets.token_hex(3)}"}}
    api.apply({**place, "metadata": {**place["metadata"], "labels": labels}})  # type: ignore[dict-item]  # a mapping
    space = Namespace(place["metadata"]["name"], cluster, api)  # type: ignore[index]  # a mapping
    try:
        until("the account of pods", lambda: api.find(space.named("v1", "ServiceAccount", "default")))
        yield space
    finally:
        api.delete(place)  # what is in it ends by itself


@pytest.fixture
def target(request: pytest.FixtureRequest) -> str:
    """A column of the matrix, with what the cluster needs for it."""
    name = str(request.param)
    if name == "trainjob":
        request.getfixturevalue("trainer")
    return name


@pytest.mark.parametrize("target", options.TARGETS, indirect=True)
def test_the_server_takes_each_option_alone(matrix: Matrix, target: str) -> None:
    """In a namespace that enforces `restricted` unless the option says otherwise, and no wider one than it needs."""
    taken = options.alone(target)

    assert len(taken) > len(options.options()) / 2
    assert {str(option): faults for option, config in taken if (faults := matrix.faults(config))} == {}


@pytest.mark.parametrize("target", options.TARGETS, indirect=True)
def test_the_server_takes_random_combinations(matrix: Matrix, target: str, pytestconfig: pytest.Config) -> None:
    """500 in all: what options share, such as a list or a container, holds for each of them. `--seed` draws others."""
    drawn = options.combinations(pytestconfig.getoption("seed"), target)
    valid = ((chosen, config) for chosen, config in itertools.islice(drawn, 2 * COMBINATIONS) if config is not None)
    taken = dict(itertools.islice(valid, COMBINATIONS))

    assert len(taken) == COMBINATIONS, "fewer than half of the combinations are valid"
    assert {chosen: faults for chosen, config in taken.items() if (faults := matrix.faults(config))} == {}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.parent.name)
def test_the_server_takes_every_example(matrix: Matrix, example: Path, request: pytest.FixtureRequest) -> None:
    """What the README shows is what a real API server takes."""
    config = load(example)
    if config.kind == "TrainJob":
        request.getfixturevalue("trainer")

    assert matrix.faults(config) == []


@pytest.mark.parametrize("file", ["pod-monitor.yaml", "prometheus-rule.yaml"])
def test_the_server_takes_what_prometheus_gets(matrix: Matrix, cluster: Cluster, file: str) -> None:
    """The monitoring files, as the Prometheus operator's definitions judge them."""
    if cluster.testbed is None:
        pytest.skip("definitions of the Prometheus operator are put into the testbed alone")
    space, manifest = matrix.spaces["restricted"], yaml.safe_load((FOLDER / "monitoring" / file).read_text())
    _define(manifest["apiVersion"], manifest["kind"], space.api)

    assert space.unexpected_warnings(manifest) == []
