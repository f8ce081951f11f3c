"""The three workload objects as a story of a job's life sees them: how one has its nodes, its size and its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from elastic_infra.manifests.train_job import VERSION
from tests.cluster import jobs, kube
from tests.cluster.cluster import Namespace, is_ready
from tests.cluster.waiting import until

COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
MOST: Final = 3
"""The job's maximum of nodes."""
GATE: Final = "tests.elastic-infra/capacity"
"""A TrainJob asks for its maximum at once: its pods wait behind this gate, as for room in a cluster."""


@dataclass(frozen=True)
class Target:
    """One workload object.

    Attributes:
        name: the config's `target`.
        index: the label by which its controller numbers the nodes.
        end: the condition of a job that has succeeded.
    """

    name: str
    api_version: str
    kind: str
    index: str
    end: str

    def config(self, space: Namespace, training: jobs.Training, **changes: Any) -> dict[str, Any]:
        """A job that begins with two of at most three nodes."""
        elastic = {"nnodes": f"1:{MOST}", "nproc_per_node": 1}
        if not self.is_gated:
            return jobs.config(space, training, target=self.name, elastic={**elastic, "initial_nodes": 2}, **changes)
        gated = {"pod": {"spec": {"schedulingGates": [{"name": GATE}]}}}
        runtime = {"startup_patience_seconds": 30, "startup_wait_seconds": 5}
        return jobs.config(
            space, training, target=self.name, elastic=elastic, runtime=runtime, overlays=gated, **changes
        )

    @property
    def is_gated(self) -> bool:
        """Whether the number of nodes is fixed, and nodes come later in place of growth."""
        return self.kind == "TrainJob"

    def nodes(self, space: Namespace, job: str) -> dict[int, kube.Object]:
        """The nodes that run and stay, by index."""
        return {self._index(pod): pod for pod in self._pods(space, job) if is_ready(pod)}

    def start(self, space: Namespace, job: str, settings: Mapping[str, Any], arm: jobs.Arm = "ours") -> None:
        """Creates the job's objects, with room for two nodes."""
        jobs.submit(space, job, settings, arm)
        self.let_in(space, job, 2)

    def grow(self, space: Namespace, job: str, count: int = MOST) -> None:
        """Has the job have so many nodes; returns once they run."""
        if self.kind == "PyTorchJob":
            space.scale(job, count)
        elif self.kind == "Job":
            space.api.patch(self._named(space, job), {"spec": {"parallelism": count, "completions": count}})
        self.let_in(space, job, count)

    def let_in(self, space: Namespace, job: str, count: int) -> None:
        """Room for so many nodes in all; returns once they run."""

        def run() -> bool:
            pods = self._pods(space, job)
            waiting = [pod for pod in pods if pod["spec"].get("schedulingGates")]
            for pod in waiting[: max(0, count - (len(pods) - len(waiting)))]:
                space.api.patch(space.pod(pod["metadata"]["name"]), {"spec": {"schedulingGates": None}})
            return len(self.nodes(space, job)) == count

        until(f"{count} nodes of {job}", run, describe=space.describe)

    def replace(self, space: Namespace, job: str, index: int, before: str) -> None:
        """Returns once another pod than that of the uid has the index, and runs; makes room for it."""
        count = len(self.nodes(space, job).keys() | {index})

        def replaced() -> bool:
            pod = next((each for each in self._pods(space, job) if self._index(each) == index), None)
            return pod is not None and pod["metadata"]["uid"] != before

        until(f"another node {index}", replaced, describe=space.describe)
        self.let_in(space, job, count)

    def says(self, space: Namespace, job: str) -> set[str]:
        """The job's conditions that are true now."""
        told = space.api.get(self._named(space, job)).get("status", {}).get("conditions") or []
        return {each["type"] for each in told if each["status"] == "True"}

    def has_ended(self, space: Namespace, job: str) -> bool:
        """Whether the job says that it has succeeded; an `AssertionError` where it says that it has failed."""
        true = self.says(space, job)
        assert "Failed" not in true, space.describe()
        return self.end in true

    def await_end(self, space: Namespace, job: str, seconds: float = jobs.TRAINING_SECONDS) -> None:
        """Returns once the job has succeeded."""
        until(f"{job} to end", lambda: self.has_ended(space, job), seconds, describe=space.describe)

    def _named(self, space: Namespace, job: str) -> kube.Object:
        return space.named(self.api_version, self.kind, job)

    def _index(self, pod: kube.Object) -> int:
        return int(pod["metadata"]["labels"][self.index])

    def _pods(self, space: Namespace, job: str) -> list[kube.Object]:
        """The pods that run or wait, and stay, by index."""
        return sorted(space.workers(job), key=self._index)


TARGETS: Final[Mapping[str, Target]] = {
    target.name: target
    for target in (
        Target("pytorchjob", "kubeflow.org/v1", "PyTorchJob", "training.kubeflow.org/replica-index", "Succeeded"),
        Target("job", "batch/v1", "Job", COMPLETION_INDEX, "Complete"),
        Target("trainjob", VERSION, "TrainJob", COMPLETION_INDEX, "Complete"),
    )
}
