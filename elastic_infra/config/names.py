"""Names of a job's objects, and the check that they fit Kubernetes' limits."""

from __future__ import annotations

import dataclasses

import pydantic

from elastic_infra.config.errors import Fault
from elastic_infra.config.job import JobConfig
from elastic_infra.config.values import DnsLabel

TRAIN_NODES = "node"
"""Name of the one Job in a TrainJob's JobSet, as Trainer's own runtimes have it."""

MOST_AVOIDED = 4
"""Cluster nodes that a job avoids at a time; the driver in the launcher knows the number too."""

MAX_LABEL = 63
"""Longest DNS label and longest value of a label: RFC 1123."""


@dataclasses.dataclass(frozen=True)
class ObjectNames:
    """Names derived from the job's name."""

    job: str

    @property
    def rendezvous(self) -> str:
        """The Service in front of the rendezvous store, and the store's Deployment."""
        return f"{self.job}-rdzv"

    @property
    def store_token(self) -> str:
        """The Secret with the token of the rendezvous store."""
        return f"{self.job}-store"

    @property
    def autoscaler(self) -> str:
        """The HorizontalPodAutoscaler, not named as the job, because the operator would take that one over."""
        return f"{self.job}-hpa"

    @property
    def driver(self) -> str:
        """The ServiceAccount, the Role and the RoleBinding of the driver beside the store."""
        return f"{self.job}-driver"

    @property
    def holders(self) -> tuple[str, ...]:
        """Pods that the driver puts on cluster nodes that the job avoids."""
        return tuple(f"{self.job}-avoid-{number}" for number in range(MOST_AVOIDED))

    @property
    def disruption_budget(self) -> str:
        """Name of the PodDisruptionBudget."""
        return f"{self.job}-pdb"

    @property
    def gang(self) -> str:
        """Name of the gang scheduler's PodGroup, not that of the job, by which the operator would name its own."""
        return f"{self.job}-gang"

    @property
    def network_policy(self) -> str:
        """Name of the NetworkPolicy."""
        return f"{self.job}-network"

    @property
    def checkpoint(self) -> str:
        """The PersistentVolumeClaim made for checkpoints."""
        return f"{self.job}-checkpoint"

    def launcher(self, digest: str) -> str:
        """The launcher's ConfigMap; the name holds the content's hash because the ConfigMap is immutable.

        With a whole SHA-256 it has at most 137 characters of the 253 that Kubernetes allows.
        """
        return f"{self.job}-launcher-{digest}"

    def workdir(self, digest: str) -> str:
        """The ConfigMap with local code; the name holds the content's hash because the ConfigMap is immutable."""
        return f"{self.job}-workdir-{digest}"

    def worker(self, index: int) -> str:
        """The operator's name for the pod, and the Service, of one node."""
        return f"{self.job}-worker-{index}"

    def indexed(self, index: int | str) -> str:
        """The Job controller's host name for the pod of one index, which its replacements have as well."""
        return f"{self.job}-{index}"

    def train_node(self, index: int | str) -> str:
        """The same where a TrainJob's JobSet made the Job, and called the Job `<job>-node-0`."""
        return f"{self.job}-{TRAIN_NODES}-0-{index}"


def host_name(name: str, config: JobConfig, index: int | str) -> str:
    """The host name of one index of a job that has indices."""
    names = ObjectNames(name)
    return names.train_node(index) if config.kind == "TrainJob" else names.indexed(index)


def name_faults(name: object, config: JobConfig) -> tuple[Fault, ...]:
    """The faults of a job's name, those of derived names included.

    A single pod's job has all 63 characters: its pod carries the name as a label, and Kubernetes shortens the pod's
    own. The operator names a pod and a Service after each node; the Job controller the host of each index; JobSet
    refuses a job whose pods would have longer names.
    """
    if faults := label_faults(name):
        return faults
    names, last = ObjectNames(str(name)), config.elastic.max_nodes - 1
    if config.is_single_pod:
        return ()
    if config.is_indexed_job:
        return _too_long(str(name), "host or Service", max(names.indexed(last), names.rendezvous, key=len))
    if config.kind == "TrainJob":
        return _too_long(str(name), "pod", f"{names.train_node(last)}-abcde")
    return _too_long(str(name), "pod", names.worker(last))


def label_faults(name: object) -> tuple[Fault, ...]:
    """The faults of a name with which names of objects begin: it is a DNS label."""
    try:
        _label.validate_python(name, strict=True)
    except pydantic.ValidationError as error:
        details = error.errors()[0]
        reason = details.get("ctx", {}).get("error", "must be a string.")
        return (Fault("name", str(reason)),)
    return ()


def _too_long(name: str, kind: str, longest: str) -> tuple[Fault, ...]:
    if len(longest) <= MAX_LABEL:
        return ()
    room = MAX_LABEL - (len(longest) - len(name))
    reason = (
        f"is {len(name)} characters long, and the {kind} name {longest!r} made from it has {len(longest)}, "
        f"more than Kubernetes' {MAX_LABEL}. Use at most {room}."
    )
    return (Fault("name", reason),)


_label: pydantic.TypeAdapter[str] = pydantic.TypeAdapter(DnsLabel)
