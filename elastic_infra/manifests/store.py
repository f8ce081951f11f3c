"""The dedicated rendezvous store: one small pod, so that no training node is special."""

from __future__ import annotations

from typing import Final

from elastic_infra.config import JobConfig
from elastic_infra.config.names import ObjectNames
from elastic_infra.config.values import Late
from elastic_infra.manifests.account import account_name
from elastic_infra.manifests.driver import driver_container, driver_token
from elastic_infra.manifests.launcher import STORE_MODULE, module_path, python
from elastic_infra.manifests.metadata import COMPONENT, SKIP_AWAIT, metadata, object_labels, store_selector
from elastic_infra.manifests.model import Manifest, Value, without_none
from elastic_infra.manifests.pod import node_lost, tolerated
from elastic_infra.manifests.security import container_security, pod_security
from elastic_infra.manifests.storage import Mounted, launcher_volume
from elastic_infra.manifests.store_token import store_token_variable

NODE_LOST_SECONDS: Final = 30
"""The store must be back well within the launcher's `orphan_timeout` (120 s), or workers stop."""


def store_deployment(name: str, config: JobConfig, launcher: str | Late | None, run: Value) -> Manifest:
    """One replica, recreated: two stores at once would be two truths. Not awaited, its image may be a large one.

    Args:
        launcher: the ConfigMap to mount.
        run: the id of the job's run, which the driver follows.
    """
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(name, ObjectNames(name).rendezvous, config, SKIP_AWAIT),
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": dict(store_selector(name))},
            "template": _template(name, config, launcher, run),
        },
    }


def _template(name: str, config: JobConfig, launcher: str | Late | None, run: Value) -> Value:
    storage = launcher_volume(config, launcher) if launcher is not None else Mounted((), ())
    token = driver_token().volumes if config.has_driver else ()
    labels: dict[str, Value] = {**object_labels(name, config), COMPONENT: "rendezvous"}
    annotations: dict[str, Value] = {**config.annotations, "sidecar.istio.io/inject": "false"}
    secrets: list[Value] = [{"name": secret} for secret in config.image_pull_secrets]
    own_account = ObjectNames(name).driver
    return {
        "metadata": {"labels": labels, "annotations": annotations},
        "spec": without_none(
            containers=_containers(name, config, launcher, list(storage.mounts), run),
            volumes=[*storage.volumes, *token] or None,
            securityContext=pod_security(config),
            imagePullSecrets=secrets or None,
            terminationGracePeriodSeconds=5,
            serviceAccountName=own_account if config.has_driver else account_name(name, config),
            automountServiceAccountToken=False,
            enableServiceLinks=False,
            priorityClassName=config.placement.priority_class,
            nodeSelector=dict(config.rendezvous.node_selector) or None,
            tolerations=[*node_lost(NODE_LOST_SECONDS), *map(tolerated, config.rendezvous.tolerations)],
        ),
    }


def _containers(
    name: str, config: JobConfig, launcher: str | Late | None, mounts: list[Value], run: Value
) -> list[Value]:
    image = config.rendezvous.image if config.rendezvous.image is not None else config.image
    driver = [driver_container(name, config, launcher, image, mounts, run)] if config.has_driver else []
    return [_store(name, config, launcher, image, mounts), *driver]


def _store(name: str, config: JobConfig, launcher: str | Late | None, image: Value, mounts: list[Value]) -> Value:
    rendezvous, path = config.rendezvous, module_path(is_mounted=launcher is not None)
    amounts: dict[str, Value] = {"cpu": rendezvous.resources.cpu, "memory": rendezvous.resources.memory}
    return without_none(
        name="store",
        image=image,
        imagePullPolicy=config.image_pull_policy,
        command=python(config, launcher, "-m", STORE_MODULE, "--port", str(rendezvous.port)),
        env=[store_token_variable(name), *path, {"name": "PYTHONUNBUFFERED", "value": "1"}],
        ports=[{"name": "rendezvous", "containerPort": rendezvous.port, "protocol": "TCP"}],
        resources={"requests": dict(amounts), "limits": dict(amounts)},
        volumeMounts=mounts or None,
        securityContext=container_security(config),
        terminationMessagePolicy="FallbackToLogsOnError",
    )
