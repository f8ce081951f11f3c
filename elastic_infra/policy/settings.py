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
from elastic_infra.config.values import LabelKey

Level = Literal["mandatory", "advisory", "disabled"]
"""`mandatory` refuses the job, `advisory` only tells, `disabled` does neither: Pulumi's own words."""

Limit = Annotated[int, Field(ge=0)]


class Rule(Part):
    """What every rule has."""

    level: Level = "disabled"
    """What a violation does. A rule is off until it is given a level."""


class ImagePinned(Rule):
    """Images are named by digest, so that a pod recreated weeks later runs the same code."""


class Budget(Rule):
    """At most so many."""

    per_job: Limit | None = None
    """Most that one job may use at its largest; unset means no limit."""

    per_stack: Limit | None = None
    """Most that all jobs together may use at their largest; unset means no limit."""


class GpuBudget(Budget):
    """GPUs, counted at the maximum of nodes."""


class NodeBudget(Budget):
    """Nodes, counted at their maximum."""


class CheckpointWhenPreemptible(Rule):
    """Jobs on nodes that may be taken away keep checkpoints on a volume."""

    always: bool = False
    """Ask it of every job, wherever it runs."""

    node_labels: dict[LabelKey, str] = {
        "cloud.google.com/gke-preemptible": "true",
        "cloud.google.com/gke-spot": "true",
        "eks.amazonaws.com/capacityType": "SPOT",
        "karpenter.sh/capacity-type": "spot",
        "kubernetes.azure.com/scalesetpriority": "spot",
    }
    """Labels of cluster nodes that may be taken away; in a selector or an affinity."""

    taints: tuple[LabelKey, ...] = (
        "cloud.google.com/gke-preemptible",
        "cloud.google.com/gke-spot",
        "kubernetes.azure.com/scalesetpriority",
    )
    """Taints of such cluster nodes; a toleration counts."""


class RestrictedProfile(Rule):
    """Pods satisfy the Pod Security profile `restricted`."""


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
    """No job relies on `active_deadline_seconds`, which the training operator enforces late (kubeflow/trainer#3358)."""


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


def load_policy(path: Path) -> Policy:
    """The policy in a file.

    Raises:
        ConfigError: it cannot be read or parsed, or is not a valid policy; with every fault.
    """
    try:
        return Policy.model_validate(read_mapping(path))
    except pydantic.ValidationError as error:
        raise ConfigError(faults_of(error, Policy)) from None
