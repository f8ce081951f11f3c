"""Jobs in a queue of the real Kueue: admitted as a whole, in part, or growing; and what Pulumi leaves to Kueue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from elastic_infra.cli.check import JOB_SET_FILE, JOB_SET_SETTINGS
from tests.cluster import jobs, kube
from tests.cluster.account import Account
from tests.cluster.cluster import Namespace, is_ready
from tests.cluster.slots import REQUEST, SLOT
from tests.cluster.stack import JobStack
from tests.cluster.targets import TARGETS, Target
from tests.cluster.test_errors import check
from tests.cluster.test_indexed_job import finish, uids
from tests.cluster.test_indexed_job import job as indexed_job
from tests.cluster.testbed import kwok
from tests.cluster.testbed.kueue import VERSION
from tests.cluster.testbed.trainer import JOB_SET
from tests.cluster.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900), pytest.mark.usefixtures("kueue")]
ROOT = Path(__file__).parents[2]
JOB, QUEUE = "indexed", "research"
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
PRIORITY = 100
FLAVOR_LABEL = "tests.elastic-infra/flavor"


def quota(space: Namespace, nodes: int) -> kube.Object:
    """A queue of the cluster for so many of the tests' nodes."""
    covered = {"cpu": f"{400 * nodes}m", "memory": f"{1200 * nodes}Mi"}
    resources = [{"name": name, "nominalQuota": amount} for name, amount in covered.items()]
    return {
        "apiVersion": VERSION,
        "kind": "ClusterQueue",
        "metadata": {"name": space.name},
        "spec": {
            "namespaceSelector": {},
            "preemption": {"withinClusterQueue": "LowerPriority"},
            "resourceGroups": [
                {"coveredResources": [*covered], "flavors": [{"name": space.name, "resources": resources}]}
            ],
        },
    }


def priority(name: str, value: int) -> kube.Object:
    """A priority of jobs in a queue."""
    return {"apiVersion": VERSION, "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value}


def urgent(space: Namespace) -> str:
    """The name of a priority that is higher than that of the tests' job."""
    return f"{space.name}-urgent"


@pytest.fixture
def queue(space: Namespace) -> Iterator[Namespace]:
    """A namespace with a queue that has quota for two nodes; its flavor has a label and a toleration."""
    named = {"metadata": {"name": space.name}, "apiVersion": VERSION}
    made: list[kube.Object] = [
        {
            **named,
            "kind": "ResourceFlavor",
            "spec": {
                "nodeLabels": {"kubernetes.io/os": "linux"},
                "tolerations": [{"key": FLAVOR_LABEL, "operator": "Exists"}],
            },
        },
        priority(space.name, PRIORITY),
        priority(urgent(space), 2 * PRIORITY),
        quota(space, 2),
    ]
    for each in made:
        space.api.apply(each)
    space.apply(
        {"apiVersion": VERSION, "kind": "LocalQueue", "metadata": {"name": QUEUE}, "spec": {"clusterQueue": space.name}}
    )
    yield space
    for each in made:
        space.api.delete(each)


def queued(space: Namespace, mode: str, training: jobs.Training, **changes: Any) -> dict[str, Any]:
    """The config of a job of one to three nodes in the queue."""
    settings = jobs.config(space, training, target="job", launcher={"metrics_port": 9100})
    placement = {"queue": QUEUE, "kueue": {"mode": mode, "priority_class": space.name}}
    # As many nodes as were asked for never come: the first round would wait for them.
    runtime = {**settings["runtime"], "startup_wait_seconds": 0}
    return {
        **settings,
        "elastic": {"nnodes": "1:3", "nproc_per_node": 1},
        "runtime": runtime,
        "placement": placement,
    } | changes


def spec(space: Namespace) -> dict[str, Any]:
    """The Job's spec as the cluster has it now."""
    found: dict[str, Any] = indexed_job(space)["spec"]
    return found


def test_a_part_of_the_job_is_admitted(queue: Namespace, stack: JobStack, operator: Account) -> None:
    """Quota for two of three nodes: two train. Pulumi neither shows nor takes back what Kueue wrote.

    A job that is made anew asks for all its nodes again. One that gives way comes back with what there is then.
    """
    settings = queued(queue, "partial", jobs.Training())
    created = stack.up(settings)
    jobs.await_world(queue, 2)
    admitted = spec(queue)
    settings["run_policy"] = {"active_deadline_seconds": 7200}
    updated = stack.up(settings)
    stack.refresh()
    after, refreshed = spec(queue), stack.preview(settings)
    scaled, seen = operator.run("scale", JOB, "3"), operator.run("status", JOB)
    queue.api.apply(quota(queue, 3))
    image = queue.cluster.images[1]
    changed_settings = {**settings, "image": image, "env": {**settings["env"], "TOY_IMAGE": image}}
    changed = stack.up(changed_settings)
    jobs.await_image(queue, image)
    jobs.await_world(queue, 3, after=jobs.last_step(queue))
    uid = indexed_job(queue)["metadata"]["uid"]
    given_way = gives_way(queue, TARGETS["job"], stack, changed_settings, nodes=2)
    finish(queue)

    assert created == dict.fromkeys(("launcher", "network_policy", "service", "token", "store", "workload"), "create")
    assert sizes(admitted) == sizes(after) == (2, 2)
    assert admitted["template"]["spec"]["nodeSelector"] == {"kubernetes.io/os": "linux"}
    assert FLAVOR_LABEL in [each.get("key") for each in admitted["template"]["spec"]["tolerations"]]
    assert (updated, after["activeDeadlineSeconds"], refreshed) == ({"workload": "update"}, 7200, {})
    assert (scaled.code, "Set the mode to 'elastic'" in scaled.err) == (2, True), scaled.err
    assert "2 of 2 nodes ready (1 to 3, set by Kueue" in seen.out, seen.out + seen.err
    assert changed["workload"] == "delete-replaced"
    assert given_way == ({}, {})
    assert (indexed_job(queue)["metadata"]["uid"], sizes(spec(queue))) == (uid, (2, 2))
    jobs.check_result(queue, jobs.Training())


def gives_way(
    queue: Namespace, target: Target, stack: JobStack, settings: dict[str, Any], nodes: int
) -> tuple[dict[str, str], dict[str, str]]:
    """The queue takes its nodes from the job, and then has quota for so many, which train.

    Returns what Pulumi shows and does while the job waits.
    """
    reopened = quota(queue, nodes)
    queue.api.apply({**reopened, "spec": {**reopened["spec"], "stopPolicy": "HoldAndDrain"}})
    until("no nodes", lambda: not target.nodes(queue, JOB), describe=queue.describe)
    seen = stack.preview(settings), stack.up(settings)
    queue.api.apply(reopened)
    jobs.await_world(queue, nodes, after=jobs.last_step(queue))
    return seen


def is_displaced(
    queue: Namespace, target: Target, stack: JobStack, settings: dict[str, Any]
) -> tuple[dict[str, str], dict[str, str]]:
    """A job of higher priority takes the place of both nodes, and they train again once it is gone.

    Returns what Pulumi shows and does while the job waits.
    """
    small = {"resources": jobs.IDLE["resources"], "elastic": {"nnodes": 1, "nproc_per_node": 1}}
    placement = {"queue": QUEUE, "kueue": {"priority_class": urgent(queue)}}
    objects = jobs.objects("other", jobs.config(queue, jobs.Training(), **small, placement=placement), "idle")
    for each in objects:
        queue.apply(each)
    picked = "app.kubernetes.io/instance=other"
    until(
        "the other job to have the place",
        lambda: not target.nodes(queue, JOB) and any(map(is_ready, queue.api.list("v1", "Pod", queue.name, picked))),
        describe=queue.describe,
    )
    seen = stack.preview(settings), stack.up(settings)
    for each in objects:
        queue.api.delete(each)
    jobs.await_world(queue, 2, after=jobs.last_step(queue))
    return seen


def sizes(now: dict[str, Any]) -> tuple[int, int]:
    """Both numbers of a Job's nodes."""
    return now["parallelism"], now["completions"]


def test_a_job_grows_into_its_quota_while_it_trains(queue: Namespace, stack: JobStack, operator: Account) -> None:
    """It begins with one node and grows to two; a third waits for quota while the two train, and comes with it."""
    training = jobs.Training()
    settings = queued(queue, "elastic", training)
    stack.up(settings)
    jobs.await_world(queue, 1)
    first = uids(queue)

    grown = operator.run("scale", JOB, "2")
    jobs.await_world(queue, 2, after=jobs.last_step(queue))
    second = uids(queue)
    beyond = operator.run("scale", JOB, "3")
    until("a third pod that waits", lambda: gates(queue) == 1, describe=queue.describe)
    jobs.await_step(queue, jobs.last_step(queue) + 10)
    waiting = (uids(queue), stack.preview(settings), stack.up(settings), spec(queue)["completions"])
    queue.api.apply(quota(queue, 3))
    jobs.await_world(queue, 3, after=jobs.last_step(queue))
    third = uids(queue)
    shrunk = operator.run("scale", JOB, "1")
    jobs.await_world(queue, 1, after=jobs.last_step(queue))
    stack.refresh()
    refreshed = stack.preview(settings)
    finish(queue)

    assert (grown.code, beyond.code, shrunk.code) == (0, 0, 0), grown.err + beyond.err + shrunk.err
    assert first.items() <= second.items() <= third.items()
    assert waiting == (second, {}, {}, 3)
    assert refreshed == {}
    jobs.check_result(queue, training)


def test_a_job_fills_its_quota_and_makes_room_in_its_queue(queue: Namespace, stack: JobStack) -> None:
    """It grows to the two nodes that have quota, asks in vain for a third, and gives one to a workload that waits.

    It has the node back when that workload has gone, and nothing of this is Pulumi's to take back.
    """
    training = jobs.Training()
    scaling = {"policy": "capacity", "probe_seconds": 3}
    settings = queued(queue, "elastic", training, autoscaling=scaling, rendezvous={"host": "dedicated"})
    stack.up(settings)
    jobs.await_world(queue, 2)
    until("a third pod that waits", lambda: gates(queue) == 1, describe=queue.describe)
    until("no pod that waits", lambda: gates(queue) == 0, describe=queue.describe)
    jobs.await_step(queue, jobs.last_step(queue) + 5)
    alone = len(uids(queue))
    placement = {"queue": QUEUE, "kueue": {"priority_class": queue.name}}
    elastic = {"nnodes": 1, "nproc_per_node": 1}
    other = jobs.objects("other", jobs.config(queue, training, elastic=elastic, placement=placement), "idle")
    for each in other:
        queue.apply(each)
    picked = "app.kubernetes.io/instance=other"
    until(
        "the other job to run",
        lambda: any(map(is_ready, queue.api.list("v1", "Pod", queue.name, picked))),
        describe=queue.describe,
    )
    jobs.await_world(queue, 1, after=jobs.last_step(queue))
    shown = stack.preview(settings), stack.up(settings)
    for each in other:
        queue.api.delete(each)
    jobs.await_world(queue, 2, after=jobs.last_step(queue))
    finish(queue)

    assert alone == 2
    assert shown == ({}, {})
    jobs.check_result(queue, training)


def gates(space: Namespace) -> int:
    """How many of the job's pods Kueue holds back."""
    found = space.api.list("v1", "Pod", space.name, f"batch.kubernetes.io/job-name={JOB}")
    return sum(bool(pod["spec"].get("schedulingGates")) for pod in found)


def test_a_job_waits_as_a_whole_and_another_queue_makes_it_anew(queue: Namespace, stack: JobStack) -> None:
    """Three nodes wait for quota for three; what Kueue would refuse to change is a replacement, and is admitted.

    A size that changes ends all pods: Kueue suspends the job, and admits it again with that size.
    """
    training = jobs.Training()
    settings = queued(queue, "whole", training, elastic={"nnodes": "1:3", "initial_nodes": 3, "nproc_per_node": 1})
    stack.up(settings)
    until("a workload", lambda: workloads(queue), describe=queue.describe)
    held = (spec(queue)["suspend"], uids(queue), workloads(queue)[0]["spec"]["priority"])
    queue.api.apply(quota(queue, 3))
    jobs.await_world(queue, 3)
    uid = indexed_job(queue)["metadata"]["uid"]
    other = {"metadata": {"name": "other"}, "spec": {"clusterQueue": queue.name}}
    queue.apply({"apiVersion": VERSION, "kind": "LocalQueue", **other})
    changed = stack.up({**settings, "placement": {"queue": "other"}})
    jobs.await_world(queue, 3, after=jobs.last_step(queue))
    anew, before = indexed_job(queue)["metadata"]["uid"], uids(queue)
    resized = {"spec": {"parallelism": 2, "completions": 2}}
    queue.api.patch(queue.named("batch/v1", "Job", JOB), resized)
    jobs.await_world(queue, 2, after=jobs.last_step(queue))
    after = uids(queue)
    finish(queue)

    assert held == (True, {}, PRIORITY)
    assert changed == {"workload": "delete-replaced"}
    assert anew != uid
    assert (indexed_job(queue)["metadata"]["uid"], sorted(after)) == (anew, ["0", "1"])
    assert set(before.values()).isdisjoint(after.values())
    jobs.check_result(queue, training)


@pytest.mark.parametrize("target", ["pytorchjob", "trainjob"], indirect=True)
def test_every_workload_object_waits_gives_way_and_comes_back(
    queue: Namespace, stack: JobStack, operator: Account, target: Target
) -> None:
    """A PyTorchJob and a TrainJob wait for quota for all nodes, give way to a job of higher priority, and go on.

    Pulumi neither shows nor takes back what Kueue wrote. A job that is made anew for another image is admitted again,
    and the queue has its quota back at the end.
    """
    training = jobs.Training()
    elastic = {"nnodes": "1:2", "nproc_per_node": 1}
    settings = queued(queue, "whole", training, target=target.name, elastic=elastic)
    queue.api.apply(quota(queue, 1))
    stack.up(settings)
    until("a workload", lambda: workloads(queue), describe=queue.describe)
    held = (target.nodes(queue, JOB), operator.run("status", JOB).out)

    queue.api.apply(quota(queue, 2))
    jobs.await_world(queue, 2)
    nodes = target.nodes(queue, JOB)
    stack.refresh()
    shown = (stack.preview(settings), stack.up(settings))
    image = queue.cluster.images[1]
    settings = {**settings, "image": image, "env": {**settings["env"], "TOY_IMAGE": image}}
    changed = stack.up(settings)
    jobs.await_image(queue, image)
    jobs.await_world(queue, 2, after=jobs.last_step(queue))
    displaced = is_displaced(queue, target, stack, settings)
    jobs.tell_to_finish(queue)
    target.await_end(queue, JOB)
    until("quota that is free", lambda: "Finished" in said(workloads(queue)[0]), describe=queue.describe)

    assert held[0] == {}
    assert "waits in its queue" in held[1]
    assert shown == displaced == ({}, {})
    assert changed["workload"] == "delete-replaced"
    assert workloads(queue)[0]["spec"]["priority"] == PRIORITY
    for pod in nodes.values():
        assert pod["spec"]["nodeSelector"] == {"kubernetes.io/os": "linux"}
        assert FLAVOR_LABEL in [each.get("key") for each in pod["spec"]["tolerations"]]
    jobs.check_result(queue, training)


def workloads(space: Namespace) -> list[kube.Object]:
    """What Kueue admits in the namespace."""
    return space.api.list(VERSION, "Workload", space.name)


def said(told: kube.Object) -> set[str]:
    """The conditions of an object that are true."""
    return {each["type"] for each in told["status"]["conditions"] if each["status"] == "True"}


@pytest.fixture
def racks(space: Namespace, nodes: kwok.Nodes) -> Iterator[Namespace]:
    """A namespace with a queue for three cluster nodes in two zones, which Kueue knows by a Topology."""
    for host in ("east-1", "east-2", "west-1"):
        nodes.add(host, {SLOT: "2"}, labels={ZONE: host.partition("-")[0]})
    named = {"metadata": {"name": space.name}, "apiVersion": VERSION}
    flavor = {"nodeLabels": {kwok.KEY: ""}, "tolerations": [kwok.TOLERATION], "topologyName": space.name}
    covered = {"cpu": "12", "memory": "24Gi", SLOT: "6"}
    resources = [{"name": name, "nominalQuota": amount} for name, amount in covered.items()]
    group = {"coveredResources": [*covered], "flavors": [{"name": space.name, "resources": resources}]}
    made: list[kube.Object] = [
        {**named, "kind": "Topology", "spec": {"levels": [{"nodeLabel": ZONE}, {"nodeLabel": HOST}]}},
        {**named, "kind": "ResourceFlavor", "spec": flavor},
        {**named, "kind": "ClusterQueue", "spec": {"namespaceSelector": {}, "resourceGroups": [group]}},
    ]
    for each in made:
        space.api.apply(each)
    local = {"metadata": {"name": QUEUE}, "spec": {"clusterQueue": space.name}}
    space.apply({"apiVersion": VERSION, "kind": "LocalQueue", **local})
    yield space
    for each in reversed(made):
        space.api.delete(each)


def packed(space: Namespace, target: str, count: int, *, required: bool) -> list[int]:
    """How many pods of a job of so many nodes each zone has, the fewest first; empty where the job is not admitted."""
    settings = jobs.config(
        space,
        jobs.Training(),
        target=target,
        elastic={"nnodes": f"1:{count}", "initial_nodes": count, "nproc_per_node": 1},
        resources={"cpu": "50m", "memory": "200Mi", "gpu": REQUEST},
        placement={"queue": QUEUE, "topology_pack": {"topology_key": ZONE, "required": required}},
    )
    objects = jobs.objects(JOB, settings, "idle")
    for each in objects:
        space.apply(each)

    def hosts() -> list[str]:
        return [str(pod["spec"]["nodeName"]) for pod in space.workers(JOB) if "nodeName" in pod["spec"]]

    def is_judged() -> bool:
        told = [each for workload in workloads(space) for each in workload.get("status", {}).get("conditions", ())]
        return len(hosts()) == count or ("QuotaReserved", "False") in [(each["type"], each["status"]) for each in told]

    until("the job to be judged", is_judged, describe=space.describe)
    found = sorted(Counter(host.partition("-")[0] for host in hosts()).values())
    for each in objects:
        space.api.delete(each)
    until("no workload", lambda: not workloads(space) and not space.workers(JOB), describe=space.describe)
    return found


@pytest.mark.parametrize("target", ["job", "pytorchjob"])
def test_the_pods_of_a_job_are_packed_into_a_zone(racks: Namespace, target: str) -> None:
    """All in a zone with room for them; where none has it, in as few as possible, or nowhere if one is required."""
    three = packed(racks, target, 3, required=True)
    five, waits = (packed(racks, target, 5, required=required) for required in (False, True))

    assert (three, five, waits) == ([3], [1, 4], [])


def test_kueue_takes_the_queue_of_the_example(space: Namespace) -> None:
    """Its definitions have every field, and its webhooks find no fault."""
    text = (ROOT / "examples/queued/kueue.yaml").read_text().replace("namespace: research", f"namespace: {space.name}")
    tried = space.cluster.run("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-", text=text)

    made = [line.partition(".")[0] for line in tried.splitlines()]
    assert made == ["resourceflavor", "clusterqueue", "localqueue", "workloadpriorityclass"]


def test_a_job_is_checked_against_the_queue_and_the_gate(
    queue: Namespace, elastic_job_sets: Callable[[], AbstractContextManager[None]], tmp_path: Path
) -> None:
    """`check` finds Kueue and the queue, and names one that is not there; `--suggest` reads JobSet's own settings."""

    def told(*options: str, **changes: Any) -> tuple[int, str]:
        return check(queue.cluster, queue.cluster.kubeconfig, tmp_path, *options, namespace=queue.name, **changes)

    ready = told(target="job", placement={"queue": QUEUE})
    missing = told(target="trainjob", placement={"queue": "nowhere"})
    with published(queue):
        off = told("--suggest", placement={"queue": QUEUE})
    with elastic_job_sets(), published(queue):
        on = told("--suggest")

    assert ready == (0, f"The cluster can run train in namespace {queue.name}.\n")
    assert (missing[0], missing[1].splitlines()) == (1, [missing[1].rstrip()])
    assert missing[1].startswith(f"The namespace {queue.name} has no queue nowhere (a LocalQueue of Kueue)")
    gate = "JobSet's feature gate ElasticJobSet is"
    targets = ["pytorchjob: yes", "job: yes"]
    assert (off[0], off[1].splitlines()) == (0, [*targets, f"trainjob: yes ({gate} off)"])
    assert (on[0], on[1].splitlines()) == (
        0,
        [*targets, f"trainjob: yes ({gate} on: elastic.elastic_job_set moves the size)"],
    )


@contextmanager
def published(space: Namespace) -> Iterator[None]:
    """The settings with which the testbed's JobSet runs stand meanwhile where its manifests put them."""
    assert space.cluster.testbed is not None
    namespace, name = JOB_SET_SETTINGS[0]
    settings = (space.cluster.testbed / f"{JOB_SET.program}.json").read_text()
    metadata = {"name": name, "namespace": namespace}
    told = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {JOB_SET_FILE: settings}}
    space.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    space.api.apply(told)
    yield
    space.api.delete(told)
