"""What the rendered objects become on a real API server with a real operator."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from elastic_infra.config.load import parse_mapping
from tests.cluster import jobs, kube
from tests.cluster.cluster import JOB_LABEL, Namespace, restarts
from tests.cluster.stack import job_stack
from tests.cluster.targets import Target
from tests.cluster.waiting import until
from tests.engine.engine import Engine

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
JOB = "shape"
ROOT = Path(__file__).parents[2]
OVERLAYS = dict(
    re.findall(r"(?ms)^## (.*?)\n(?:(?!^## ).)*?^```yaml\n(.*?)^```", (ROOT / "docs/overlays.md").read_text())
)
"""What the page on overlays shows, by heading."""
LONG = jobs.Training()
UNKNOWN_METRIC = {"metrics": [{"type": "external", "name": "nobody-reports-it", "target": "1"}]}
"""An autoscaler that never knows what to do leaves the size to the test."""
OPERATORS = {
    "PYTHONUNBUFFERED",
    *(f"PET_{name}" for name in ("NPROC_PER_NODE", "RDZV_ENDPOINT", "RDZV_BACKEND", "NNODES", "MAX_RESTARTS")),
    *("PET_RDZV_ID", "PET_RDZV_CONF"),
}
"""The variables that the operator adds to a node of an elastic job without a master."""
FEATURES: dict[str, dict[str, Any]] = {
    "plain": {},
    "store": {"rendezvous": {"host": "dedicated"}},
    "autoscaled": {"autoscaling": {"metrics": [{"type": "cpu", "target": 80}]}},
    "guarded": {"disruption": {"pod_disruption_budget": True}, "security": {"read_only_root": True}},
    "limited": {"shared_memory": {"size": "64Mi"}, "run_policy": {"backoff_limit": 2, "suspend": True}},
    "single": {"elastic": {"nnodes": 1}},
    "indexed": {"target": "job", "disruption": {"pod_disruption_budget": True}, "run_policy": {"backoff_limit": -1}},
    "indexed-store-on-0": {"target": "job", "rendezvous": {"host": "worker0"}},
    "watched": {"launcher": {"metrics_port": 9400}},
    "open": {"security": {"network_policy": False}},
}
PODS: dict[str, dict[str, Any]] = {
    **{heading: dict(parse_mapping(text)) for heading, text in OVERLAYS.items()},
    "TPUs, large pages and claims": {
        "resources": {
            "memory": "1Gi",
            "gpu": {"count": 4, "vendor": "google"},
            "hugepages": {"amount": "64Mi"},
            "claims": [{"name": "nics", "template": "nics"}],
        }
    },
    "Neuron and EFA": {
        "resources": {"gpu": {"count": 16, "vendor": "neuron"}, "rdma": {"resource": "vpc.amazonaws.com/efa"}},
        "security": {"profile": "baseline", "run_as_user": 0},
    },
}
"""What pods can have beside what the jobs of these tests have."""


@pytest.fixture(scope="module")
def running(shared_space: Namespace) -> Iterator[Namespace]:
    """A namespace where a job with a 64 MiB /dev/shm runs two of at most four nodes, under a memory quota."""
    quota = {"metadata": {"name": "memory"}, "spec": {"hard": {"limits.memory": "8Gi"}}}
    shared_space.apply({"apiVersion": "v1", "kind": "ResourceQuota", **quota})
    elastic = {"nnodes": "2:4", "initial_nodes": 2, "nproc_per_node": 1}
    size = {"shared_memory": {"size": "64Mi"}, "autoscaling": UNKNOWN_METRIC, "elastic": elastic}
    jobs.submit(shared_space, JOB, jobs.config(shared_space, LONG, **jobs.IDLE, **size), "idle")
    shared_space.await_running(JOB, 2)
    yield shared_space
    shared_space.api.delete(shared_space.job(JOB), propagation="Foreground")


def container(pod: kube.Object) -> dict[str, Any]:
    """The pod's training container."""
    return dict(pod["spec"]["containers"][0])


@pytest.mark.parametrize("feature", FEATURES)
def test_the_server_accepts_every_object_without_a_warning(shared_space: Namespace, feature: str) -> None:
    """A dry run with strict checks, webhook included, finds no unknown field and nothing to warn of."""
    for manifest in jobs.objects(feature, jobs.config(shared_space, LONG, **FEATURES[feature]), "ours"):
        assert shared_space.unexpected_warnings(manifest) == []


@pytest.mark.parametrize("target", ["pytorchjob", "job"])
@pytest.mark.parametrize("case", PODS)
def test_the_server_accepts_every_pod(shared_space: Namespace, case: str, target: str) -> None:
    """Each overlay of the page and each device, in every workload and as the pod that its controller makes of it.

    What gives up the restricted profile is for namespaces that enforce none, such as `default` here.
    """
    settings = PODS[case]
    namespace = "default" if "security" in settings else shared_space.name
    config = {**jobs.config(shared_space, LONG, target=target, **settings), "namespace": namespace}
    rendered = jobs.objects("patched", config, "ours")
    (workload,) = (manifest for manifest in rendered if manifest["kind"] in {"PyTorchJob", "Job"})
    spec = workload["spec"]
    template = spec["pytorchReplicaSpecs"]["Worker"]["template"] if target == "pytorchjob" else spec["template"]
    metadata = {**template["metadata"], "name": "patched", "namespace": namespace}

    for manifest in (*rendered, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}):
        assert shared_space.unexpected_warnings(manifest) == []


def test_a_node_has_exactly_the_environment_we_know(running: Namespace) -> None:
    """The operator adds what is documented, no init container, and nothing that contradicts ours."""
    rendered = jobs.objects(JOB, jobs.config(running, LONG, **jobs.IDLE, autoscaling=UNKNOWN_METRIC), "idle")
    job = next(m for m in rendered if m["kind"] == "PyTorchJob")
    worker = job["spec"]["pytorchReplicaSpecs"]["Worker"]
    ours = {entry["name"] for entry in worker["template"]["spec"]["containers"][0]["env"]}

    pod = running.api.get(running.pod(f"{JOB}-worker-0"))
    entries = [(entry["name"], str(entry.get("value"))) for entry in container(pod)["env"]]
    values = dict(entries)

    assert values.keys() == ours | OPERATORS
    assert len(set(entries)) == len(values)
    assert not pod["spec"].get("initContainers")
    assert values["PET_RDZV_ENDPOINT"] == f"{JOB}-worker-0:29400"
    assert values["PET_NNODES"] == "2:4"
    assert values["PET_NPROC_PER_NODE"] == "1"


def test_the_scale_subresource_selects_the_nodes(running: Namespace) -> None:
    """The size is there, and the selector finds the job's pods and no other."""
    path = f"{running.api.path(running.job(JOB))}/scale"

    def selected() -> str:
        return str(running.api.call("GET", path)["status"].get("selector", ""))

    selector = until("a selector", selected, describe=running.describe)
    found = {pod["metadata"]["name"] for pod in running.api.list("v1", "Pod", running.name, selector)}

    assert running.api.call("GET", path)["spec"]["replicas"] == 2
    assert found == {f"{JOB}-worker-0", f"{JOB}-worker-1"}


def test_one_autoscaler_follows_the_job(running: Namespace) -> None:
    """It is ours, not the operator's, and Kubernetes finds the job's pods through it without a doubt."""
    found = running.api.list("autoscaling/v2", "HorizontalPodAutoscaler", running.name)

    assert [hpa["metadata"]["name"] for hpa in found] == [f"{JOB}-hpa"]
    assert "ownerReferences" not in found[0]["metadata"]
    assert found[0]["spec"]["scaleTargetRef"]["name"] == JOB

    def able() -> bool:
        conditions = running.api.get(found[0]).get("status", {}).get("conditions", [])
        reasons = {c["type"]: c["reason"] for c in conditions}
        doubt = {"AmbiguousSelector", "InvalidSelector"}
        return "ScalingActive" in reasons and reasons["ScalingActive"] not in doubt

    until("the autoscaler to know its pods", able, describe=running.describe)


def test_the_operators_own_autoscaler_is_the_only_one(shared_space: Namespace) -> None:
    """Asked for, the operator makes one with the job's name, and we make none."""
    scaling = {"owner": "operator", **UNKNOWN_METRIC}
    settings = jobs.config(shared_space, LONG, **jobs.IDLE, autoscaling=scaling)
    jobs.submit(shared_space, "theirs", settings, "idle")

    def named() -> list[str]:
        found = shared_space.api.list("autoscaling/v2", "HorizontalPodAutoscaler", shared_space.name)
        return [hpa["metadata"]["name"] for hpa in found if hpa["spec"]["scaleTargetRef"]["name"] == "theirs"]

    assert until("the autoscaler", named, describe=shared_space.describe) == ["theirs"]

    shared_space.api.delete(shared_space.job("theirs"), propagation="Foreground")


def test_shared_memory_is_as_large_as_asked(running: Namespace) -> None:
    """/dev/shm has its size limit, and writing beyond it fails in the program rather than evicting the pod."""
    write = "dd if=/dev/zero of=/dev/shm/full bs=1M count=80 2>&1 | grep -c 'No space left'; rm /dev/shm/full"
    name = f"{JOB}-worker-1"

    size = running.cluster.run(
        "-n", running.name, "exec", name, "--", "df", "--output=size", "--block-size=1M", "/dev/shm"
    )
    full = running.cluster.run("-n", running.name, "exec", name, "--", "sh", "-c", write)

    assert size.split()[-1] == "64"
    assert full.strip() == "1"
    assert restarts(running.api.get(running.pod(name))) == 0


def test_a_size_set_by_others_stays(space: Namespace, engine: Engine) -> None:
    """Scaled to 4 and to 2 behind Pulumi's back: no diff, no conflict, first pods untouched; destroy leaves nothing."""
    elastic = {"nnodes": "1:4", "initial_nodes": 2, "nproc_per_node": 1}
    settings = jobs.config(space, LONG, **jobs.IDLE, autoscaling=UNKNOWN_METRIC, elastic=elastic)
    stack = job_stack(engine, JOB, "idle")
    stack.up(settings)
    first = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in space.await_running(JOB, 2)}

    space.scale(JOB, 4)
    four = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in space.await_running(JOB, 4)}
    counts = [stack.preview(settings), stack.up(settings)]
    stack.refresh()
    counts += [stack.preview(settings), stack.up(settings)]
    in_place = stack.up({**settings, "run_policy": {"backoff_limit": 17}})
    live = space.api.get(space.job(JOB))["spec"]
    space.scale(JOB, 2)
    two = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in space.await_running(JOB, 2)}
    stack.destroy()

    assert counts == [{}, {}, {}, {}]
    assert in_place == {"workload": "update"}
    assert live["pytorchReplicaSpecs"]["Worker"]["replicas"] == 4
    assert live["runPolicy"]["backoffLimit"] == 17
    assert first == two
    assert first.items() <= four.items()
    for version, kind in (("v1", "Pod"), ("v1", "Service"), ("autoscaling/v2", "HorizontalPodAutoscaler")):
        left = space.api.list(version, kind, space.name)
        assert [o["metadata"]["name"] for o in left if o["metadata"]["name"].startswith(JOB)] == []


@pytest.mark.parametrize("target", ["pytorchjob", "job"], indirect=True)
def test_the_first_node_to_finish_ends_the_job(space: Namespace, engine: Engine, target: Target) -> None:
    """The job succeeds, the rest is deleted, the finished pod stays for its log, and `up` starts nothing again."""

    def pods() -> list[kube.Object]:
        return space.api.list("v1", "Pod", space.name, f"app.kubernetes.io/instance={JOB}")

    settings = jobs.config(space, LONG, **jobs.IDLE, target=target.name, env={"TOY_QUITS": "*-0"})
    stack = job_stack(engine, JOB, "idle")
    stack.up(settings)
    until("two pods", lambda: len(pods()) == 2, describe=space.describe)
    target.await_end(space, JOB)
    until("one pod", lambda: len(pods()) == 1, describe=space.describe)
    again = stack.up(settings)

    assert again == {}
    assert [(pod["status"]["phase"], pod["metadata"]["labels"][target.index]) for pod in pods()] == [("Succeeded", "0")]


def test_suspension_keeps_what_is_ours(space: Namespace, engine: Engine) -> None:
    """The operator's pods and Services go; our Service and autoscaler stay and point at the job."""
    settings = jobs.config(space, LONG, **jobs.IDLE, autoscaling=UNKNOWN_METRIC)
    stack = job_stack(engine, JOB, "idle")
    stack.up({**settings, "run_policy": {"suspend": False}})
    space.await_running(JOB, 2)

    stack.up({**settings, "run_policy": {"suspend": True}})
    until("no pods", lambda: not space.api.list("v1", "Pod", space.name, f"{JOB_LABEL}={JOB}"))
    services = [s["metadata"]["name"] for s in space.api.list("v1", "Service", space.name)]
    scalers = space.api.list("autoscaling/v2", "HorizontalPodAutoscaler", space.name)

    assert services == [f"{JOB}-rdzv"]
    assert [s["metadata"]["name"] for s in scalers] == [f"{JOB}-hpa"]
