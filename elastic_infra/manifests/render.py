"""Calls the builders of the objects that a config needs."""

from __future__ import annotations

from elastic_infra.config import ConfigError, JobConfig
from elastic_infra.config.names import ObjectNames, name_faults
from elastic_infra.config.values import Late
from elastic_infra.manifests.account import service_account
from elastic_infra.manifests.autoscaler import horizontal_pod_autoscaler
from elastic_infra.manifests.disruption import pod_disruption_budget
from elastic_infra.manifests.driver import driver_role, driver_role_binding
from elastic_infra.manifests.figures import run_of, workload_of
from elastic_infra.manifests.gang import pod_group
from elastic_infra.manifests.identity import run_id, taken_on
from elastic_infra.manifests.indexed_job import indexed_job
from elastic_infra.manifests.launcher import launcher_config_map, newest_launcher
from elastic_infra.manifests.model import Manifest, Manifests
from elastic_infra.manifests.network import network_policy
from elastic_infra.manifests.pytorch_job import pytorch_job
from elastic_infra.manifests.service import rendezvous_service
from elastic_infra.manifests.single_pod import single_pod_job
from elastic_infra.manifests.storage import checkpoint_claim
from elastic_infra.manifests.store import store_deployment
from elastic_infra.manifests.store_token import store_token_secret
from elastic_infra.manifests.train_job import train_job, training_runtime
from elastic_infra.manifests.workdir import workdir_config_map


def lasting(name: str, config: JobConfig) -> Manifests:
    """The objects of a job with a name for its launcher that changes only with what has the job take the newest one.

    Raises:
        ConfigError: as in `render`.
    """
    is_mounted = config.launcher.delivery == "configmap"
    digest = f"-{'0' * 64}" if config.launcher.verify else ""
    return render(name, config, run_id("launcher", *taken_on(config)) + digest if is_mounted else None)


def render(name: str, config: JobConfig, launcher: str | Late | None = None) -> Manifests:
    """The Kubernetes objects of a job.

    Args:
        name: the job's name unless the config has one; names of all objects derive from it.
        config: a valid config.
        launcher: the ConfigMap to mount where it is not the newest.

    Raises:
        ConfigError: the name, or a name derived from it, breaks Kubernetes' rules, or `workdir` has not been read.
    """
    name = config.name or name
    if faults := name_faults(name, config):
        raise ConfigError(faults)
    own = config.launcher.delivery == "configmap" and config.launcher.config_map is None
    launcher = launcher or newest_launcher(name, config)
    runtime = training_runtime(name, config, launcher) if config.kind == "TrainJob" else None
    scaling, checkpoint, host = config.autoscaling, config.storage.checkpoint, config.rendezvous_host
    owns_autoscaler = scaling is not None and scaling.owner == "component" and not config.follows_capacity
    own_job = _workload(name, config, launcher) if runtime is None else train_job(name, config, runtime)
    run = run_of(workload_of(Manifests(own_job, runtime=runtime)))
    return Manifests(
        workload=own_job,
        launcher=launcher_config_map(name, config) if own else None,
        workdir=workdir_config_map(name, config, config.workdir) if config.workdir else None,
        service=rendezvous_service(name, config) if host != "none" else None,
        token=store_token_secret(name, config) if host != "none" else None,
        pod_account=service_account(name, name, config) if config.security.own_service_account else None,
        account=service_account(name, ObjectNames(name).driver, config) if config.has_driver else None,
        role=driver_role(name, config) if config.has_driver else None,
        role_binding=driver_role_binding(name, config) if config.has_driver else None,
        store=store_deployment(name, config, launcher, run) if host == "dedicated" else None,
        runtime=runtime,
        network_policy=network_policy(name, config) if config.has_network_policy else None,
        gang=pod_group(name, config),
        checkpoint=checkpoint_claim(name, config, checkpoint) if checkpoint and checkpoint.size is not None else None,
        autoscaler=horizontal_pod_autoscaler(name, config, scaling) if scaling and owns_autoscaler else None,
        disruption_budget=pod_disruption_budget(name, config) if config.disruption.pod_disruption_budget else None,
    )


def _workload(name: str, config: JobConfig, launcher: str | Late | None) -> Manifest:
    """The workload object that holds its pods itself."""
    if config.is_single_pod:
        return single_pod_job(name, config, launcher)
    return (indexed_job if config.is_indexed_job else pytorch_job)(name, config, launcher)
