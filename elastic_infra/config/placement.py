"""Where pods are scheduled: queue, priority, selectors, tolerations, spread."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, JsonValue, model_validator

from elastic_infra.config.base import Part
from elastic_infra.config.values import MAX_INT32, LabelKey, LabelValue, ObjectName, Seconds, Whole


class Toleration(Part):
    """A taint that pods accept."""

    key: LabelKey | None = None
    """The taint's key; unset (with `Exists`) tolerates every taint."""

    operator: Literal["Exists", "Equal"] = "Exists"
    """`Equal` compares `value`."""

    value: LabelValue | None = None
    """The taint's value, for `Equal`."""

    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """The tolerated effect; unset means all."""

    toleration_seconds: Annotated[Whole, Field(ge=0, le=MAX_INT32)] | None = None
    """Seconds for which a `NoExecute` taint is tolerated."""

    @model_validator(mode="after")
    def _agrees(self) -> Toleration:
        if self.operator == "Exists" and self.value is not None:
            message = "operator 'Exists' takes no value; use operator 'Equal'."
            raise ValueError(message)
        if self.operator == "Equal" and self.key is None:
            message = "operator 'Equal' needs a key."
            raise ValueError(message)
        if self.toleration_seconds is not None and self.effect != "NoExecute":
            message = "toleration_seconds needs effect 'NoExecute'."
            raise ValueError(message)
        return self


class TopologySpread(Part):
    """Spread pods over a topology (training usually packs; use it for availability)."""

    topology_key: LabelKey
    """Label of cluster nodes that names the domain, such as `topology.kubernetes.io/zone`."""

    max_skew: Annotated[Whole, Field(ge=1, le=10_000)] = 1
    """Largest difference of pods between domains."""

    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"] = "ScheduleAnyway"
    """Whether a pod waits or starts anyway when the spread cannot be met."""


class TopologyPack(Part):
    """Keep pods together in one domain of the cluster, such as a rack or a zone, for a faster network."""

    topology_key: LabelKey
    """Label of cluster nodes that names the domain, such as `topology.kubernetes.io/zone`."""

    required: bool = False
    """Whether a pod waits where the domain of the others has no room. False: it goes elsewhere. With true a replacement
    waits as well, until the domain has room again."""


SPOT_LABELS: Final = {
    "cloud.google.com/gke-spot": "true",
    "eks.amazonaws.com/capacityType": "SPOT",
    "karpenter.sh/capacity-type": "spot",
    "kubernetes.azure.com/scalesetpriority": "spot",
}
"""Labels of spot nodes, of GKE, EKS, Karpenter (and so EKS Auto Mode) and AKS:
https://cloud.google.com/kubernetes-engine/docs/concepts/spot-vms,
https://docs.aws.amazon.com/eks/latest/userguide/managed-node-groups.html,
https://karpenter.sh/docs/concepts/scheduling/, https://learn.microsoft.com/en-us/azure/aks/spot-node-pool"""
SPOT_TAINTS: Final = ("cloud.google.com/gke-spot", "kubernetes.azure.com/scalesetpriority")
"""Those of these labels that are also the keys of taints with the effect NoSchedule: AKS always sets its own, GKE does
in Autopilot and where a node pool asks for it."""


class Affinity(Part):
    """Affinity rules, verbatim as Kubernetes spells them (camelCase); the API server checks the content."""

    nodeAffinity: dict[str, JsonValue] | None = None  # noqa: N815 - Kubernetes' own key
    """Rules on cluster nodes."""

    podAffinity: dict[str, JsonValue] | None = None  # noqa: N815 - Kubernetes' own key
    """Rules that attract pods to each other."""

    podAntiAffinity: dict[str, JsonValue] | None = None  # noqa: N815 - Kubernetes' own key
    """Rules that keep pods apart."""


class Kueue(Part):
    """How Kueue admits a job, and in which order."""

    mode: Literal["whole", "partial", "elastic"] = "whole"
    """How many nodes get quota. `whole` (default, as Kueue's own): all with which the job begins, or none. `partial`:
    as many as there is quota for, from the minimum of `elastic.nnodes` on; the number stays until the job is admitted
    again. `elastic`: the job begins with the minimum, and `elastic-infra scale` or `autoscaling.policy: capacity`
    moves it, as far as there is quota, while the nodes that it has train. The latter two need `target: job` with a
    range, and exclude each other:
    https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobs/job/job_webhook.go"""

    priority_class: Annotated[LabelValue, Field(min_length=1)] | None = None
    """Kueue's WorkloadPriorityClass: the order in the queue, and which job gives way to which. It says nothing about
    pods once they are admitted. Default: the order of `placement.priority_class`."""


GANG_SCHEDULERS: Final = {
    "coscheduling": "scheduler-plugins-scheduler",
    "volcano": "volcano",
    "kai": "kai-scheduler",
}
"""Schedulers that know gangs, and the names that they have where nothing else was set when they were installed."""


class Gang(Part):
    """The minimum of `elastic.nnodes` gets its pods together or not at all; nodes beyond it come one by one."""

    scheduler: Literal["coscheduling", "volcano", "kai"]
    """`coscheduling` of Kubernetes' scheduler-plugins, `volcano`, or `kai`: a second scheduler of the cluster. Pods ask
    for it by the name that it has unless it was given another: `scheduler-plugins-scheduler`, `volcano` or
    `kai-scheduler`. `placement.scheduler_name` has precedence."""

    queue: Annotated[LabelValue, Field(min_length=1)] | None = None
    """Queue of Volcano (default: its `default`) or of KAI, which needs one. Not Kueue's, which is `placement.queue`."""

    timeout_seconds: Seconds | None = None
    """Seconds that pods of the gang hold room for the others, with `coscheduling`. Default: the scheduler's own, 60."""


class Placement(Part):
    """Scheduling of the job's pods."""

    queue: Annotated[LabelValue, Field(min_length=1)] | None = None
    """Kueue queue: sets the label `kueue.x-k8s.io/queue-name`. Excludes autoscaling, which knows nothing of the
    queue's quota, except for `policy: capacity` with `kueue.mode: elastic`. A change of it restarts the job."""

    kueue: Kueue = Kueue()
    """How Kueue admits the job of `queue`; a change of it restarts the job."""

    gang: Gang | None = None
    """Schedule the minimum of nodes together or not at all, by a scheduler that can. Seldom needed: training begins
    with the minimum, and nodes beyond it wait for nothing."""

    priority_class: ObjectName | None = None
    """Priority class of the pods."""

    node_selector: dict[LabelKey, LabelValue] = {}
    """Labels that a cluster node must have."""

    tolerations: tuple[Toleration, ...] = ()
    """Taints that pods accept, besides 60 s for a cluster node that is not ready (Kubernetes' own is 300 s)."""

    topology_spread: tuple[TopologySpread, ...] = ()
    """Spread over zones or hosts."""

    topology_pack: TopologyPack | None = None
    """Keep the pods together in a zone, a rack or whatever a label of cluster nodes names. Without `queue` by a pod
    affinity to the job's own pods, which excludes `affinity.podAffinity`; with `queue` Kueue does, which then needs a
    queue with a Topology: https://kueue.sigs.k8s.io/docs/concepts/topology_aware_scheduling/"""

    spot: Literal["allowed", "preferred", "required"] | None = None
    """Spot nodes of GKE, EKS, AKS and Karpenter, which cost less and may be taken away. `allowed`: their taints are
    tolerated. `preferred` and `required`: by a node affinity as well, which excludes `affinity.nodeAffinity`. The
    store's pod tolerates none of them. Unset: the pods know nothing of spot nodes."""

    avoid_bad_nodes: bool = False
    """Keep the pods away from a cluster node on which the workers failed again and again while the other nodes were
    healthy: a small pod is put there, which a pod anti-affinity of the job's pods avoids, until the job ends. At most
    four cluster nodes. A container in the store's pod does so, with a token and a Role of its own. Off, because that
    Role may create any pod in the namespace. Excludes `affinity.podAntiAffinity`."""

    affinity: Affinity | None = None
    """Affinity rules, verbatim."""

    scheduler_name: ObjectName | None = None
    """Scheduler in place of the default one, or of that of `gang`."""

    @property
    def scheduler(self) -> str | None:
        """Name of the scheduler that pods ask for; None for the cluster's default one."""
        return self.scheduler_name or (GANG_SCHEDULERS[self.gang.scheduler] if self.gang is not None else None)
