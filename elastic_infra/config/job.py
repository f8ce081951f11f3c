"""The whole config of one elastic training job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pydantic
from pydantic import Field, model_validator

from elastic_infra.config import flyte, rules
from elastic_infra.config.autoscaling import Autoscaling
from elastic_infra.config.base import Part
from elastic_infra.config.disruption import Disruption
from elastic_infra.config.elastic import Elastic, Rendezvous
from elastic_infra.config.env import Env
from elastic_infra.config.errors import ConfigError, Fault, RuleBroken, faults_of
from elastic_infra.config.health import HealthCheckField
from elastic_infra.config.initializers import Initializer
from elastic_infra.config.overlays import Overlays
from elastic_infra.config.placement import Placement
from elastic_infra.config.resources import Resources, SharedMemory, SharedMemoryField
from elastic_infra.config.run_policy import RunPolicy
from elastic_infra.config.runtime import Launcher, Runtime
from elastic_infra.config.security import Security
from elastic_infra.config.storage import Storage
from elastic_infra.config.values import (
    AbsolutePath,
    DnsLabel,
    InputImage,
    InputName,
    InputNamespace,
    InputStr,
    InputText,
    LabelKey,
    LabelValue,
    Seconds,
    Text,
)
from elastic_infra.config.workdir import WorkdirField

RESTARTS_PER_NODE = 3
"""Container restarts, or failed pods of a batch/v1 Job, that the default `backoff_limit` allows for each of the most
nodes."""


class JobConfig(Part):
    """One elastic training job. Only `image` and one of `script`, `module`, `command` are required.

    Raises:
        ConfigError: something is wrong; it lists every fault.
    """

    name: DnsLabel | None = None
    """Name of the job in Kubernetes. Default: that of the Pulumi resource, or of the file. With the old name given here
    the Pulumi resource can be renamed without a change in the cluster; a new name is a new job."""

    image: InputImage
    """Container image with python3 and torch. Pin the image by digest, since pods are recreated for weeks."""

    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """When the kubelet pulls the image."""

    image_pull_secrets: tuple[InputName, ...] = ()
    """Names of Secrets with registry credentials."""

    namespace: InputNamespace = "default"
    """Namespace of every object; it must exist."""

    script: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    """Training script, a path in the container."""

    module: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """Training module, run as `python -m`."""

    command: tuple[InputStr, ...] = ()
    """Program that is not Python, run once for each worker (torchrun's `--no-python`)."""

    args: tuple[InputText, ...] = ()
    """Arguments of the script, module or command."""

    env: Env = {}
    """Variables of the training container, in order: name to value, or to a secret, configmap or field reference."""

    working_dir: AbsolutePath | None = None
    """Working directory; the image's when unset, or that of `workdir`."""

    workdir: WorkdirField | None = None
    """Local code that the pods get without a build of the image: `./src`, or `{path: ./src, exclude: [...]}`."""

    labels: dict[LabelKey, LabelValue] = {}
    """Labels of every object and pod."""

    annotations: dict[LabelKey, Text] = {}
    """Annotations of every object and pod."""

    elastic: Elastic = Elastic()
    """Nodes, processes, rendezvous."""

    runtime: Runtime = Runtime()
    """Limits and defaults that the launcher applies in the container."""

    resources: Resources = Resources()
    """CPU, memory and devices of each node."""

    shared_memory: SharedMemoryField = SharedMemory()
    """The volume at /dev/shm: `true` (default), `{size: 16Gi}` or `false`."""

    rendezvous: Rendezvous = Rendezvous()
    """Place and resources of the rendezvous store."""

    autoscaling: Autoscaling | None = None
    """Let an autoscaler choose the number of nodes within `elastic.nnodes`."""

    initializers: tuple[Initializer, ...] = ()
    """Data and models that init containers fetch before the training starts, in this order."""

    health_check: HealthCheckField = None
    """Look at the cluster node before a pod trains there: `true`, or a mapping such as `{disk: 10Gi}`."""

    run_policy: RunPolicy = RunPolicy()
    """Life and end of the job."""

    placement: Placement = Placement()
    """Scheduling of the pods."""

    disruption: Disruption = Disruption()
    """Disruptions of pods, and the time that pods have then."""

    security: Security = Security()
    """The user, the service account and the security profile of the pods."""

    storage: Storage = Storage()
    """Volumes."""

    launcher: Launcher = Launcher()
    """How the launcher gets into the container, and its telemetry."""

    overlays: Overlays = Overlays()
    """Patches for fields of Kubernetes that this config lacks."""

    target: Literal["auto", "pytorchjob", "job", "trainjob"] = "auto"
    """Workload object. `auto`: one node is a batch/v1 Job (retried when its cluster node is lost), more are
    a PyTorchJob, which needs the training operator. `job`: a batch/v1 Job for any number of nodes, an Indexed one where
    there are several; it needs no operator, but Kubernetes 1.31. `trainjob`: a TrainJob with a runtime of its own; it
    needs Kubeflow Trainer 2.3, its size is the maximum of nodes unless `elastic.elastic_job_set` is on, and training
    runs with the nodes that have come."""

    children: Literal["name", "resource"] = "name"
    """The base of the names of the component's children in Pulumi. `name`: the job's name, so that renaming the Pulumi
    resource with `name` kept touches no Kubernetes object. `resource`: the Pulumi resource, where two jobs of one stack
    share a name in two namespaces. A change from `name` to `resource` makes every object of the job anew, and does not
    get past one that is there."""

    adopted: bool = False
    """Take over the live job of this name and kind that something else made, without a restart: Pulumi imports its
    workload object, and nothing else of the config reaches the cluster. Once the key is gone the job is made anew as
    the config has it."""

    wait_for: Literal["none", "running", "succeeded"] = "none"
    """The condition for which `pulumi up` waits. `none` by default, because a queue for GPUs can take hours."""

    wait_timeout_seconds: Seconds = 600
    """Seconds that `pulumi up` waits before it gives up (the job goes on)."""

    if not TYPE_CHECKING:  # the pydantic plugin gives __init__ its typed signature

        def __init__(self, **data: Any) -> None:  # noqa: ANN401 - any mapping may come
            try:
                super().__init__(**data)
            except pydantic.ValidationError as error:
                raise ConfigError(faults_of(error, type(self))) from None

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> JobConfig:
        """Validate plain data: a parsed `job.yaml`, a dict, a TypedDict, structured Pulumi config.

        Raises:
            ConfigError: something is wrong; it lists every fault.
        """
        if isinstance(data, Mapping) and not all(isinstance(key, str) for key in data):
            raise ConfigError([Fault("", "has a key that is not text. Quote it if it is meant as a name.")])
        try:
            return cls.model_validate(data)
        except pydantic.ValidationError as error:
            raise ConfigError(faults_of(error, cls)) from None

    @classmethod
    def from_flyte(cls, task: flyte.FlyteElastic, rest: Mapping[str, Any]) -> JobConfig:
        """The config of a Flyte task with `task_config=Elastic(...)`.

        Nodes, processes, budgets, shared memory and run policy are taken over. Flyte's defaults hold where Flyte has
        some (no restarts of the worker group, 5 s monitor interval), this package's for the rest: containers restart in
        place, and a finished job's running pods are deleted unless Flyte's run policy says otherwise.

        Args:
            task: a `flytekitplugins.kfpytorch.Elastic`, or an object with its attributes.
            rest: the other fields, as in `job.yaml`: at least `image` and one of `script`, `module`, `command`. They
                win over Flyte's.

        Raises:
            ConfigError: something is wrong; it lists every fault.
        """
        return cls.from_mapping(flyte.merged(task, rest))

    @model_validator(mode="after")
    def _rules_hold(self) -> JobConfig:
        if broken := rules.faults(self):
            raise RuleBroken(broken)
        return self

    @property
    def kind(self) -> Literal["PyTorchJob", "Job", "TrainJob"]:
        """Kind of the workload object."""
        if self.target == "trainjob":
            return "TrainJob"
        is_job = self.target == "job" or (self.target == "auto" and self.elastic.max_nodes == 1)
        return "Job" if is_job else "PyTorchJob"

    @property
    def is_single_pod(self) -> bool:
        """Whether the job is one pod in a batch/v1 Job, as Flyte's single pod."""
        return self.kind == "Job" and self.elastic.max_nodes == 1

    @property
    def is_indexed_job(self) -> bool:
        """Whether the job is an Indexed batch/v1 Job: a pod for each of several nodes, and no operator."""
        return self.kind == "Job" and self.elastic.max_nodes > 1

    @property
    def has_indices(self) -> bool:
        """Whether the nodes are indices of a batch/v1 Job: an Indexed Job's, or those of a TrainJob's Job."""
        return self.is_indexed_job or self.kind == "TrainJob"

    @property
    def keeps_its_size(self) -> bool:
        """Whether the workload asks for one number of nodes for its whole life: a TrainJob does, or JobSet moves it."""
        return self.kind == "TrainJob" and not self.elastic.elastic_job_set

    @property
    def initial_nodes(self) -> int:
        """Nodes the job is created with."""
        elastic = self.elastic
        begins_small = self.autoscaling is not None or self.placement.kueue.mode == "elastic"
        return elastic.initial_nodes or (elastic.min_nodes if begins_small else elastic.max_nodes)

    @property
    def size_owner(self) -> Literal["config", "autoscaler", "queue", "scale"]:
        """What sets the number of nodes once the job is there; `scale` is a person, by `elastic-infra scale`."""
        if self.autoscaling is not None:
            return "autoscaler"
        if self.placement.kueue.mode != "whole":
            return "queue" if self.placement.kueue.mode == "partial" else "scale"
        is_left_open = self.elastic.is_range and self.elastic.initial_nodes is None and not self.keeps_its_size
        return "scale" if is_left_open else "config"

    @property
    def begins_as_configured(self) -> bool:
        """Whether a job that is made anew begins with `initial_nodes`, though others set its size afterwards."""
        return self.size_owner in {"queue", "scale"} or self.placement.kueue.mode != "whole"

    @property
    def follows_capacity(self) -> bool:
        """Whether the job grows into idle capacity, without a metric."""
        return self.autoscaling is not None and self.autoscaling.policy == "capacity"

    @property
    def has_driver(self) -> bool:
        """Whether a container beside the store has a token: for growth, Kubernetes Events, or nodes to avoid."""
        return self.follows_capacity or self.follows_records

    @property
    def follows_records(self) -> bool:
        """Whether that container reads the store."""
        return self.launcher.kubernetes_events or self.placement.avoid_bad_nodes

    @property
    def nproc_per_node(self) -> int:
        """Worker processes on each node, `auto` resolved."""
        if self.elastic.nproc_per_node != "auto":
            return int(self.elastic.nproc_per_node)
        return self.resources.gpu.count if self.resources.gpu else 1

    @property
    def rendezvous_host(self) -> Literal["dedicated", "worker0", "none"]:
        """The place of the store; `none` for a single pod and for etcd."""
        if self.is_single_pod or self.elastic.rdzv_backend != "c10d":
            return "none"
        return self.rendezvous.host or ("dedicated" if self.elastic.is_range else "worker0")

    @property
    def is_on_host_network(self) -> bool:
        """Whether an overlay puts the nodes on the network of their machines."""
        spec = self.overlays.pod.get("spec")
        return isinstance(spec, Mapping) and bool(spec.get("hostNetwork"))

    @property
    def dns_policy(self) -> object:
        """The DNS policy that an overlay sets; None for Kubernetes' own."""
        spec = self.overlays.pod.get("spec")
        return spec.get("dnsPolicy") if isinstance(spec, Mapping) else None

    @property
    def has_network_policy(self) -> bool:
        """Whether a NetworkPolicy closes the job; on the host's network it would close the store to the nodes."""
        return self.security.network_policy and not self.is_on_host_network

    @property
    def restart_policy(self) -> Literal["OnFailure", "ExitCode"]:
        """A PyTorchJob's policy for a pod whose container fails; `OnFailure` where torchrun runs the job."""
        return self.run_policy.restart_policy or ("ExitCode" if self.elastic.rdzv_backend == "c10d" else "OnFailure")

    @property
    def restarts_in_place(self) -> bool:
        """Whether `backoff_limit` counts: failed containers that are restarted, or a batch/v1 Job's failed pods."""
        return self.kind != "PyTorchJob" or self.restart_policy == "OnFailure"

    @property
    def backoff_limit(self) -> int:
        """Container restarts in place, or failed pods of a batch/v1 Job, that fail the job; -1 for no limit."""
        given = self.run_policy.backoff_limit
        return RESTARTS_PER_NODE * self.elastic.max_nodes if given is None else given
