"""The training pod: container, security, placement. The same for a node of any workload object."""

from __future__ import annotations

from elastic_infra.config import JobConfig, Toleration, TopologySpread
from elastic_infra.config.overlays import TRAINING_CONTAINER
from elastic_infra.config.time_budgets import NODE_LOST_SECONDS
from elastic_infra.config.values import Late
from elastic_infra.manifests import gang
from elastic_infra.manifests.account import account_name
from elastic_infra.manifests.affinity import affinity, spot_tolerations, topology_request
from elastic_infra.manifests.health import health_container
from elastic_infra.manifests.initializers import initializer_container
from elastic_infra.manifests.launcher import MODULE, MOUNTED, python
from elastic_infra.manifests.metadata import COMPONENT, INSTANCE, MIN_NODES, RERUN, object_labels
from elastic_infra.manifests.model import Value, without_none
from elastic_infra.manifests.overlay import overlaid
from elastic_infra.manifests.security import container_security, pod_security
from elastic_infra.manifests.storage import Mounted, mounted
from elastic_infra.manifests.workdir import workdir_container


def pod_template(
    name: str, config: JobConfig, launcher: str | Late | None, *, arguments: list[Value], environment: list[Value]
) -> dict[str, Value]:
    """Pod template of a training node.

    Args:
        launcher: name of the launcher's ConfigMap, None when the image has the launcher.
        arguments: the launcher's own options, before the script.
        environment: the container's `env`.
    """
    storage = mounted(name, config, launcher)
    labels: dict[str, Value] = {**object_labels(name, config), **gang.pod_labels(name, config), COMPONENT: "worker"}
    template: dict[str, Value] = {
        "metadata": {"labels": labels, "annotations": {**_annotations(config), **gang.pod_annotations(name, config)}},
        "spec": without_none(
            initContainers=_init_containers(config, launcher, storage, environment) or None,
            containers=[_container(config, launcher, storage, arguments, environment)],
            volumes=list(storage.volumes) or None,
            resourceClaims=_pod_claims(config),
            securityContext=pod_security(config),
            imagePullSecrets=_pull_secrets(config),
            terminationGracePeriodSeconds=config.disruption.termination_grace_period_seconds,
            serviceAccountName=account_name(name, config),
            automountServiceAccountToken=False,
            enableServiceLinks=False,
            **_placement(name, config),
        ),
    }
    return overlaid(template, config.overlays.pod)  # type: ignore[arg-type]  # JSON is a Value


def _annotations(config: JobConfig) -> dict[str, Value]:
    evict = config.disruption.safe_to_evict
    return {
        **config.annotations,
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "true" if evict else "false",
        **({} if evict else {"karpenter.sh/do-not-disrupt": "true"}),
        # A sidecar keeps the pod running after training and blocks the rendezvous: kubeflow/trainer#1637.
        "sidecar.istio.io/inject": "false",
        **({RERUN: config.run_policy.rerun} if config.run_policy.rerun else {}),
        **topology_request(config),
        **({MIN_NODES: str(config.elastic.min_nodes)} if config.follows_capacity else {}),
    }


def _init_containers(
    config: JobConfig, launcher: str | Late | None, storage: Mounted, environment: list[Value]
) -> list[Value]:
    """What comes before the training, in order: a node that is not fit gets no code."""
    check, workdir = config.health_check, config.workdir
    return [
        *([health_container(config, check, launcher, list(storage.mounts), environment)] if check else []),
        *([workdir_container(config, workdir)] if workdir else []),
        *(initializer_container(config, each, list(storage.mounts), environment) for each in config.initializers),
    ]


def _container(
    config: JobConfig,
    launcher: str | Late | None,
    storage: Mounted,
    arguments: list[Value],
    environment: list[Value],
) -> Value:
    program = ("-m", MODULE) if launcher is None else (MOUNTED,)
    return without_none(
        name=TRAINING_CONTAINER,
        image=config.image,
        imagePullPolicy=config.image_pull_policy,
        command=python(config, launcher, *program),
        args=arguments + entrypoint(config),
        workingDir=_working_dir(config),
        env=environment,
        ports=_ports(config),
        resources=_resources(config),
        volumeMounts=list(storage.mounts) or None,
        securityContext=_training_security(config),
        terminationMessagePolicy="FallbackToLogsOnError",
    )


def _working_dir(config: JobConfig) -> str | None:
    return config.working_dir or (config.workdir.mount_path if config.workdir else None)


def entrypoint(config: JobConfig) -> list[Value]:
    """The launcher's arguments for the program to run, in torchrun's form."""
    arguments: list[Value] = list(config.args)
    if config.command:
        return ["--no-python", *config.command, *arguments]
    return (["--module", config.module] if config.module else [config.script]) + arguments


def _ports(config: JobConfig) -> list[Value] | None:
    ports: list[Value] = []
    if name := _rendezvous_port(config):
        ports.append({"name": name, "containerPort": config.rendezvous.port, "protocol": "TCP"})
    if config.launcher.metrics_port is not None:
        ports.append({"name": "status", "containerPort": config.launcher.metrics_port, "protocol": "TCP"})
    return ports or None


def _rendezvous_port(config: JobConfig) -> str | None:
    """Name of the store's port in the training container; None where no node has the store."""
    if config.kind == "PyTorchJob":
        return "pytorchjob-port"  # the operator adds one of this name with 23456 unless there is one
    return "rendezvous" if config.rendezvous_host == "worker0" else None


def _resources(config: JobConfig) -> Value:
    asked = config.resources
    amounts = without_none(
        **{
            "cpu": asked.cpu,
            "memory": asked.memory,
            "ephemeral-storage": asked.ephemeral_storage,
        }
    )
    if asked.hugepages is not None:
        amounts[f"hugepages-{asked.hugepages.page_size}"] = asked.hugepages.amount
    if asked.gpu is not None:
        amounts[asked.gpu.resource_name] = str(asked.gpu.count)
    if asked.rdma is not None:
        amounts[asked.rdma.resource] = str(asked.rdma.count)
    claims: list[Value] = [{"name": claim.name} for claim in asked.claims]
    return without_none(requests=dict(amounts) or None, limits=dict(amounts) or None, claims=claims or None) or None


def _pod_claims(config: JobConfig) -> list[Value] | None:
    """The pod's claims: https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/."""
    claims = config.resources.claims
    return [{"name": claim.name, "resourceClaimTemplateName": claim.template} for claim in claims] or None


def _training_security(config: JobConfig) -> dict[str, Value]:
    """Security of the training container: RDMA devices read and write memory that is locked."""
    security = container_security(config)
    return security if config.resources.rdma is None else {**security, "capabilities": {"add": ["IPC_LOCK"]}}


def _pull_secrets(config: JobConfig) -> list[Value] | None:
    return [{"name": secret} for secret in config.image_pull_secrets] or None


def _placement(name: str, config: JobConfig) -> dict[str, Value]:
    placement = config.placement
    return {
        "priorityClassName": placement.priority_class,
        "nodeSelector": dict(placement.node_selector) or None,
        "tolerations": [
            *node_lost(NODE_LOST_SECONDS),
            *spot_tolerations(config),
            *map(tolerated, placement.tolerations),
        ],
        "topologySpreadConstraints": [_spread(name, s) for s in placement.topology_spread] or None,
        "affinity": affinity(name, config) or None,
        "schedulerName": placement.scheduler,
    }


def node_lost(seconds: int) -> list[Value]:
    """Tolerations that let a pod leave a lost cluster node after this long."""
    return [
        {
            "key": f"node.kubernetes.io/{state}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": seconds,
        }
        for state in ("not-ready", "unreachable")
    ]


def tolerated(toleration: Toleration) -> Value:
    """A toleration as Kubernetes spells it."""
    return without_none(
        key=toleration.key,
        operator=toleration.operator,
        value=toleration.value,
        effect=toleration.effect,
        tolerationSeconds=toleration.toleration_seconds,
    )


def _spread(name: str, spread: TopologySpread) -> Value:
    return {
        "topologyKey": spread.topology_key,
        "maxSkew": spread.max_skew,
        "whenUnsatisfiable": spread.when_unsatisfiable,
        "labelSelector": {"matchLabels": {INSTANCE: name, COMPONENT: "worker"}},
    }
