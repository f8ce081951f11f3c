"""The cluster itself: it has what the stories rely on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cluster import jobs, kube
from tests.cluster.cluster import MOUNT, READER, Namespace
from tests.cluster.targets import Target
from tests.cluster.testbed.layout import NODE_ADDRESS
from tests.cluster.testbed.network import BRIDGE_MAC
from tests.cluster.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


def test_containers_have_torch(space: Namespace) -> None:
    """A container of the image imports torch as an ordinary user without a passwd entry."""
    code = "import torch, os; print(torch.__version__, os.getuid())"

    said = space.cluster.run("-n", space.name, "exec", READER, "--", "python3", "-c", code)

    assert said.split()[1] == "1000"


def test_a_volume_reads_the_same_from_here_and_through_a_pod(space: Namespace) -> None:
    """The files that match, in the order of their names; nothing where none does."""
    write = f"cd {MOUNT} && echo second > b.txt && echo first > a.txt && echo other > c.json"
    space.cluster.run("-n", space.name, "exec", READER, "--", "sh", "-c", write)

    assert space.read("*.txt") == space.read_through_pod("*.txt") == "first\nsecond\n"
    assert space.read("*.yaml") == space.read_through_pod("*.yaml") == ""


def test_pods_resolve_names_of_services(space: Namespace) -> None:
    """A headless Service's name leads to its pod, and an address to the name of its Service."""
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "place"},
        "spec": {"clusterIP": "None", "selector": {"app": "place"}, "ports": [{"name": "any", "port": 1}]},
    }
    space.apply(service)
    space.api.patch(space.pod(READER), {"metadata": {"labels": {"app": "place"}}})
    address = space.api.get(space.pod(READER))["status"]["podIP"]
    code = "from socket import *; print(gethostbyname('place'), gethostbyaddr(gethostbyname('kubernetes.default'))[0])"
    expected = f"{address} kubernetes.default.svc.cluster.local"
    command = ("-n", space.name, "exec", READER, "--", "sh", "-c", f'python3 -c "{code}" || true')

    until("the name", lambda: space.cluster.run(*command).strip() == expected, describe=space.describe)


def test_pods_reach_the_dns_whatever_pods_come_and_go(space: Namespace) -> None:
    """The bridge keeps its own link address, so no pod's way to it becomes stale when another one leaves."""
    if space.cluster.testbed is None:
        pytest.skip("needs the testbed's own network")
    code = "from socket import *; gethostbyname('kubernetes.default'); print(open('/proc/net/arp').read())"

    said = space.cluster.run("-n", space.name, "exec", READER, "--", "python3", "-c", code)

    [gateway] = [line.split() for line in said.splitlines() if line.startswith(f"{NODE_ADDRESS} ")]
    assert BRIDGE_MAC in gateway


def test_the_webhook_refuses_what_the_definition_accepts(space: Namespace) -> None:
    """The operator's admission webhook is asked: it wants a container named `pytorch`."""
    job = jobs.objects("wrong", jobs.config(space, jobs.Training(), **jobs.CONTROL), "tuned")[-1]
    worker: Any = job["spec"]["pytorchReplicaSpecs"]["Worker"]
    worker["template"]["spec"]["containers"][0]["name"] = "other"

    with pytest.raises(kube.KubeError, match=r"admission webhook .* denied the request"):
        space.apply(job)


def test_pod_security_is_enforced(space: Namespace) -> None:
    """The namespace refuses a pod that may become root."""
    container = {"name": "root", "image": space.cluster.images[0]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "root"}, "spec": {"containers": [container]}}

    with pytest.raises(kube.KubeError, match='violates PodSecurity "restricted'):
        space.apply(pod)


def test_pods_have_cpu_figures(space: Namespace) -> None:
    """The metrics API knows the use of a running pod."""
    path = f"/apis/metrics.k8s.io/v1beta1/namespaces/{space.name}/pods/{READER}"

    def figures() -> list[Any]:
        try:
            return list(json.loads(space.api.request("GET", path))["containers"])
        except kube.KubeError:
            return []

    assert until("figures of the reader", figures, describe=space.describe)[0]["usage"].keys() == {"cpu", "memory"}


def test_plain_torchrun_trains(space: Namespace) -> None:
    """Two nodes of tuned torchrun meet, train, and the job succeeds with the exact weights."""
    training = jobs.Training()
    jobs.submit(space, "control", jobs.config(space, training, **jobs.CONTROL), "tuned")

    jobs.await_world(space, 2)
    jobs.finish(space, "control", training)

    assert {line["world"] for line in space.lines("*.jsonl")} == {2}


def test_the_server_takes_torchrun_on_every_workload_object(shared_space: Namespace, target: Target) -> None:
    """The control arms' objects, with an expert's settings; Trainer judges its TrainJob once the runtime is there."""
    settings = target.config(shared_space, jobs.Training(), **jobs.TORCHRUN[target.name])
    manifests = [each for each in jobs.objects("control", settings, "tuned") if each["kind"] != "TrainJob"]

    assert {each["kind"]: shared_space.unexpected_warnings(each) for each in manifests} == {
        each["kind"]: [] for each in manifests
    }
