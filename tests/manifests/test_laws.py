"""What holds for the objects of every valid config, whatever else is in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings

from elastic_infra import JobConfig
from elastic_infra.config.env import reserved
from elastic_infra.config.names import MAX_LABEL
from tests import jobs, strategies
from tests.strategies import Data

Objects = dict[str, Any]

OPERATOR_LABELS = "training.kubeflow.org/"


def _rendered(name: str, data: Data) -> tuple[JobConfig, Objects]:
    config = JobConfig.from_mapping(data)
    return config, jobs.objects(config, name)


def _values(value: Any) -> Iterator[Any]:
    yield value
    for child in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _values(child)


@given(strategies.JOB_NAMES, strategies.job_configs())
def test_objects_fit_together(name: str, data: Data) -> None:
    """Names, labels, selectors, volumes and ports of a job's objects agree with each other."""
    config, objects = _rendered(name, data)
    _names_are_labels_of_one_namespace(config, objects)
    _nothing_is_null(objects)
    _operator_labels_are_only_selected(objects)
    for template in jobs.templates(objects):
        _mounts_have_volumes(template["spec"])
        _ports_are_named(template["spec"])
        _pods_are_restricted(config, template["spec"])
    _environment_has_each_name_once(config)
    _selectors_pick_pods(name, config, objects)
    _bounds_agree(config, objects)


def _names_are_labels_of_one_namespace(config: JobConfig, objects: Objects) -> None:
    names = [(manifest["kind"], manifest["metadata"]["name"]) for manifest in objects.values()]

    assert len(names) == len(set(names))
    assert all(manifest["metadata"]["namespace"] == config.namespace for manifest in objects.values())
    labels = [objects["workload"], *(objects[role] for role in ("service", "store") if role in objects)]
    assert all(len(manifest["metadata"]["name"]) <= MAX_LABEL for manifest in labels)


def _nothing_is_null(objects: Objects) -> None:
    """Kubernetes reads null as a deletion, the operator panics at an empty list."""
    assert not any(value is None or value == [] for manifest in objects.values() for value in _values(manifest))


def _operator_labels_are_only_selected(objects: Objects) -> None:
    owned = [manifest["metadata"] for manifest in objects.values()] + [t["metadata"] for t in jobs.templates(objects)]

    assert not any(key.startswith(OPERATOR_LABELS) for metadata in owned for key in metadata["labels"])


def _mounts_have_volumes(pod: Any) -> None:
    volumes = [volume["name"] for volume in pod.get("volumes", [])]
    mounts = [container.get("volumeMounts", []) for container in _containers(pod)]

    assert len(volumes) == len(set(volumes))
    for each in mounts:
        assert len(each) == len({mount["mountPath"] for mount in each})
    assert {mount["name"] for each in mounts for mount in each} == set(volumes)


def _containers(pod: Any) -> list[Any]:
    """The containers that this package makes, those that come before the training included."""
    own = [each for each in pod.get("initContainers", []) if each["name"] != "wait"]
    return [*pod["containers"], *own]


def _ports_are_named(pod: Any) -> None:
    ports = [port for container in pod["containers"] for port in container.get("ports", [])]

    assert all(re.fullmatch(r"[a-z][-a-z0-9]{0,14}", port["name"]) for port in ports)
    assert len({port["name"] for port in ports}) == len({port["containerPort"] for port in ports}) == len(ports)


def _pods_are_restricted(config: JobConfig, pod: Any) -> None:
    """What https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted asks for."""
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False
    if config.security.profile == "restricted":
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] > 0
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in _containers(pod):
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert not any("hostPath" in volume for volume in pod.get("volumes", []))


def _environment_has_each_name_once(config: JobConfig) -> None:
    names = [entry["name"] for entry in jobs.container(config)["env"]]
    ours = [name for name in names if name not in config.env]

    assert len(names) == len(set(names))
    composed = ["ELASTIC_INFRA_NODE_NAME"] if config.has_indices else []
    assert names == sorted(set(ours) - set(composed)) + composed + list(config.env)
    assert not any(reserved(name) for name in config.env)


def _selectors_pick_pods(name: str, config: JobConfig, objects: Objects) -> None:
    if service := objects.get("service"):
        store = objects.get("store")
        pod = store["spec"]["template"]["metadata"]["labels"] if store else _first_nodes_labels(name, objects)
        assert service["spec"]["selector"].items() <= pod.items()
        assert service["spec"]["ports"][0]["port"] == config.rendezvous.port
    if store := objects.get("store"):
        assert (
            store["spec"]["selector"]["matchLabels"].items() <= store["spec"]["template"]["metadata"]["labels"].items()
        )
    if policy := objects.get("network_policy"):
        closed = policy["spec"]["podSelector"]["matchLabels"].items()
        assert all(closed <= template["metadata"]["labels"].items() for template in jobs.templates(objects))
    if budget := objects.get("disruption_budget"):
        assert budget["spec"]["selector"]["matchLabels"].items() <= _first_nodes_labels(name, objects).items()


def _first_nodes_labels(name: str, objects: Objects) -> dict[str, str]:
    """Labels that the first node's pod has of the template and of its controller."""
    (template,) = jobs.templates({role: objects[role] for role in ("workload", "runtime") if role in objects})
    return {
        **template["metadata"]["labels"],
        "batch.kubernetes.io/job-completion-index": "0",
        f"{OPERATOR_LABELS}job-name": name,
        f"{OPERATOR_LABELS}replica-type": "worker",
        f"{OPERATOR_LABELS}replica-index": "0",
    }


def _bounds_agree(config: JobConfig, objects: Objects) -> None:
    assert ("role" in objects) == config.has_driver
    if config.is_single_pod:
        assert not {"service", "store", "autoscaler", "disruption_budget"} & set(objects)
        return
    spec = objects["workload"]["spec"]
    if config.is_indexed_job:
        low, _, high = jobs.environment(config)["PET_NNODES"].partition(":")
        assert 1 <= int(low) <= spec["completions"] <= int(high)
        assert spec["completions"] == spec["parallelism"]
        assert config.follows_capacity == (config.autoscaling is not None)
        assert "autoscaler" not in objects
        return
    if config.kind == "TrainJob":
        low, _, high = jobs.environment(config)["PET_NNODES"].partition(":")
        begins_with = objects["runtime"]["spec"]["mlPolicy"]["numNodes"]
        assert 1 <= int(low) <= begins_with <= int(high)
        assert begins_with == int(high) or config.elastic.elastic_job_set
        assert spec["runtimeRef"]["name"] == objects["runtime"]["metadata"]["name"]
        assert "autoscaler" not in objects
        return
    policy, worker = spec["elasticPolicy"], spec["pytorchReplicaSpecs"]["Worker"]
    assert 1 <= policy["minReplicas"] <= worker["replicas"] <= policy["maxReplicas"]
    assert set(spec["pytorchReplicaSpecs"]) == {"Worker"}
    movers = ("metrics" in policy) + ("autoscaler" in objects) + config.follows_capacity
    assert movers == (config.autoscaling is not None)
    if scaler := objects.get("autoscaler"):
        assert scaler["metadata"]["name"] != objects["workload"]["metadata"]["name"]
        assert (scaler["spec"]["minReplicas"], scaler["spec"]["maxReplicas"]) == (
            policy["minReplicas"],
            policy["maxReplicas"],
        )


@settings(max_examples=40)
@given(strategies.JOB_NAMES, strategies.job_configs())
def test_a_config_in_its_canonical_form_means_the_same(name: str, data: Data) -> None:
    """Shorthands and defaults are only another spelling: a config written out in full gives the same objects."""
    config, objects = _rendered(name, data)
    canonical = JobConfig.from_mapping(config.model_dump())

    assert canonical == config
    assert jobs.objects(canonical, name) == objects
