"""A cluster as the tests see it: the testbed, or the user's own; and a namespace of it that a test has to itself."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from elastic_infra.manifests.metadata import COMPONENT, INSTANCE
from tests.cluster import kube
from tests.cluster.testbed import lifecycle
from tests.cluster.waiting import until

Profile = Literal["restricted", "baseline", "privileged"]
JOB_LABEL = "training.kubeflow.org/job-name"
CLAIM = "checkpoints"
READER = "reader"
MOUNT = "/checkpoints"
HEADLESS = '299 - "spec.SessionAffinity is ignored for headless services"'
"""Kubernetes 1.34 says this of every headless Service: it fills in the default, then warns of it."""
HOLD = "tests.elastic-infra/hold"
"""The finalizer of a pod that a test wants to read after its end."""


@dataclass(frozen=True)
class Cluster:
    """How to reach a cluster and what is particular to it."""

    kubectl: str
    """The program."""
    kubeconfig: Path
    images: tuple[str, str]
    """Two names of images that hold Python and torch."""
    testbed: Path | None = None
    """The testbed's folder; None on a cluster of the user's own."""
    storage_class: str = ""
    """Class of ReadWriteMany volumes, on a cluster that makes its own."""

    def run(self, *arguments: str, text: str | None = None) -> str:
        """Runs `kubectl` and returns its output; raises `AssertionError` with what it said."""
        command = (self.kubectl, f"--kubeconfig={self.kubeconfig}", *arguments)
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    @contextmanager
    def client(self, folder: Path) -> Iterator[kube.Kube]:
        """The API as a client, through one `kubectl proxy`, which knows every way to log in."""
        socket = folder / "api.sock"
        command = (
            self.kubectl,
            f"--kubeconfig={self.kubeconfig}",
            "proxy",
            f"--unix-socket={socket}",
            "--reject-methods=",
            "--reject-paths=",
        )
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as proxy:
            try:
                until("kubectl proxy to listen", socket.exists, 30)
                yield kube.Kube(kube.over_unix_socket(socket))
            finally:
                proxy.terminate()


@dataclass(frozen=True)
class Namespace:
    """One namespace with a volume for checkpoints and a pod that reads it."""

    name: str
    cluster: Cluster
    api: kube.Kube

    def apply(self, manifest: kube.Object) -> kube.Object:
        """Applies an object of this namespace."""
        metadata = {"namespace": self.name, **manifest["metadata"]}
        return self.api.apply({**manifest, "metadata": metadata})

    def unexpected_warnings(self, manifest: kube.Object) -> list[str]:
        """What the server would warn of, or refuse, but for what it says of every such object."""
        return [warning for warning in self.api.warnings(manifest) if warning != HEADLESS]

    def named(self, api_version: str, kind: str, name: str) -> kube.Object:
        """What names an object of this namespace to the client."""
        return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": self.name}}

    def job(self, name: str) -> kube.Object:
        """What names a PyTorchJob."""
        return self.named("kubeflow.org/v1", "PyTorchJob", name)

    def pod(self, name: str) -> kube.Object:
        """What names a pod."""
        return self.named("v1", "Pod", name)

    def pods(self, job: str) -> list[kube.Object]:
        """The job's pods that are not on their way out, by name."""
        found = self.api.list("v1", "Pod", self.name, f"{JOB_LABEL}={job}")
        alive = [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]
        return sorted(alive, key=lambda pod: str(pod["metadata"]["name"]))

    def workers(self, job: str) -> list[kube.Object]:
        """The pods of the job's nodes that run or wait, and stay, whatever its `target`."""
        found = self.api.list("v1", "Pod", self.name, f"{INSTANCE}={job},{COMPONENT}=worker")
        return [
            pod
            for pod in found
            if "deletionTimestamp" not in pod["metadata"] and pod["status"]["phase"] in {"Pending", "Running"}
        ]

    def uids(self, job: str) -> dict[str, str]:
        """Identity of the job's pods by name: a recreated pod has another uid."""
        return {str(pod["metadata"]["name"]): str(pod["metadata"]["uid"]) for pod in self.pods(job)}

    def starts(self, job: str) -> dict[str, int]:
        """How often a container was started, by the identity of its pod: of all pods that the job ever had."""
        counts: Counter[str] = Counter()
        for event in self.api.list("v1", "Event", self.name):
            pod = event["involvedObject"]
            if event["reason"] == "Started" and pod["name"].startswith(f"{job}-worker-"):
                counts[pod["uid"]] += int(event.get("count") or 1)
        return dict(counts)

    @contextmanager
    def held(self, pod: str) -> Iterator[None]:
        """Meanwhile the pod, once deleted, ends and stays to be read; it is let go afterwards."""
        self.api.patch(self.pod(pod), {"metadata": {"finalizers": [HOLD]}})
        try:
            yield
        finally:
            self.api.patch(self.pod(pod), {"metadata": {"finalizers": None}})

    def exit_codes(self, pod: str) -> list[int]:
        """Of the pod's containers that have ended."""
        states = [status["state"] for status in self.api.get(self.pod(pod))["status"].get("containerStatuses", [])]
        return [int(state["terminated"]["exitCode"]) for state in states if "terminated" in state]

    def await_running(self, job: str, count: int) -> list[kube.Object]:
        """Returns exactly `count` pods of the job once all of them run and are ready."""

        def settled() -> list[kube.Object]:
            pods = self.pods(job)
            return pods if len(pods) == count and all(is_ready(pod) for pod in pods) else []

        return until(f"{count} running pods of {job}", settled, describe=self.describe)

    def conditions(self, job: str) -> set[str]:
        """The job's conditions that are true now."""
        found = self.api.get(self.job(job)).get("status", {}).get("conditions", [])
        return {condition["type"] for condition in found if condition["status"] == "True"}

    def await_condition(self, job: str, condition: str, seconds: float = 300) -> None:
        """Returns once the job says so."""

        def said() -> bool:
            current = self.conditions(job)
            assert condition == "Failed" or "Failed" not in current, self.describe()
            return condition in current

        until(f"{job} to be {condition}", said, seconds, describe=self.describe)

    def scale(self, job: str, replicas: int) -> None:
        """Sets the number of nodes as an autoscaler does."""
        self.api.patch(self.job(job), {"spec": {"replicas": replicas}}, "scale")

    def read(self, pattern: str) -> str:
        """The content of the checkpoint volume's files that match `pattern`, one after the other.

        Where the volume lies on this machine no pod is asked: ten looks through `kubectl exec` take a second of CPU,
        which training pods would miss on a small machine, and need a kubelet that answers.
        """
        if self.cluster.testbed is None:
            return self.read_through_pod(pattern)
        return lifecycle.inside(self.cluster.testbed, *_cat(volume_folder(self.cluster.testbed, self.name), pattern))

    def read_through_pod(self, pattern: str) -> str:
        """`read` on any cluster."""
        return self.cluster.run("-n", self.name, "exec", READER, "--", *_cat(MOUNT, pattern))

    def start(self, pod: str, program: str) -> None:
        """Start a Python program in a pod, which may end the container; returns before the program ends."""
        background = 'python3 -c "$0" </dev/null >/dev/null 2>&1 &'
        self.cluster.run("-n", self.name, "exec", pod, "--", "sh", "-c", background, program)

    def lines(self, pattern: str) -> list[dict[str, object]]:
        """The JSON lines of the checkpoint volume's files that match `pattern`."""
        whole = self.read(pattern).rpartition("\n")[0]
        return [json.loads(line) for line in whole.splitlines()]

    def describe(self) -> str:
        """Pods, jobs and latest events, for the message of a test that failed."""
        pods = self.cluster.run("-n", self.name, "get", "pytorchjobs,jobs,pods,hpa", "-o", "wide")
        events = self.cluster.run("-n", self.name, "get", "events", "--sort-by=.lastTimestamp")
        return "\n".join([f"In namespace {self.name}:", pods, *events.splitlines()[-15:]])


def _cat(folder: str | Path, pattern: str) -> tuple[str, ...]:
    return "sh", "-c", f"cat {folder}/{pattern} 2>/dev/null || true"


def is_ready(pod: kube.Object) -> bool:
    """Whether the pod says that it is ready."""
    conditions = pod["status"].get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def restarts(pod: kube.Object) -> int:
    """How often the pod's containers were started again."""
    return sum(int(c["restartCount"]) for c in pod["status"].get("containerStatuses", []))


@contextmanager
def namespace(
    cluster: Cluster, api: kube.Kube, name: str, labels: Mapping[str, str], *, small: bool
) -> Iterator[Namespace]:
    """A namespace for one test, with a volume (with `small`, of 1 MiB); its pods are gone afterwards.

    The cluster needs many seconds more for the rest of it, for which nothing waits.
    """
    place = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": dict(labels)}}
    volume = checkpoint_volume(cluster, name, small=small)
    api.apply(place)
    try:
        space = Namespace(name, cluster, api)
        claim = checkpoint_claim(cluster, name)
        for manifest in (*volume, claim):
            api.apply(manifest)
        if volume:
            # The scheduler may pass over a pod that comes while its claim is being bound, for five minutes:
            # https://github.com/kubernetes/kubernetes/issues/87145
            until("the claim", lambda: api.get(claim)["status"].get("phase") == "Bound", describe=space.describe)
        api.apply(reader(cluster, name))
        until("the reader", lambda: is_ready(api.get(space.pod(READER))), describe=space.describe)
        yield space
    finally:
        api.delete(place)
        for manifest in volume:
            api.delete(manifest)
        until(f"the end of the pods in {name}", lambda: _pods_are_gone(api, name))


def _pods_are_gone(api: kube.Kube, name: str) -> bool:
    """Whether a namespace that ends has no pods; those that are left wait neither for their grace nor for a finalizer.

    A Job keeps its failed pods until others come in their place, and there are none in a namespace that ends.
    """
    pods = api.list("v1", "Pod", name)
    for pod in pods:
        api.delete(pod, grace=0)
        if pod["metadata"].get("finalizers"):
            with suppress(kube.KubeError):  # the pod is gone by now
                api.patch(pod, {"metadata": {"finalizers": None}})
    return not pods


def checkpoint_volume(cluster: Cluster, name: str, *, small: bool) -> tuple[kube.Object, ...]:
    """The volume, where the cluster makes none by itself: a folder that every pod may write."""
    if cluster.testbed is None:
        return ()
    folder = volume_folder(cluster.testbed, name)
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    if small:
        lifecycle.inside(cluster.testbed, "mount", "-t", "tmpfs", "-o", "size=1m,mode=777", name, str(folder))
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "",
            "claimRef": {"name": CLAIM, "namespace": name},
            "hostPath": {"path": str(folder)},
        },
    }
    return (volume,)


def volume_folder(testbed: Path, name: str) -> Path:
    """Where the testbed keeps a namespace's volume."""
    return testbed / "volumes" / name


def checkpoint_claim(cluster: Cluster, name: str) -> kube.Object:
    """The claim that jobs mount."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": CLAIM, "namespace": name},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": cluster.storage_class,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }


def reader(cluster: Cluster, name: str) -> kube.Object:
    """A pod that outlives every job, through which a test reads what jobs wrote."""
    container = {
        "name": "reader",
        "image": cluster.images[0],
        "command": ["sleep", "infinity"],
        "volumeMounts": [{"name": CLAIM, "mountPath": MOUNT}],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    claim = {"name": CLAIM, "persistentVolumeClaim": {"claimName": CLAIM}}
    user = {"runAsUser": 1000, "runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    spec = {
        "containers": [container],
        "volumes": [claim],
        "securityContext": user,
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": READER, "namespace": name}, "spec": spec}
