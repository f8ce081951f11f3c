"""The typed config: the user's input, checked as a whole before an object is rendered."""

from elastic_infra.config.autoscaling import Autoscaling, Behavior, Metric, ScalingRules
from elastic_infra.config.disruption import Disruption
from elastic_infra.config.elastic import Elastic, RdzvConfigs, Rendezvous, RendezvousResources
from elastic_infra.config.env import EnvVar
from elastic_infra.config.errors import ConfigError, Fault
from elastic_infra.config.health import HealthCheck
from elastic_infra.config.initializers import Initializer
from elastic_infra.config.job import JobConfig
from elastic_infra.config.placement import Affinity, Placement, Toleration, TopologySpread
from elastic_infra.config.resources import Gpu, Resources, SharedMemory
from elastic_infra.config.run_policy import RunPolicy, SchedulingPolicy
from elastic_infra.config.runtime import Launcher, Runtime
from elastic_infra.config.security import Security
from elastic_infra.config.storage import Checkpoint, Mount, Storage, Volume
from elastic_infra.config.warnings import warnings
from elastic_infra.config.workdir import Workdir

__all__ = [
    "Affinity",
    "Autoscaling",
    "Behavior",
    "Checkpoint",
    "ConfigError",
    "Disruption",
    "Elastic",
    "EnvVar",
    "Fault",
    "Gpu",
    "HealthCheck",
    "Initializer",
    "JobConfig",
    "Launcher",
    "Metric",
    "Mount",
    "Placement",
    "RdzvConfigs",
    "Rendezvous",
    "RendezvousResources",
    "Resources",
    "RunPolicy",
    "Runtime",
    "ScalingRules",
    "SchedulingPolicy",
    "Security",
    "SharedMemory",
    "Storage",
    "Toleration",
    "TopologySpread",
    "Volume",
    "Workdir",
    "warnings",
]
