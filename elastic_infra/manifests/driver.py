"""The driver: a container beside the store, its token, and what its account may do.

Nothing else of the job has a token. The store's pod has an account of its own, so that a service account of the user's
gets no rights.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from elastic_infra.config import JobConfig
from elastic_infra.config.names import ObjectNames
from elastic_infra.config.values import Late
from elastic_infra.manifests.launcher import DRIVER_MODULE, module_path, python
from elastic_infra.manifests.metadata import metadata, node_selector
from elastic_infra.manifests.model import Manifest, Value, without_none
from elastic_infra.manifests.security import container_security
from elastic_infra.manifests.storage import Mounted
from elastic_infra.manifests.store_token import store_token_variable

PROBE_SECONDS: Final = 60
"""Long enough for a scheduler that preempts or retries, and shorter than most clusters take to add a cluster node."""
TOKEN_SECONDS: Final = 3600
"""The kubelet renews the token long before: https://kubernetes.io/docs/concepts/storage/projected-volumes/"""
CREDENTIALS: Final = "/var/run/secrets/elastic-infra"
AMOUNTS: Final = {"cpu": "100m", "memory": "128Mi"}
RBAC: Final = "rbac.authorization.k8s.io"


def driver_container(
    name: str,
    config: JobConfig,
    launcher: str | Late | None,
    image: Value,
    mounts: list[Value],
    run: Value,
) -> Value:
    """The driver.

    Args:
        launcher: the ConfigMap that is mounted.
        image: the store's, which needs only python3.
        mounts: where it is mounted.
        run: the id of the job's run in the store.
    """
    command = python(config, launcher, "-m", DRIVER_MODULE)
    command += ["--kind", config.kind, "--namespace", config.namespace, "--name", name]
    command += [*_capacity_options(name, config), *_record_options(config, run)]
    token = [store_token_variable(name)] if config.follows_records else []
    return without_none(
        name="driver",
        image=image,
        imagePullPolicy=config.image_pull_policy,
        command=[*command, "--credentials", CREDENTIALS],
        env=[*token, *module_path(is_mounted=launcher is not None), {"name": "PYTHONUNBUFFERED", "value": "1"}],
        resources={"requests": dict(AMOUNTS), "limits": dict(AMOUNTS)},
        volumeMounts=[*mounts, *driver_token().mounts],
        securityContext=container_security(config),
        terminationMessagePolicy="FallbackToLogsOnError",
    )


def _capacity_options(name: str, config: JobConfig) -> list[Value]:
    if config.autoscaling is None or not config.follows_capacity:
        return []
    selector = ",".join(f"{key}={value}" for key, value in node_selector(name, config).items())
    probe = config.autoscaling.probe_seconds or PROBE_SECONDS
    return ["--selector", selector, "--sizes", _sizes(config), "--probe-seconds", str(probe)]


def _record_options(config: JobConfig, run: Value) -> list[Value]:
    if not config.follows_records:
        return []
    events: list[Value] = ["--events"] if config.launcher.kubernetes_events else []
    avoid: list[Value] = ["--avoid"] if config.placement.avoid_bad_nodes else []
    return [*events, *avoid, "--run", run, "--port", str(config.rendezvous.port)]


def _sizes(config: JobConfig) -> str:
    """The numbers of nodes that the job can train with: a range with its step, or a list."""
    elastic, each = config.elastic, config.nproc_per_node
    if not elastic.world_sizes:
        return f"{elastic.min_nodes}:{elastic.max_nodes}:{elastic.node_unit}"
    nodes = range(elastic.min_nodes, elastic.max_nodes + 1, elastic.node_unit)
    return ",".join(str(count) for count in nodes if count * each in elastic.world_sizes)


def driver_token() -> Mounted:
    """The token and the certificate of the API server, as the kubelet mounts them by default, for one container."""
    sources: list[Value] = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": TOKEN_SECONDS}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
    ]
    return Mounted(
        volumes=({"name": "driver", "projected": {"sources": sources}},),
        mounts=({"name": "driver", "mountPath": CREDENTIALS, "readOnly": True},),
    )


def driver_role(name: str, config: JobConfig) -> Manifest:
    """Read this one job, and what the config asks for.

    Capacity: resize this job, and list what the decision needs, in a queue of Kueue the workloads too; a name cannot
    bound a list. A batch/v1 Job has no scale
    subresource: its account may patch the Job, of which Kubernetes keeps the pods' template as it is. The size of a
    TrainJob is that of the JobSet of its name, which has no scale subresource either: with a patch that also suspends
    it, labels, annotations, node selector, tolerations and scheduling gates of its pods can change. Events: make them,
    in the whole namespace, since a name cannot bound what is to be made either. Cluster nodes to avoid: list pods and
    make some, of which the same is true, and delete those that it makes.
    """
    group, resource = _KINDS[config.kind]
    rules = [_rule(group, resource, "get", name)]
    if config.follows_capacity:
        rules += _resizing(name, config)
        rules += [_rule("", "pods", "list"), _rule("policy", "poddisruptionbudgets", "list")]
        rules += [_rule("kueue.x-k8s.io", "workloads", "list")] if config.placement.queue is not None else []
    if config.launcher.kubernetes_events:
        rules.append(_rule("", "events", "create"))
    if config.placement.avoid_bad_nodes:
        rules += [] if config.follows_capacity else [_rule("", "pods", "list")]
        rules += [_rule("", "pods", "create"), _rule("", "pods", "delete", *ObjectNames(name).holders)]
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "Role",
        "metadata": metadata(name, ObjectNames(name).driver, config),
        "rules": rules,
    }


def _resizing(name: str, config: JobConfig) -> list[Value]:
    """What may be done to the object that holds the number of nodes, beside reading the job."""
    if config.kind == "TrainJob":
        return [_rule("jobset.x-k8s.io", "jobsets", verb, name) for verb in ("get", "patch")]
    group, resource = _KINDS[config.kind]
    return [_rule(group, f"{resource}/scale" if config.kind == "PyTorchJob" else resource, "patch", name)]


_KINDS: Final[Mapping[str, tuple[str, str]]] = {
    "PyTorchJob": ("kubeflow.org", "pytorchjobs"),
    "Job": ("batch", "jobs"),
    "TrainJob": ("trainer.kubeflow.org", "trainjobs"),
}


def driver_role_binding(name: str, config: JobConfig) -> Manifest:
    """The Role, for the account alone."""
    own = ObjectNames(name).driver
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": metadata(name, own, config),
        "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": own},
        "subjects": [{"kind": "ServiceAccount", "name": own, "namespace": config.namespace}],
    }


def _rule(group: str, resource: str, verb: str, *names: str) -> Value:
    return without_none(apiGroups=[group], resources=[resource], resourceNames=[*names] or None, verbs=[verb])
