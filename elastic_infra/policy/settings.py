"""What a platform team can set: each rule's level and limits, in `policy.yaml` or in a policy pack's config."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

import pydantic
from pydantic import AfterValidator, Field

from elastic_infra.config import ConfigError
from elastic_infra.config.base import Part, Shorthand
from elastic_infra.config.errors import faults_of
from elastic_infra.config.load import read_mapping
from elastic_infra.config.placement import SPOT_LABELS, SPOT_TAINTS
from elastic_infra.config.values import LabelKey

Level = Literal["mandatory", "advisory", "disabled"]
"""`mandatory` refuses the job, `advisory` only tells, `disabled` does neither: Pulumi's own words."""

Limit = Annotated[int, Field(ge=0)]


class Exemption(Part):
    """Jobs that need not keep a rule."""

    labels: Annotated[dict[LabelKey, str], Field(min_length=1)]
    """Labels of such a job, all of them; an empty value stands for any."""

    reason: Annotated[str, Field(min_length=1, max_length=300)]
    """Why they need not; `validate` tells it with what they break."""


class Rule(Part):
    """What every rule has."""

    level: Level = "disabled"
    """What a violation does. A rule is off until it is given a level."""

    exempt: tuple[Exemption, ...] = ()
    """Jobs that need not keep it."""


class ImagePinned(Rule):
    """Images are named by digest, so that a pod recreated weeks later runs the same code."""


class Budget(Rule):
    """At most so many."""

    per_job: Limit | None = None
    """Most that one job may use at its largest; unset means no limit."""

    per_stack: Limit | None = None
    """Most that all jobs together may use at their largest; unset means no limit."""

    team_label: LabelKey = "team"
    """Label of jobs that names their team."""

    per_team: dict[str, Limit] = {}
    """Most that all jobs of a team together may use at their largest."""

    other_teams: Limit | None = None
    """The same for each team that `per_team` does not name, and for all jobs without the label together."""


class GpuBudget(Budget):
    """GPUs, those of sidecars too, counted at the maximum of nodes."""

    resources: tuple[str, ...] = ()
    """Extended resources that count as GPUs beside those of NVIDIA, AMD, Intel, Gaudi, Neuron and TPUs: names or
    patterns such as `huawei.com/Ascend*`. Jobs name theirs in `resources.gpu.resource`."""


class NodeBudget(Budget):
    """Nodes, counted at their maximum."""


Words = Annotated[tuple[str, ...], Field(min_length=1)]


class Registries(Rule):
    """Images, those of init containers, sidecars and the store too, come from registries that are trusted."""

    allowed: Words | None = None
    """Registries, or folders in one: `registry.example.com`, `ghcr.io/team`. `docker.io` is that of a bare name. Unset
    allows any."""


class Namespaces(Rule):
    """Jobs run only in namespaces made for them."""

    allowed: Words | None = None
    """Names or patterns such as `team-*`; unset allows any."""


class Queues(Rule):
    """Jobs wait in queues that they may use: Kueue's (`placement.queue`), or a gang scheduler's."""

    allowed: Words | None = None
    """Names or patterns; unset allows any."""

    required: bool = False
    """Whether a job must name one at all."""


class GpuTypes(Rule):
    """Jobs take only the types of GPU that they may."""

    allowed: Words | None = None
    """Values of the label that tells the type, or patterns such as `NVIDIA-A100-*`; unset allows any."""

    node_labels: tuple[LabelKey, ...] = (
        "nvidia.com/gpu.product",
        "cloud.google.com/gke-accelerator",
        "karpenter.k8s.aws/instance-gpu-name",
    )
    """Labels of cluster nodes that tell the type; in a selector or an affinity that is required."""

    required: bool = False
    """Whether a job with GPUs must choose a type: without that it gets any. An affinity chooses one if each of its
    terms names values (`In`)."""

    resources: tuple[str, ...] = ()
    """The same as that of `gpu_budget`: what else counts as GPUs."""


class Lifetime(Rule):
    """Jobs end, and leave the cluster when they have ended."""

    max_active_seconds: Limit | None = None
    """Longest `run_policy.active_deadline_seconds`, which a job must then have; unset asks for none."""

    max_ttl_seconds: Limit | None = None
    """Longest `run_policy.ttl_seconds_after_finished`, which a job must then have; unset asks for none. A
    TrainJob cannot keep it: Trainer never deletes one."""


class OnRestart(Rule):
    """Jobs say what an update that would restart them does."""

    required: Literal["refuse", "replace"] = "refuse"
    """The value that `run_policy.on_restart` must have."""


class CheckpointWhenPreemptible(Rule):
    """Jobs on nodes that may be taken away keep checkpoints on a volume."""

    always: bool = False
    """Ask it of every job, wherever it runs."""

    node_labels: dict[LabelKey, str] = {
        "cloud.google.com/gke-preemptible": "true",
        **SPOT_LABELS,
    }
    """Labels of cluster nodes that may be taken away; in a selector, or in an affinity that lets the value through, as
    `Exists` and `NotIn` with another do."""

    taints: tuple[LabelKey, ...] = ("cloud.google.com/gke-preemptible", *SPOT_TAINTS)
    """Taints of such cluster nodes; a toleration counts, and one of every taint too."""


class RestrictedProfile(Rule):
    """Pods, the store's too, satisfy the Pod Security profile `restricted`."""


def _is_pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        message = f"is not a regular expression: {error}."
        raise ValueError(message) from None
    return text


class Labels(Rule):
    """Jobs carry the labels by which cost and ownership are told."""

    required: dict[LabelKey, Annotated[str, AfterValidator(_is_pattern)]] = {}
    """Label to the pattern that its whole value must match; an empty pattern takes any value."""


class Environment(Rule):
    """Variables are those that a platform wants, and none that it does not. `envFrom` is not looked into."""

    forbidden: tuple[str, ...] = ()
    """Names or patterns such as `AWS_*`, of every container. Variables that this package sets itself count too."""

    required: dict[str, Annotated[str, AfterValidator(_is_pattern)]] = {}
    """Name to the pattern that its whole value must match, in the training container; an empty pattern takes any value,
    one from a Secret too."""


class PriorityClass(Rule):
    """Jobs take only the priority classes that they may."""

    allowed: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """Names of the classes; unset allows any."""

    required: bool = False
    """Whether a job must name one at all."""


class RestartBudget(Rule):
    """Restarts allowed are neither none nor endless."""

    min_restarts: Limit = 1
    """Fewest `elastic.max_restarts`: below, one bad node ends the job."""

    max_restarts: Limit = 100
    """Most `elastic.max_restarts`: above, a broken script holds its GPUs for days."""

    limited_containers: bool = True
    """Whether `run_policy.backoff_limit` must be a number, not -1, where it counts: for one node, and with
    `restart_policy: OnFailure`. With `ExitCode` no container is restarted in place, and the launcher bounds how often a
    node may give up (exit 200)."""


class NoActiveDeadline(Rule):
    """No PyTorchJob relies on `active_deadline_seconds`: the operator enforces it late (kubeflow/trainer#3358)."""


def _is_function(text: str) -> str:
    if re.fullmatch(r"[^:\0]+\.py:[A-Za-z_]\w*", text):
        return text
    message = "must name a file and a function in it, such as rules.py:no_debug_images."
    raise ValueError(message)


class CustomRule(Rule):
    """A rule of your own: a Python function from the workload object to what is wrong with it."""

    function: Annotated[str, AfterValidator(_is_function)]
    """`FILE.py:FUNCTION`, the file's path from the policy file on."""


def _level(value: object) -> object:
    return {"level": value} if isinstance(value, str) else value


_SHORT = Shorthand(_level, {"enum": ["mandatory", "advisory", "disabled"]})


class Policy(Part):
    """Every rule, by its name; a level alone stands for the rule with its defaults."""

    image_pinned: Annotated[ImagePinned, _SHORT] = ImagePinned()
    gpu_budget: Annotated[GpuBudget, _SHORT] = GpuBudget()
    node_budget: Annotated[NodeBudget, _SHORT] = NodeBudget()
    checkpoint_when_preemptible: Annotated[CheckpointWhenPreemptible, _SHORT] = CheckpointWhenPreemptible()
    restricted_profile: Annotated[RestrictedProfile, _SHORT] = RestrictedProfile()
    labels: Annotated[Labels, _SHORT] = Labels()
    priority_class: Annotated[PriorityClass, _SHORT] = PriorityClass()
    restart_budget: Annotated[RestartBudget, _SHORT] = RestartBudget()
    no_active_deadline: Annotated[NoActiveDeadline, _SHORT] = NoActiveDeadline()
    registries: Annotated[Registries, _SHORT] = Registries()
    namespaces: Annotated[Namespaces, _SHORT] = Namespaces()
    queues: Annotated[Queues, _SHORT] = Queues()
    gpu_types: Annotated[GpuTypes, _SHORT] = GpuTypes()
    lifetime: Annotated[Lifetime, _SHORT] = Lifetime()
    environment: Annotated[Environment, _SHORT] = Environment()
    on_restart: Annotated[OnRestart, _SHORT] = OnRestart()
    custom: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")], CustomRule] = {}
    """Rules of your own, by their names."""


def load_policy(path: Path) -> Policy:
    """The policy in a file.

    Raises:
        ConfigError: it cannot be read or parsed, or is not a valid policy; with every fault.
    """
    try:
        return Policy.model_validate(read_mapping(path, "policy", "image_pinned: and registries:"))
    except pydantic.ValidationError as error:
        raise ConfigError(faults_of(error, Policy)) from None
