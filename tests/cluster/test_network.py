"""Who reaches the pods of a job, tried by real connections while the cluster's network enforces NetworkPolicies.

The network is the testbed's with an enforcer of its own (`testbed/enforcer.py`): this is no proof for any CNI plugin.
"""

from __future__ import annotations

import pytest

from tests.cluster import jobs
from tests.cluster.cluster import READER, Namespace
from tests.cluster.faults import store_pods
from tests.cluster.targets import Target
from tests.cluster.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
JOB, METRICS, RENDEZVOUS = "closed", 9100, 29400
LISTEN = """
import socket, time
server = socket.create_server(("", 0))
print(server.getsockname()[1], flush=True)
time.sleep(3600)
"""
"""A port that the system chooses, as NCCL and gloo have; the kernel answers on it."""
CONNECT = """
import socket, sys
for port in sys.argv[2:]:
    try:
        socket.create_connection((sys.argv[1], int(port)), 2).close()
    except TimeoutError:
        print("dropped")
    except ConnectionRefusedError:
        print("refused")
    else:
        print("open")
"""
LISTENING = """
for name in ("tcp", "tcp6"):
    for line in open(f"/proc/net/{name}").readlines()[1:]:
        (host, port), state = line.split()[1].split(":"), line.split()[3]
        if state == "0A" and not host.endswith(("0100007F", "01000000")):
            print(int(port, 16))
"""
"""The TCP ports on which a pod can be reached from outside."""


def run(space: Namespace, pod: str, *command: str) -> list[str]:
    """What a command prints that runs in a pod."""
    return space.cluster.run("-n", space.name, "exec", pod, "--", *command).split()


def listen(space: Namespace, pod: str) -> int:
    """Opens a port in a pod, until its end."""
    background = f"python3 -c '{LISTEN}' </dev/null >/tmp/port 2>&1 & until [ -s /tmp/port ]; do sleep 0.1; done"
    (port,) = run(space, pod, "sh", "-c", f"{background}; cat /tmp/port")
    return int(port)


def address(space: Namespace, pod: str) -> str:
    """The address at which other pods reach this one."""
    return str(space.api.get(space.pod(pod))["status"]["podIP"])


def reach(space: Namespace, pod: str, address: str, *ports: int) -> set[str]:
    """What becomes of connections from a pod to the ports of another: `open`, `refused` and `dropped`."""
    return {*run(space, pod, "python3", "-c", CONNECT, address, *map(str, ports))}


@pytest.mark.usefixtures("enforced")
def test_nobody_but_the_job_comes_in(space: Namespace, shared_space: Namespace, target: Target) -> None:
    """Its pods reach each other on any port; strangers of this and another namespace reach the status port alone.

    The job starts, takes in a new node and ends well while this is enforced. Without the policy anyone comes in.
    """
    training = jobs.Training()
    target.start(space, JOB, target.config(space, training, launcher={"metrics_port": METRICS}))
    jobs.await_world(space, 2)
    one, other = (pod["metadata"]["name"] for pod in target.nodes(space, JOB).values())
    node, store, port = address(space, one), address(space, store_pods(space)[0]), listen(space, one)
    listening = {*map(int, run(space, one, "python3", "-c", LISTENING))}

    def strangers(place: str, *ports: int) -> list[set[str]]:
        return [reach(each, READER, place, *ports) for each in (space, shared_space)]

    shut = [*strangers(node, *(listening - {METRICS})), *strangers(store, RENDEZVOUS)]
    seen = [*strangers(node, METRICS), reach(space, other, node, port, METRICS), reach(space, other, store, RENDEZVOUS)]
    target.grow(space, JOB)
    jobs.await_world(space, 3, after=jobs.last_step(space))
    space.api.delete(space.named("networking.k8s.io/v1", "NetworkPolicy", f"{JOB}-network"))
    until("the job to be open", lambda: strangers(node, port) == [{"open"}] * 2)
    jobs.tell_to_finish(space)
    target.await_end(space, JOB)

    assert port in listening - {METRICS}
    assert len(listening) > 2, "the test's port, the status port, and those of the training"
    assert shut == [{"dropped"}] * 4
    assert seen == [{"open"}] * 4
    jobs.check_result(space, training)


@pytest.mark.usefixtures("enforced")
def test_a_single_pod_is_closed_too(space: Namespace, shared_space: Namespace) -> None:
    """Strangers reach the status port of its pod alone; its two workers meet inside the pod, and it ends well."""
    training, elastic = jobs.Training(), {"nnodes": 1, "nproc_per_node": 2}
    jobs.submit(space, JOB, jobs.config(space, training, elastic=elastic, launcher={"metrics_port": METRICS}), "ours")
    jobs.await_world(space, 2)
    (pod,) = (pod["metadata"]["name"] for pod in space.workers(JOB))
    place, port = address(space, pod), listen(space, pod)
    listening = {*map(int, run(space, pod, "python3", "-c", LISTENING))}
    shut = [reach(each, READER, place, *(listening - {METRICS})) for each in (space, shared_space)]
    seen = [reach(each, READER, place, METRICS) for each in (space, shared_space)]
    jobs.tell_to_finish(space)
    job = space.named("batch/v1", "Job", JOB)
    until("the job to succeed", lambda: space.api.get(job)["status"].get("succeeded") == 1, describe=space.describe)

    assert port in listening - {METRICS}
    assert (shut, seen) == ([{"dropped"}] * 2, [{"open"}] * 2)
    jobs.check_result(space, training)
