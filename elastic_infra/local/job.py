"""The job for the runner, read only from the manifests that would go to the cluster. Pure."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from elastic_infra.config import JobConfig
from elastic_infra.config.env import EnvVar
from elastic_infra.config.values import any_quantity
from elastic_infra.local.faults import Shape
from elastic_infra.local.operator_env import operator_env
from elastic_infra.local.state import Rules
from elastic_infra.manifests import render
from elastic_infra.manifests.figures import NO_LIMIT, workload_of
from elastic_infra.manifests.metadata import COMPLETION_INDEX, OPERATOR_REPLICA_INDEX
from elastic_infra.manifests.workdir import VOLUME as WORKDIR

KUBERNETES_GRACE_SECONDS: Final = 30
"""The default of a pod: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination"""


@dataclasses.dataclass(frozen=True)
class LocalJob:
    """A rendered job.

    Attributes:
        node: pod template of a node.
        store: pod template of the rendezvous store; None where the store has no own pod.
        config_maps: ConfigMaps that were rendered, by name.
        operator: variables that the operator adds; none for a Job, a TrainJob's too.
        is_indexed: whether the nodes are the indices of a Job.
        store_on_node_0: whether the first node serves the store, as torchrun.
        gpus: accelerators of each node.
        metrics_port: port of each node's status page.
    """

    name: str
    namespace: str
    node: Mapping[str, Any]
    store: Mapping[str, Any] | None
    config_maps: Mapping[str, Mapping[str, Any]]
    operator: Mapping[str, str]
    is_indexed: bool
    rules: Rules
    shape: Shape
    rendezvous_port: int
    store_on_node_0: bool
    gpus: int
    gpu_vendor: str
    metrics_port: int | None


def local_job(name: str, config: JobConfig, nodes: int | None) -> LocalJob:
    """Render a job for this many nodes; the fewest by default.

    Raises:
        ConfigError: the name breaks Kubernetes' rules.
    """
    nodes = config.elastic.min_nodes if nodes is None else nodes
    elastic = config.elastic.model_copy(update={"initial_nodes": nodes})
    launcher = config.launcher.model_copy(update={"config_map": None})  # a shared one is the cluster's
    manifests = render(name, config.model_copy(update={"elastic": elastic, "launcher": launcher}))
    workload = _plain(workload_of(manifests))
    store = _plain(manifests.store)["spec"]["template"] if manifests.store else None
    mounted = [_plain(each) for each in (manifests.launcher, manifests.workdir) if each]
    is_job = workload["kind"] != "PyTorchJob"
    gpu = config.resources.gpu
    return LocalJob(
        name=config.name or name,
        namespace=str(config.namespace),
        node=workload["spec"]["template"] if is_job else _worker(workload)["template"],
        store=store,
        config_maps={each["metadata"]["name"]: each for each in mounted},
        operator={} if is_job else operator_env(workload),
        is_indexed=config.has_indices,
        rules=_rules(workload, store),
        shape=_shape(config, nodes, has_store=store is not None),
        rendezvous_port=config.rendezvous.port,
        store_on_node_0=config.rendezvous_host == "worker0",
        gpus=gpu.count if gpu else 0,
        gpu_vendor=gpu.vendor if gpu else "nvidia",
        metrics_port=config.launcher.metrics_port,
    )


def on_cpu(config: JobConfig) -> JobConfig:
    """The same job without accelerators: one worker a node where the GPUs gave their number."""
    elastic = config.elastic
    workers = "1" if elastic.nproc_per_node == "auto" else elastic.nproc_per_node
    return config.model_copy(
        update={
            "resources": config.resources.model_copy(update={"gpu": None}),
            "elastic": elastic.model_copy(update={"nproc_per_node": workers}),
            "env": {**config.env, "CUDA_VISIBLE_DEVICES": EnvVar(value="")},
        }
    )


def memory_bytes(template: Mapping[str, Any]) -> int | None:
    """The memory limit of a pod's container."""
    limit = container(template).get("resources", {}).get("limits", {}).get("memory")
    number = any_quantity(limit)
    return None if number is None else int(number)


def container(template: Mapping[str, Any]) -> Mapping[str, Any]:
    """The one container of a pod."""
    found: Mapping[str, Any] = template["spec"]["containers"][0]
    return found


def left_out(template: Mapping[str, Any]) -> Iterator[str]:
    """The parts of a pod that are not run or read here: containers beside the training one, and `envFrom`."""
    spec = template["spec"]
    for each in (each for each in spec.get("initContainers", ()) if each["name"] != WORKDIR):
        yield f"{'sidecar' if each.get('restartPolicy') == 'Always' else 'init container'} {each['name']}"
    yield from (f"container {each['name']}" for each in spec["containers"][1:])
    for source in container(template).get("envFrom", ()):
        for key, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
            if key in source:
                yield f"variables of {kind} {source[key]['name']} (give them with --env)"


def fields(job: LocalJob, template: Mapping[str, Any], pod: str, address: str) -> dict[str, str]:
    """The downward API's fields for a pod that runs here. A node is named by its index, and not by the operator's name.

    Source: https://kubernetes.io/docs/concepts/workloads/pods/downward-api/#available-fields
    """
    metadata = template["metadata"]
    index = pod.rpartition("-")[2]
    labels = {**metadata.get("labels", {}), COMPLETION_INDEX if job.is_indexed else OPERATOR_REPLICA_INDEX: index}
    return {
        "metadata.name": pod,
        "metadata.namespace": job.namespace,
        "metadata.uid": pod,
        "spec.nodeName": "localhost",
        "spec.serviceAccountName": template["spec"].get("serviceAccountName", "default"),
        **dict.fromkeys(("status.podIP", "status.podIPs", "status.hostIP", "status.hostIPs"), address),
        **{f"metadata.labels['{key}']": value for key, value in labels.items()},
        **{f"metadata.annotations['{key}']": value for key, value in metadata.get("annotations", {}).items()},
    }


def _plain(manifest: object) -> Any:  # noqa: ANN401 - JSON
    return json.loads(json.dumps(manifest))


def _worker(workload: Mapping[str, Any]) -> Mapping[str, Any]:
    worker: Mapping[str, Any] = workload["spec"]["pytorchReplicaSpecs"]["Worker"]
    return worker


def _rules(workload: Mapping[str, Any], store: Mapping[str, Any] | None) -> Rules:
    spec = workload["spec"]
    is_job = workload["kind"] != "PyTorchJob"
    template = spec["template"] if is_job else _worker(workload)["template"]
    limit = (spec if is_job else spec["runPolicy"]).get("backoffLimit")
    return Rules(
        workload="Job" if is_job else "PyTorchJob",
        restart_policy="Never" if is_job else _worker(workload)["restartPolicy"],
        backoff_limit=None if limit is None or limit < 0 or limit == NO_LIMIT else limit,
        permanent=_permanent(spec) if is_job else frozenset(),
        grace_seconds=_grace(template),
        store_grace_seconds=_grace(store) if store else 0.0,
    )


def _permanent(spec: Mapping[str, Any]) -> frozenset[int]:
    rules = spec["podFailurePolicy"]["rules"]
    return frozenset(code for rule in rules for code in rule.get("onExitCodes", {}).get("values", ()))


def _grace(template: Mapping[str, Any]) -> float:
    return float(template["spec"].get("terminationGracePeriodSeconds", KUBERNETES_GRACE_SECONDS))


def _shape(config: JobConfig, nodes: int, *, has_store: bool) -> Shape:
    elastic = config.elastic
    return Shape(
        nodes=nodes,
        min_nodes=elastic.min_nodes,
        max_nodes=elastic.max_nodes,
        workers=config.nproc_per_node,
        has_store=has_store,
        max_restarts=elastic.max_restarts,
    )


DEVICE_FILES: Final[Mapping[str, str]] = {"nvidia": "nvidia[0-9]*", "amd": "kfd", "intel": "dri/renderD*"}
"""Device files below /dev by the accelerator's vendor."""
