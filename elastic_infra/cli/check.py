"""The command `check`: whether a cluster can run a job, asked before `pulumi up` fails in the server's own words.

It changes nothing, and asks only what every account may ask: the server's version, its API's description, and what the
account itself may do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final

import typer
import yaml

from elastic_infra.cli import files, kubectl
from elastic_infra.cli.kubectl import Answer, Ask
from elastic_infra.config import ConfigError, JobConfig
from elastic_infra.manifests import Manifest, render

Schema = dict[str, Any]

NOT_READY: Final = 1
TARGETS: Final = ("pytorchjob", "job", "trainjob")
VERBS: Final = ("create", "patch", "delete")
"""What `pulumi up` and `pulumi destroy` do to an object."""
SCHEMA: Final = "/openapi/v3/apis/kubeflow.org/v1"
OPERATORS_END: Final = (
    "The training operator (Kubeflow Trainer v1) gets fixes only and has left the Kubeflow distribution, and Kueue "
    "plans to drop it."
)
"""kubeflow/community-distribution#3540. Training goes on with it as before."""
SINCE_1_7: Final = "nprocPerNode"
"""The field of a PyTorchJob's spec that operators before 1.7 do not know, as they do not know how to suspend a job."""
TRAINER: Final = "/openapi/v3/apis/trainer.kubeflow.org/v1alpha1"
SINCE_2_3: Final = (
    "runtimePatches.trainingRuntimeSpec.template.spec.replicatedJobs.template.spec.template.spec."
    "terminationGracePeriodSeconds"
)
"""The field of a TrainJob's spec that Trainer before 2.3 does not know, nor the first name in it before 2.2."""
KUEUE: Final = "/apis/kueue.x-k8s.io"
JOB_SET: Final = "/apis/jobset.x-k8s.io/v1alpha2"
GATE: Final = "ElasticJobSet"
"""JobSet's feature gate, off by default: https://github.com/kubernetes-sigs/jobset/blob/v0.12.0/pkg/features/features.go"""
JOB_SET_SETTINGS: Final = (
    ("kubeflow-system", "jobset-manager-config"),
    ("jobset-system", "jobset-manager-config"),
    ("kubeflow-system", "jobset-controller-config"),
    ("jobset-system", "jobset-controller-config"),
)
"""Namespace and name of the ConfigMap with the settings of JobSet's controller, in the manifests of Trainer and of
JobSet, and then in the chart of each."""
JOB_SET_FILE: Final = "controller_manager_config.yaml"
OLDEST_FOR_INDEXED: Final = (1, 31)
"""Kubernetes' first version in which an Indexed Job may change its size and end with one success, by default:
https://kubernetes.io/docs/reference/command-line-tools-reference/feature-gates/"""
RESOURCE_METRICS: Final = "/apis/metrics.k8s.io/v1beta1"


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command()(check)


def check(
    file: files.File,
    name: files.Name = None,
    context: kubectl.Context = None,
    kubeconfig: kubectl.Kubeconfig = None,
    suggest: Annotated[bool, typer.Option("--suggest", help="Say which `target` the cluster can run.")] = False,  # noqa: FBT002
) -> None:
    """Ask the cluster whether it can run a job: exit 1 and a line for each thing that stands in the way.

    With --suggest: a line for each `target`, and exit 1 where the cluster can run none. The choice stays the file's.
    """
    try:
        job, config = files.named_config(file, name, None)
        objects = [manifest for _, manifest in render(job, config).objects()]
    except ConfigError as error:
        raise files.refuse(file, error) from None
    ask = kubectl.connected(context, kubeconfig)
    if suggest:
        found = {target: why_not(ask, job, config, target) for target in TARGETS}
        for target, why in found.items():
            gate = f" ({gated(elastic_job_set(ask))})" if target == "trainjob" and config.elastic.is_range else ""
            typer.echo(f"{target}: no: {' '.join(why)}" if why else f"{target}: yes{gate}")
        raise typer.Exit(NOT_READY if all(found.values()) else 0)
    faults = list(obstacles(ask, objects, config))
    for fault in faults:
        typer.echo(fault, err=True)
    if faults:
        raise typer.Exit(NOT_READY)
    typer.echo(f"The cluster can run {job} in namespace {config.namespace}.", err=True)
    if config.elastic.elastic_job_set:
        typer.echo(f"{gated(elastic_job_set(ask))}.", err=True)
    if config.kind == "PyTorchJob":
        typer.echo(f"{OPERATORS_END} Way out: elastic-infra migrate {file} --to job", err=True)


def why_not(ask: Ask, job: str, config: JobConfig, target: str) -> list[str]:
    """What keeps a job from running with this `target`; empty where nothing does."""
    try:
        changed = JobConfig.from_mapping({**config.model_dump(), "target": target})
        objects = [manifest for _, manifest in render(job, changed).objects()]
    except ConfigError as error:
        return list(map(str, error.faults))
    return list(obstacles(ask, objects, changed))


def obstacles(ask: Ask, objects: Sequence[Manifest], config: JobConfig) -> Iterator[str]:
    """What keeps a job's objects from running; nothing more is asked of a server that does not answer."""
    namespace = str(config.namespace)
    version = ask("version", "--output=json")
    if fault := kubectl.unreachable(version):
        yield fault
        return
    if config.has_indices and (fault := too_old(version)):
        yield fault
    yield from controllers(ask, objects, config)
    yield from queue(ask, namespace, config)
    if fault := missing_namespace(namespace, ask("get", "namespace", namespace)):
        yield fault
    if refused := [each for each in (*actions(objects), *grants(objects)) if _is_refused(ask, namespace, each)]:
        yield forbidden(namespace, refused)
    if _needs_metrics(config) and ask("get", "--raw", RESOURCE_METRICS).code:
        yield (
            "The cluster reports no CPU and memory figures, and autoscaling by them would never scale the job. "
            "Install metrics-server, or use a metric of another type."
        )


def controllers(ask: Ask, objects: Sequence[Manifest], config: JobConfig) -> Iterator[str]:
    """Which makers of the job's objects, besides Kubernetes' own, are not there."""
    versions = {manifest["kind"]: manifest["apiVersion"] for manifest in objects}
    if "PyTorchJob" in versions and (fault := operator(ask("get", "--raw", SCHEMA))):
        yield fault
    if "TrainJob" in versions:
        yield from trainer(ask)
    if config.elastic.elastic_job_set and elastic_job_set(ask) is False:
        yield (
            f"JobSet's feature gate {GATE} is off, and the job would keep the number of nodes that it begins with. Set "
            f"featureGates: {{{GATE}: true}} in the configuration of JobSet's controller, or remove "
            "elastic.elastic_job_set."
        )
    if version := versions.get("PodGroup"):
        yield from gang_scheduler(ask, str(version))


def operator(answer: Answer) -> str | None:
    """Why the training operator cannot run the job: it is not there, or too old."""
    spec = _spec(answer, "PyTorchJob")
    if spec is None:
        return (
            "The cluster has no PyTorchJob: its definition (pytorchjobs.kubeflow.org) is missing. Install Kubeflow's "
            "training operator, version 1.9 or another from 1.7 on, or set target to 'job', which needs no operator."
        )
    if not _has(spec, SINCE_1_7):
        return (
            f"The cluster's training operator is older than 1.7: its PyTorchJob has no spec.{SINCE_1_7}. Upgrade the "
            "operator and its definitions, best to version 1.9."
        )
    return None


def trainer(ask: Ask) -> Iterator[str]:
    """What of Kubeflow Trainer is not there, or is too old."""
    spec = _spec(ask("get", "--raw", TRAINER), "TrainJob")
    absent = {
        "TrainJob (trainjobs.trainer.kubeflow.org)": spec is None,
        "JobSet (jobset.x-k8s.io)": ask("get", "--raw", JOB_SET).code != 0,
    }
    for what in (what for what, is_absent in absent.items() if is_absent):
        yield (
            f"The cluster has no {what}: its definition is missing. Install Kubeflow Trainer 2.3 "
            "with JobSet, or set target to 'job', which needs neither."
        )
    if spec is not None and not _has(spec, SINCE_2_3):
        yield (
            f"The cluster's Kubeflow Trainer is older than 2.3: its TrainJob has no spec.{SINCE_2_3}. Upgrade Trainer "
            "and its definitions, or set target to 'job', which needs neither."
        )


def elastic_job_set(ask: Ask) -> bool | None:
    """Whether JobSet lets the size of a TrainJob move; None where this account cannot see it."""
    for namespace, name in JOB_SET_SETTINGS:
        answer = ask("get", "configmap", name, "--namespace", namespace, "--output=json")
        settings = (json.loads(answer.out).get("data") or {}).get(JOB_SET_FILE) if not answer.code else None
        if settings is not None:
            return _is_on(settings)
    return None


def _is_on(settings: str) -> bool | None:
    """Whether JobSet's own configuration turns the gate on; None where it cannot be read."""
    try:
        read = yaml.safe_load(settings) or {}
    except yaml.YAMLError:
        return None
    gates = (read.get("featureGates") or {}) if isinstance(read, dict) else {}
    return bool(gates.get(GATE, gates.get("AllAlpha", False)))


def gated(is_on: bool | None) -> str:  # noqa: FBT001 - an answer
    """What `elastic.elastic_job_set` would come to."""
    if is_on is None:
        return f"This account cannot see whether JobSet's feature gate {GATE} is on"
    return f"JobSet's feature gate {GATE} is {'on: elastic.elastic_job_set moves the size' if is_on else 'off'}"


def queue(ask: Ask, namespace: str, config: JobConfig) -> Iterator[str]:
    """What of the job's queue is not there."""
    name = config.placement.queue
    if name is None:
        return
    if ask("get", "--raw", KUEUE).code:
        yield (
            "The cluster has no Kueue (kueue.x-k8s.io): the job would start at once, without its queue. Install Kueue, "
            "or remove placement.queue."
        )
    elif "NotFound" in ask("get", "localqueues.kueue.x-k8s.io", name, "--namespace", namespace).err:
        yield (
            f"The namespace {namespace} has no queue {name} (a LocalQueue of Kueue), and the job would wait for ever. "
            "Create it, or set placement.queue to one that is there."
        )


def gang_scheduler(ask: Ask, version: str) -> Iterator[str]:
    """That the cluster does not know the gang's object."""
    if ask("get", "--raw", f"/apis/{version}").code:
        yield (
            f"The cluster has no PodGroup of {version}: the scheduler of placement.gang is not installed. Install it, "
            "or remove placement.gang: training begins with the minimum of nodes without one."
        )


def too_old(version: Answer) -> str | None:
    """Why Kubernetes cannot run a Job of several nodes, a TrainJob's too; nothing where it does not say its version."""
    told = json.loads(version.out).get("serverVersion", {})
    numbers = re.fullmatch(r"v(\d+)\.(\d+).*", str(told.get("gitVersion", "")))
    if numbers is None or (int(numbers[1]), int(numbers[2])) >= OLDEST_FOR_INDEXED:
        return None
    return (
        f"The cluster runs Kubernetes {numbers[1]}.{numbers[2]}, and a batch/v1 Job of several nodes needs 1.31 or "
        "newer. Upgrade the cluster, or set target to 'pytorchjob' where the training operator is."
    )


def missing_namespace(namespace: str, answer: Answer) -> str | None:
    """That the namespace is not there; an account that may not look is no proof of it."""
    if "NotFound" not in answer.err:
        return None
    return f"The namespace {namespace} does not exist. Create it, or set the job's `namespace` to one that does."


def forbidden(namespace: str, refused: Sequence[tuple[str, ...]]) -> str:
    """What this account may not do."""
    listed = ", ".join(map(" ".join, refused))
    return (
        f"This account has no permission in namespace {namespace} to: {listed}. Ask for a Role with these verbs, bound "
        "to the account that runs `pulumi up`."
    )


def actions(objects: Sequence[Manifest]) -> list[tuple[str, str]]:
    """Verb and kind of everything that has to be allowed."""
    kinds = dict.fromkeys(_qualified(manifest) for manifest in objects)
    return [(verb, kind) for kind in kinds for verb in VERBS]


def _qualified(manifest: Manifest) -> str:
    """A kind with its group, as kubectl takes it: `deployment.apps`."""
    group = str(manifest["apiVersion"]).rpartition("/")[0]
    return ".".join(filter(None, [str(manifest["kind"]).lower(), group]))


def grants(objects: Sequence[Manifest]) -> Iterator[tuple[str, ...]]:
    """What the job's own Roles allow: Kubernetes lets an account give only what it has.

    https://kubernetes.io/docs/reference/access-authn-authz/rbac/#privilege-escalation-prevention-and-bootstrapping
    """
    roles: list[Any] = [each for each in objects if each["kind"] == "Role"]
    for rule in (rule for role in roles for rule in role["rules"]):
        (group,), (resource,), (verb,) = rule["apiGroups"], rule["resources"], rule["verbs"]
        name, _, subresource = resource.partition("/")
        part = [f"--subresource={subresource}"] if subresource else []
        yield verb, ".".join(filter(None, [name, group])), *part


def _is_refused(ask: Ask, namespace: str, action: tuple[str, ...]) -> bool:
    # A kind that the server does not know is allowed or refused for another reason, which has been said.
    return ask("auth", "can-i", *action, "--namespace", namespace).out.strip() == "no"


def _needs_metrics(config: JobConfig) -> bool:
    scaling = config.autoscaling
    return scaling is not None and any(metric.type in {"cpu", "memory"} for metric in scaling.metrics)


def _spec(answer: Answer, kind: str) -> Schema | None:
    """The spec of a kind in the API's description; None where there is no such kind."""
    schemas: Schema = {} if answer.code else json.loads(answer.out).get("components", {}).get("schemas", {})
    for described in schemas.values():
        kinds = {entry["kind"] for entry in described.get("x-kubernetes-group-version-kind", ())}
        if kind in kinds:
            return dict(described["properties"]["spec"])
    return None


def _has(schema: Schema, field: str) -> bool:
    """Whether a schema has a field, whose names are joined by dots; lists are looked into."""
    for name in field.split("."):
        schema = schema.get("items", schema).get("properties", {}).get(name)
        if schema is None:
            return False
    return True
