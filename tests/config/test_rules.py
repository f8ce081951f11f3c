"""Each rule between fields, broken and just not broken; where two numbers disagree the message has both."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

import pytest

from elastic_infra.config import ConfigError, rules
from elastic_infra.config.pod_rules import MAX_TEXT_BYTES
from elastic_infra.config.values import KnownLater
from tests import jobs

Fields = dict[str, Any]

RANGE: Final[Fields] = {"elastic": {"nnodes": "2:4"}}
POD_METRIC: Final[Fields] = {"metrics": [{"type": "pods", "name": "queue", "target": 1}]}
CAPACITY: Final[Fields] = {"policy": "capacity"}
CPU_METRIC: Final[Fields] = {"metrics": [{"type": "cpu", "target": 80}]}
EFA: Final[Fields] = {"resource": "vpc.amazonaws.com/efa", "count": 4}
ETCD: Final[Fields] = {"nnodes": 2, "rdzv_backend": "etcd-v2", "rdzv_endpoint": "etcd:2379"}


FETCHED: Final[Fields] = {"name": "data", "kind": "command", "command": ["true"], "path": "/mnt/a"}
ONLY_FOR_SEVERAL_NODES: Final[dict[str, Fields]] = {
    "rendezvous": {"rendezvous": {"port": 2000}},
    "elastic.initial_nodes": {"elastic": {"initial_nodes": 1}},
    "elastic.world_sizes": {"elastic": {"world_sizes": [1]}},
    "run_policy.scheduling_policy": {"run_policy": {"scheduling_policy": {}}},
    "run_policy.restart_policy": {"run_policy": {"restart_policy": "OnFailure"}},
    "run_policy.clean_pod_policy": {"run_policy": {"clean_pod_policy": "All"}},
    "disruption.pod_disruption_budget": {"disruption": {"pod_disruption_budget": True}},
    "placement.gang": {"placement": {"gang": {"scheduler": "coscheduling"}}},
    "elastic.rdzv_backend": {"elastic": {"rdzv_backend": "etcd", "rdzv_endpoint": "etcd:1"}},
}

INDEXED: Final[Fields] = {**RANGE, "target": "job"}
TRAIN_JOB: Final[Fields] = {**RANGE, "target": "trainjob"}
ELASTIC_JOB_SET: Final[Fields] = {"target": "trainjob", "elastic": {"nnodes": "2:4", "elastic_job_set": True}}
COSCHEDULING: Final[Fields] = {"gang": {"scheduler": "coscheduling"}}
KAI: Final[Fields] = {"placement": {"gang": {"scheduler": "kai", "queue": "q"}}}
PARTIAL: Final[Fields] = {"placement": {"queue": "q", "kueue": {"mode": "partial"}}}
ELASTIC: Final[Fields] = {"placement": {"queue": "q", "kueue": {"mode": "elastic"}}}
ONLY_FOR_THE_OPERATOR: Final[dict[str, Fields]] = {
    "run_policy.scheduling_policy": {"run_policy": {"scheduling_policy": {}}},
    "run_policy.restart_policy": {"run_policy": {"restart_policy": "OnFailure"}},
    "run_policy.clean_pod_policy": {"run_policy": {"clean_pod_policy": "All"}},
    "run_policy.managed_by": {"run_policy": {"managed_by": "kubeflow.org/training-operator"}},
}


@dataclasses.dataclass(frozen=True)
class Case:
    """A rule's case.

    Attributes:
        broken: fields that break it.
        path: where the fault is.
        says: what its reason holds.
        kept: fields that just do not break it.
    """

    rule: str
    broken: Fields
    path: str
    says: tuple[str, ...]
    kept: Fields


CASES: Final = (
    Case("one_entrypoint", {"script": None}, "script", ("none is given",), {"script": None, "module": "train"}),
    Case("one_entrypoint", {"module": "train"}, "script", ("script and module are given",), {"args": ["--module"]}),
    Case("one_entrypoint", {"script": "-c"}, "script", ("starts with '-'",), {"script": "./-c"}),
    Case(
        "one_entrypoint",
        {"script": None, "command": ["--version"]},
        "command",
        ("starts with '-'",),
        {"script": None, "command": ["sh", "-c"]},
    ),
    Case(
        "initial_within_range",
        {"elastic": {"nnodes": "2:4", "initial_nodes": 5}},
        "elastic.initial_nodes",
        ("(5)", "minimum (2)", "maximum (4)"),
        {"elastic": {"nnodes": "2:4", "initial_nodes": 4}},
    ),
    Case(
        "initial_within_range",
        {"elastic": {"nnodes": "2:4", "initial_nodes": 1}},
        "elastic.initial_nodes",
        ("(1)", "minimum (2)", "maximum (4)"),
        {"elastic": {"nnodes": "2:4", "initial_nodes": 2}},
    ),
    Case(
        "adopted_by_name",
        {"adopted": True, "namespace": KnownLater()},
        "adopted",
        ("known when the program runs",),
        {"adopted": True},
    ),
    Case(
        "nodes_come_in_units",
        {"elastic": {"nnodes": "1:4", "initial_nodes": 2, "node_unit": 2}},
        "elastic.nnodes",
        ("minimum (1)", "node_unit (2)"),
        {"elastic": {"nnodes": "2:4", "initial_nodes": 2, "node_unit": 2}},
    ),
    Case(
        "nodes_come_in_units",
        {"elastic": {"nnodes": "2:5", "initial_nodes": 2, "node_unit": 2}},
        "elastic.nnodes",
        ("maximum (5)", "node_unit (2)"),
        {"elastic": {"nnodes": "2:6", "initial_nodes": 2, "node_unit": 2}},
    ),
    Case(
        "nodes_come_in_units",
        {"elastic": {"nnodes": "2:6", "initial_nodes": 3, "node_unit": 2}},
        "elastic.initial_nodes",
        ("number (3)", "node_unit (2)"),
        {"elastic": {"nnodes": "3:6", "initial_nodes": 3, "node_unit": 3}},
    ),
    Case(
        "world_sizes_can_be_made",
        {"elastic": {"nnodes": "2:4", "nproc_per_node": 8, "world_sizes": [16]}},
        "elastic.world_sizes",
        ("4 nodes of 8 are 32",),
        {"elastic": {"nnodes": "2:4", "nproc_per_node": 8, "world_sizes": [16, 32]}},
    ),
    Case(
        "sizes_need_the_launcher",
        {"elastic": {**ETCD, "node_unit": 2}},
        "elastic.node_unit",
        ("'etcd-v2'",),
        {"elastic": ETCD},
    ),
    Case(
        "sizes_need_the_launcher",
        {"elastic": {**ETCD, "world_sizes": [2]}},
        "elastic.world_sizes",
        ("'etcd-v2'",),
        {"elastic": {"nnodes": 2, "world_sizes": [2]}},
    ),
    Case(
        "gang_can_be_complete",
        {**RANGE, "autoscaling": POD_METRIC, "run_policy": {"scheduling_policy": {"min_available": 3}}},
        "run_policy.scheduling_policy.min_available",
        ("(3)", "(2)"),
        {**RANGE, "autoscaling": POD_METRIC, "run_policy": {"scheduling_policy": {"min_available": 2}}},
    ),
    *(
        Case("gang_fits_its_scheduler", {**broken, **target}, path, (says,), {**kept, **target})
        for broken, target, path, says, kept in (
            (
                {"placement": COSCHEDULING, "run_policy": {"scheduling_policy": {}}},
                RANGE,
                "placement.gang",
                "two gangs",
                {"placement": COSCHEDULING},
            ),
            (
                {"placement": {"gang": {"scheduler": "coscheduling", "queue": "q"}}},
                INDEXED,
                "placement.gang.queue",
                "has no queues",
                {"placement": {"gang": {"scheduler": "volcano", "queue": "q"}}},
            ),
            ({"placement": {"gang": {"scheduler": "kai"}}}, INDEXED, "placement.gang.queue", "Name one", KAI),
            (
                {"placement": {"gang": {"scheduler": "volcano", "timeout_seconds": 9}}},
                INDEXED,
                "placement.gang.timeout_seconds",
                "coscheduling alone",
                {"placement": {"gang": {"scheduler": "coscheduling", "timeout_seconds": 9}}},
            ),
            (KAI, TRAIN_JOB, "placement.gang.scheduler", "not from a TrainJob", {"placement": COSCHEDULING}),
        )
    ),
    Case(
        "processes_match_gpus",
        {"elastic": {"nproc_per_node": 9}, "resources": {"gpu": 8}},
        "elastic.nproc_per_node",
        ("(9)", "(8)"),
        {"elastic": {"nproc_per_node": 8}, "resources": {"gpu": 8}},
    ),
    Case(
        "processes_match_gpus",
        {"elastic": {"nproc_per_node": 9}, "resources": {"gpu": {"count": 8, "vendor": "google"}}},
        "elastic.nproc_per_node",
        ("(9)", "(8)"),
        {"elastic": {"nproc_per_node": 32}, "resources": {"gpu": {"count": 16, "vendor": "neuron"}}},
    ),
    Case(
        "profile_holds",
        {"resources": {"rdma": EFA}},
        "resources.rdma",
        ("IPC_LOCK",),
        {"resources": {"rdma": EFA}, "security": {"profile": "baseline"}},
    ),
    Case(
        "devices_are_distinct",
        {"resources": {"rdma": {"resource": "nvidia.com/gpu"}, "gpu": 1}, "security": {"profile": "baseline"}},
        "resources.rdma.resource",
        ("(nvidia.com/gpu)",),
        {"resources": {"rdma": EFA, "gpu": 1}, "security": {"profile": "baseline"}},
    ),
    Case(
        "devices_are_distinct",
        {"resources": {"claims": [{"name": "gpus", "template": "a"}, {"name": "gpus", "template": "b"}]}},
        "resources.claims[1].name",
        ("(gpus)",),
        {"resources": {"claims": [{"name": "gpus", "template": "a"}, {"name": "nics", "template": "a"}]}},
    ),
    Case(
        "hugepages_have_company",
        {"resources": {"hugepages": {"amount": "64Mi"}}},
        "resources.hugepages",
        ("resources.cpu or resources.memory",),
        {"resources": {"hugepages": {"amount": "64Mi"}, "cpu": 1}},
    ),
    *(
        Case("indices_have_no_operator", {**without, **fields}, path, ("is for the training operator",), without)
        for path, fields in ONLY_FOR_THE_OPERATOR.items()
        for without in (INDEXED, TRAIN_JOB)
    ),
    Case(
        "indices_have_no_autoscaler",
        {**INDEXED, "autoscaling": POD_METRIC},
        "autoscaling",
        ("scale subresource, and a batch/v1 Job", "elastic-infra scale"),
        {**RANGE, "autoscaling": POD_METRIC},
    ),
    Case(
        "indices_have_no_autoscaler",
        {**ELASTIC_JOB_SET, "autoscaling": POD_METRIC},
        "autoscaling",
        ("scale subresource, and a TrainJob", "elastic-infra scale"),
        {**ELASTIC_JOB_SET, "autoscaling": {"policy": "capacity"}},
    ),
    Case(
        "indices_have_no_operator",
        {"target": "job", "elastic": ETCD},
        "elastic.rdzv_backend",
        ("'etcd-v2'", "exits with 1"),
        {"target": "pytorchjob", "elastic": ETCD},
    ),
    Case(
        "train_job_has_one_size",
        {"target": "trainjob", "elastic": {"nnodes": "2:4", "initial_nodes": 2}},
        "elastic.initial_nodes",
        ("the maximum of nodes for its whole life", "elastic.elastic_job_set"),
        {"target": "trainjob", "elastic": {"nnodes": "2:4", "initial_nodes": 2, "elastic_job_set": True}},
    ),
    Case(
        "job_set_has_what_can_change",
        {"elastic": {"nnodes": "2:4", "elastic_job_set": True}},
        "elastic.elastic_job_set",
        ("for target 'trainjob'", "a PyTorchJob has no JobSet"),
        ELASTIC_JOB_SET,
    ),
    Case(
        "job_set_has_what_can_change",
        {"target": "trainjob", "elastic": {"nnodes": 4, "elastic_job_set": True}},
        "elastic.elastic_job_set",
        ("needs a range of nodes, and nnodes is 4",),
        ELASTIC_JOB_SET,
    ),
    Case(
        "job_set_has_what_can_change",
        {**ELASTIC_JOB_SET, "placement": {"queue": "gpu"}},
        "elastic.elastic_job_set",
        ("without asking the queue",),
        {**TRAIN_JOB, "placement": {"queue": "gpu"}},
    ),
    Case(
        "driver_has_a_store_pod",
        {**ELASTIC_JOB_SET, "autoscaling": {"policy": "capacity"}, "rendezvous": {"host": "worker0"}},
        "autoscaling.policy",
        ("rendezvous.host 'worker0' has none",),
        {**ELASTIC_JOB_SET, "autoscaling": {"policy": "capacity"}},
    ),
    Case(
        "train_job_has_one_size",
        {**TRAIN_JOB, "autoscaling": POD_METRIC},
        "autoscaling",
        ("the maximum of nodes for its whole life",),
        {**RANGE, "autoscaling": POD_METRIC},
    ),
    Case(
        "train_job_is_not_watched",
        {**TRAIN_JOB, "run_policy": {"ttl_seconds_after_finished": 60}},
        "run_policy.ttl_seconds_after_finished",
        ("kubeflow/trainer#4052",),
        {**INDEXED, "run_policy": {"ttl_seconds_after_finished": 60}},
    ),
    Case(
        "train_job_is_not_watched",
        {**TRAIN_JOB, "wait_for": "running"},
        "wait_for",
        ("'succeeded'",),
        {**TRAIN_JOB, "wait_for": "succeeded"},
    ),
    Case(
        "overlays_keep_identity",
        {**TRAIN_JOB, "overlays": {"pod": {"spec": {"containers": [{"name": "node", "tty": True}]}}}},
        "overlays.pod.spec.containers",
        ("Call the training container 'pytorch'",),
        {**INDEXED, "overlays": {"pod": {"spec": {"containers": [{"name": "node", "tty": True}]}}}},
    ),
    Case(
        "indexed_job_counts_ready_pods",
        {**INDEXED, "wait_for": "running"},
        "wait_for",
        ("elastic.initial_nodes",),
        {"target": "job", "elastic": {"nnodes": "2:4", "initial_nodes": 2}, "wait_for": "running"},
    ),
    *(
        Case("only_for_several_nodes", fields, path, ("single pod",), {**fields, "target": "pytorchjob"})
        for path, fields in ONLY_FOR_SEVERAL_NODES.items()
    ),
    Case(
        "only_for_several_nodes",
        {"autoscaling": POD_METRIC},
        "autoscaling",
        ("single pod",),
        {**RANGE, "autoscaling": POD_METRIC},
    ),
    Case(
        "only_for_several_nodes",
        {"run_policy": {"managed_by": "kubeflow.org/training-operator"}},
        "run_policy.managed_by",
        ("does not manage",),
        {"run_policy": {"managed_by": "kueue.x-k8s.io/multikueue"}},
    ),
    Case(
        "only_for_several_nodes",
        {"run_policy": {"backoff_limit": -1}},
        "run_policy.backoff_limit",
        ("(-1)",),
        {"run_policy": {"backoff_limit": 0}},
    ),
    Case(
        "rendezvous_fits_backend",
        {"elastic": {"nnodes": 2, "rdzv_endpoint": "host:1"}},
        "elastic.rdzv_endpoint",
        ("follows from rendezvous",),
        {"elastic": ETCD},
    ),
    Case(
        "rendezvous_fits_backend",
        {"elastic": {"nnodes": 2, "rdzv_backend": "etcd"}},
        "elastic.rdzv_endpoint",
        ("'etcd' needs the host:port",),
        {"elastic": {"nnodes": 2, "rdzv_backend": "etcd", "rdzv_endpoint": "etcd:1"}},
    ),
    Case(
        "rendezvous_fits_backend",
        {"elastic": ETCD, "rendezvous": {"port": 2000}},
        "rendezvous",
        ("'etcd-v2' does not use it",),
        {"elastic": {"nnodes": 2}, "rendezvous": {"port": 2000}},
    ),
    Case(
        "host_fits_port",
        {**RANGE, "launcher": {"metrics_port": 29400}},
        "launcher.metrics_port",
        ("(29400)", "rendezvous.port (29400)"),
        {**RANGE, "launcher": {"metrics_port": 29401}},
    ),
    Case(
        "host_fits_port",
        {**RANGE, "rendezvous": {"host": "worker0", "image": "store"}},
        "rendezvous",
        ("'dedicated'",),
        {**RANGE, "rendezvous": {"image": "store"}},
    ),
    Case(
        "autoscaling_has_room",
        {"elastic": {"nnodes": 2}, "autoscaling": POD_METRIC},
        "autoscaling",
        ("nnodes is 2",),
        {"elastic": {"nnodes": "2:3"}, "autoscaling": POD_METRIC},
    ),
    Case(
        "autoscaling_has_room",
        {**RANGE, "autoscaling": POD_METRIC, "placement": {"queue": "gpu"}},
        "autoscaling",
        ("Kueue suspends", "'elastic'"),
        {**RANGE, "placement": {"queue": "gpu"}},
    ),
    Case(
        "autoscaling_has_room",
        {**RANGE, "autoscaling": {**POD_METRIC, "owner": "operator", "behavior": {}}},
        "autoscaling.behavior",
        ("has none",),
        {**RANGE, "autoscaling": {**POD_METRIC, "behavior": {}}},
    ),
    Case(
        "autoscaling_has_room",
        {**RANGE, "autoscaling": CPU_METRIC, "resources": {"memory": "1Gi"}},
        "autoscaling.metrics[0]",
        ("resources.cpu",),
        {**RANGE, "autoscaling": CPU_METRIC, "resources": {"cpu": 1}},
    ),
    Case(
        "autoscaling_has_room",
        {**INDEXED, "elastic": {"nnodes": 2}, "rendezvous": {"host": "dedicated"}, "autoscaling": CAPACITY},
        "autoscaling",
        ("range", "2"),
        {**INDEXED, "autoscaling": CAPACITY},
    ),
    Case(
        "autoscaling_has_room",
        {**INDEXED, "autoscaling": CAPACITY, "placement": {"queue": "gpu"}},
        "autoscaling",
        ("Kueue", "placement.kueue.mode 'elastic'"),
        {**INDEXED, "autoscaling": CAPACITY, "placement": {"queue": "gpu", "kueue": {"mode": "elastic"}}},
    ),
    *(
        Case(
            "autoscaling_fits_its_policy", {**RANGE, "autoscaling": broken}, path, says, {**RANGE, "autoscaling": kept}
        )
        for broken, path, says, kept in (
            ({}, "autoscaling.metrics", ("at least one metric", "'capacity'"), POD_METRIC),
            ({**POD_METRIC, "probe_seconds": 5}, "autoscaling.probe_seconds", ("'capacity'",), POD_METRIC),
            ({**CAPACITY, **POD_METRIC}, "autoscaling.metrics", ("one autoscaler",), {**CAPACITY, "probe_seconds": 5}),
            ({**CAPACITY, "behavior": {}}, "autoscaling.behavior", ("'metrics'",), {**POD_METRIC, "behavior": {}}),
            (
                {**CAPACITY, "owner": "operator"},
                "autoscaling.owner",
                ("'metrics'",),
                {**CAPACITY, "owner": "component"},
            ),
        )
    ),
    Case(
        "driver_has_a_store_pod",
        {**INDEXED, "autoscaling": CAPACITY, "rendezvous": {"host": "worker0"}},
        "autoscaling.policy",
        ("'worker0'", "'dedicated'"),
        {**INDEXED, "autoscaling": CAPACITY, "rendezvous": {"host": "dedicated"}},
    ),
    Case(
        "driver_has_a_store_pod",
        {"elastic": {**ETCD, "nnodes": "1:2"}, "autoscaling": CAPACITY},
        "autoscaling.policy",
        ("'etcd-v2'", "'c10d'"),
        {"elastic": {"nnodes": "1:2"}, "autoscaling": CAPACITY},
    ),
    *(
        Case(
            "driver_has_a_store_pod",
            {**shape, "launcher": {"kubernetes_events": True}},
            "launcher.kubernetes_events",
            (says,),
            {**shape, **fixed, "launcher": {"kubernetes_events": True}},
        )
        for shape, says, fixed in (
            ({"elastic": {"nnodes": 2}}, "'dedicated'", {"rendezvous": {"host": "dedicated"}}),
            ({"elastic": {**ETCD, "nnodes": "1:2"}}, "'c10d'", {"elastic": {"nnodes": "1:2"}}),
        )
    ),
    Case(
        "only_for_several_nodes",
        {"launcher": {"kubernetes_events": True}},
        "launcher.kubernetes_events",
        ("single pod",),
        {**RANGE, "launcher": {"kubernetes_events": True}},
    ),
    *(
        Case(
            "affinity_is_written_once",
            {**RANGE, "placement": {short: value, "affinity": {verbatim: {}}}},
            f"placement.{short}",
            (f"affinity.{verbatim}",),
            {**RANGE, "placement": {short: value, "affinity": {"podAntiAffinity": {}}}},
        )
        for short, value, verbatim in (
            ("spot", "required", "nodeAffinity"),
            ("spot", "preferred", "nodeAffinity"),
            ("topology_pack", {"topology_key": "zone"}, "podAffinity"),
        )
    ),
    Case(
        "affinity_is_written_once",
        {**RANGE, "placement": {"avoid_bad_nodes": True, "affinity": {"podAntiAffinity": {}}}},
        "placement.avoid_bad_nodes",
        ("affinity.podAntiAffinity",),
        {**RANGE, "placement": {"avoid_bad_nodes": True, "affinity": {"podAffinity": {}}}},
    ),
    Case(
        "only_for_several_nodes",
        {"placement": {"avoid_bad_nodes": True}},
        "placement.avoid_bad_nodes",
        ("single pod",),
        {**RANGE, "placement": {"avoid_bad_nodes": True}},
    ),
    Case(
        "driver_has_a_store_pod",
        {"elastic": {"nnodes": 2}, "placement": {"avoid_bad_nodes": True}},
        "placement.avoid_bad_nodes",
        ("'dedicated'",),
        {"elastic": {"nnodes": 2}, "placement": {"avoid_bad_nodes": True}, "rendezvous": {"host": "dedicated"}},
    ),
    Case(
        "topology_is_asked_for_once",
        {
            **INDEXED,
            "placement": {"queue": "gpu", "kueue": {"mode": "elastic"}, "topology_pack": {"topology_key": "zone"}},
        },
        "placement.topology_pack",
        ("'elastic'",),
        {**INDEXED, "placement": {"queue": "gpu", "topology_pack": {"topology_key": "zone"}}},
    ),
    Case(
        "topology_is_asked_for_once",
        {
            **INDEXED,
            "annotations": {"kueue.x-k8s.io/podset-preferred-topology": "zone"},
            "placement": {"queue": "gpu", "topology_pack": {"topology_key": "zone"}},
        },
        "annotations.kueue.x-k8s.io/podset-preferred-topology",
        ("placement.topology_pack",),
        {**INDEXED, "placement": {"queue": "gpu", "topology_pack": {"topology_key": "zone"}}},
    ),
    Case(
        "only_for_several_nodes",
        {"placement": {"topology_pack": {"topology_key": "zone"}}},
        "placement.topology_pack",
        ("single pod",),
        {**RANGE, "placement": {"topology_pack": {"topology_key": "zone"}}},
    ),
    Case(
        "pods_have_one_account",
        {"security": {"own_service_account": True, "service_account": "team"}},
        "security.own_service_account",
        ("security.service_account",),
        {"security": {"own_service_account": True}},
    ),
    Case(
        "queue_owns_suspend",
        {**RANGE, "placement": {"queue": "gpu"}, "run_policy": {"suspend": False}},
        "run_policy.suspend",
        ("Kueue",),
        {**RANGE, "run_policy": {"suspend": False}},
    ),
    Case(
        "config_map_is_mounted",
        {"launcher": {"delivery": "image", "config_map": "team-launcher"}},
        "launcher.config_map",
        ("delivery 'image'",),
        {"launcher": {"config_map": "team-launcher"}},
    ),
    Case(
        "launcher_can_be_verified",
        {"launcher": {"verify": True, "delivery": "image"}},
        "launcher.verify",
        ("delivery 'image'", "by digest"),
        {"launcher": {"verify": False, "delivery": "image"}},
    ),
    Case(
        "launcher_can_be_verified",
        {"launcher": {"verify": True, "config_map": f"team-{'0' * 63}"}},
        "launcher.config_map",
        (f"(team-{'0' * 63})", "SHA-256", "`ElasticLauncher`"),
        {"launcher": {"verify": True, "config_map": f"team-{'0' * 64}"}},
    ),
    Case(
        "launcher_can_be_verified",
        {"launcher": {"verify": True, "config_map": "0" * 64}},
        "launcher.config_map",
        ("end in '-'",),
        {"launcher": {"verify": True, "config_map": KnownLater()}},
    ),
    Case(
        "shared_memory_fits",
        {"shared_memory": {"size": "1025Mi"}, "resources": {"memory": "1Gi"}},
        "shared_memory.size",
        ("(1025Mi)", "(1Gi)"),
        {"shared_memory": {"size": "1024Mi"}, "resources": {"memory": "1Gi"}},
    ),
    Case(
        "shared_memory_fits",
        {"shared_memory": {"enabled": False, "size": "1Gi"}},
        "shared_memory.size",
        ("disabled",),
        {"shared_memory": {"size": "1Gi"}},
    ),
    *(
        Case(
            "environment_is_free",
            {"env": {name: "1"}},
            f"env.{name}",
            ("would override",),
            {"env": {f"MY_{name}": "1"}},
        )
        for name in ("PET_NNODES", "RANK", "WORLD_SIZE", "MASTER_ADDR", "TORCHELASTIC_RUN_ID", "ELASTIC_INFRA_EVENTS")
    ),
    Case("environment_is_free", {"env": {"PET_REDIRECTS": "3"}}, "env.PET_REDIRECTS", (), {"env": {"PET_TEE": "3"}}),
    Case(
        "grace_fits",
        {"runtime": {"shutdown_grace_seconds": 116}},
        "runtime.shutdown_grace_seconds",
        ("(116)", "5", "(120)"),
        {"runtime": {"shutdown_grace_seconds": 115}},
    ),
    Case(
        "failure_grace_fits",
        {"runtime": {"failure_grace_seconds": 31}},
        "runtime.failure_grace_seconds",
        ("(31)", "(30)"),
        {"runtime": {"failure_grace_seconds": 30}},
    ),
    Case(
        "profile_holds",
        {"security": {"run_as_user": 0}},
        "security.run_as_user",
        ("root",),
        {"security": {"run_as_user": 0, "profile": "baseline"}},
    ),
    Case(
        "profile_holds",
        {"storage": {"volumes": [{"name": "data", "host_path": "/data"}]}},
        "storage.volumes[0].host_path",
        ("'restricted'",),
        {"storage": {"volumes": [{"name": "data", "host_path": "/data"}]}, "security": {"profile": "baseline"}},
    ),
    *(
        Case(
            "volume_names_are_distinct",
            {"storage": {"volumes": [{"name": "data", "claim": "a"}, {"name": name, "claim": "b"}]}},
            "storage.volumes[1].name",
            (f"({name})",),
            {"storage": {"volumes": [{"name": "data", "claim": "a"}, {"name": f"my-{name}", "claim": "b"}]}},
        )
        for name in ("data", "shm", "launcher", "home", "tmp", "checkpoint")
    ),
    Case(
        "volume_names_are_distinct",
        {"storage": {"mounts": [{"volume": "data", "mount_path": "/data"}]}},
        "storage.mounts[0].volume",
        ("(data)",),
        {"storage": {"volumes": [{"name": "data", "claim": "a"}], "mounts": [{"volume": "data", "mount_path": "/d"}]}},
    ),
    *(
        Case(
            "mount_paths_are_distinct",
            {"storage": {"checkpoint": {"claim": "c", "mount_path": path}}, **also},
            "storage.checkpoint.mount_path",
            ("is taken",),
            {"storage": {"checkpoint": {"claim": "c", "mount_path": path}}, **instead},
        )
        for path, also, instead in (
            ("/dev/shm", {}, {"shared_memory": False}),
            ("/dev/./shm/", {}, {"shared_memory": False}),
            ("/opt/elastic-infra", {}, {"launcher": {"delivery": "image"}}),
            ("/tmp", {"security": {"read_only_root": True}}, {}),
        )
    ),
    Case(
        "mount_paths_are_distinct",
        {"storage": {"checkpoint": {"claim": "c", "mount_path": "/"}}},
        "storage.checkpoint.mount_path",
        ("(/)",),
        {"storage": {"checkpoint": {"claim": "c", "mount_path": "/home"}}},
    ),
    Case(
        "mount_paths_are_distinct",
        {
            "storage": {
                "checkpoint": {"claim": "c", "mount_path": "/save/"},
                "volumes": [{"name": "data", "claim": "a"}],
                "mounts": [{"volume": "data", "mount_path": "//save"}],
            }
        },
        "storage.mounts[0].mount_path",
        ("(/save)",),
        {
            "storage": {
                "checkpoint": {"claim": "c", "mount_path": "/save/"},
                "volumes": [{"name": "data", "claim": "a"}],
                "mounts": [{"volume": "data", "mount_path": "/save/data"}],
            }
        },
    ),
    *(
        Case("own_metadata_is_kept", {kind: {key: "x"}}, f"{kind}.{key}", ("another key",), {kind: {f"{key}-x": "x"}})
        for kind, key in (
            ("labels", "app.kubernetes.io/instance"),
            ("annotations", "sidecar.istio.io/inject"),
            ("annotations", "cluster-autoscaler.kubernetes.io/safe-to-evict"),
        )
    ),
    *(
        Case("own_metadata_is_kept", {kind: {key: "x"}}, f"{kind}.{key}", ("another key",), {kind: {f"my.{key}": "x"}})
        for kind, key in (
            ("labels", "training.kubeflow.org/job-name"),
            ("annotations", "pulumi.com/skipAwait"),
            ("annotations", "elastic-infra/rerun"),
        )
    ),
    *(
        Case(
            "job_controller_labels_are_kept", {**place("x"), **target}, path, ("API server",), {**place("x"), **instead}
        )
        for target, instead in (
            ({"elastic": {"nnodes": 1}}, {"elastic": {"nnodes": 2}}),
            ({"elastic": {"nnodes": 2}, "target": "job"}, {"elastic": {"nnodes": 2}}),
            ({"elastic": {"nnodes": 2}, "target": "trainjob"}, {"elastic": {"nnodes": 2}}),
        )
        for path, place in (
            ("labels.job-name", lambda value: {"labels": {"job-name": value}}),
            (
                "overlays.pod.metadata.labels.controller-uid",
                lambda value: {"overlays": {"pod": {"metadata": {"labels": {"controller-uid": value}}}}},
            ),
        )
    ),
    *(
        Case(
            "own_metadata_is_kept",
            {kind: {f"kueue.x-k8s.io/{key}": "true"}},
            f"{kind}.kueue.x-k8s.io/{key}",
            (f"Set {instead} instead",),
            {"annotations": {"kueue.x-k8s.io/podset-preferred-topology": "rack"}},
        )
        for kind, key, instead in (
            ("labels", "queue-name", "placement.queue"),
            ("labels", "priority-class", "placement.kueue.priority_class"),
            ("annotations", "elastic-job", "placement.kueue.mode"),
            ("annotations", "job-min-parallelism", "placement.kueue.mode"),
        )
    ),
    Case(
        "kueue_has_a_queue",
        {**INDEXED, "placement": {"kueue": {"mode": "partial"}}},
        "placement.kueue",
        ("without placement.queue",),
        {**INDEXED, **PARTIAL},
    ),
    Case(
        "kueue_can_divide",
        {**RANGE, **PARTIAL},
        "placement.kueue.mode",
        ("'partial'", "a PyTorchJob (target 'auto')", "target 'job'"),
        {**RANGE, "placement": {"queue": "q", "kueue": {"priority_class": "high"}}},
    ),
    Case(
        "kueue_can_divide",
        {**TRAIN_JOB, **ELASTIC},
        "placement.kueue.mode",
        ("'elastic'", "a TrainJob"),
        {**INDEXED, **ELASTIC},
    ),
    Case(
        "kueue_can_divide",
        {"elastic": {"nnodes": 2}, "target": "job", **ELASTIC},
        "placement.kueue.mode",
        ("a fixed number of nodes", "elastic.nnodes"),
        {"elastic": {"nnodes": "1:2"}, "target": "job", **ELASTIC},
    ),
    Case(
        "kueue_can_divide",
        {"elastic": {"nnodes": "2:4", "initial_nodes": 2}, "target": "job", **PARTIAL},
        "placement.kueue.mode",
        ("(2)", "elastic.initial_nodes"),
        {"elastic": {"nnodes": "2:4", "initial_nodes": 3}, "target": "job", **PARTIAL},
    ),
    Case(
        "kueue_can_divide",
        {**INDEXED, **ELASTIC, "annotations": {"kueue.x-k8s.io/podset-preferred-topology": "rack"}},
        "annotations.kueue.x-k8s.io/podset-preferred-topology",
        ("'elastic'",),
        {**INDEXED, **PARTIAL, "annotations": {"kueue.x-k8s.io/podset-preferred-topology": "rack"}},
    ),
    Case(
        "list_keys_are_distinct",
        {"image_pull_secrets": ["a", "b", "a"]},
        "image_pull_secrets",
        ("twice",),
        {"image_pull_secrets": ["a", "b"]},
    ),
    Case(
        "overlays_keep_identity",
        {"overlays": {"pod": {"spec": {"hostname": "mine"}}}},
        "overlays.pod.spec.hostname",
        ("set by the operator",),
        {"overlays": {"pod": {"spec": {"hostNetwork": True}}}},
    ),
    Case(
        "overlays_can_be_merged",
        {"overlays": {"pod": {"spec": {"volumes": [{"emptyDir": {}}]}}}},
        "overlays.pod.spec.volumes[0]",
        ("a mapping with name (text)",),
        {"overlays": {"pod": {"spec": {"volumes": [{"name": "scratch", "emptyDir": {}}]}}}},
    ),
    Case(
        "list_keys_are_distinct",
        {"placement": {"topology_spread": [{"topology_key": "zone"}, {"topology_key": "zone"}]}},
        "placement.topology_spread",
        ("twice",),
        {
            "placement": {
                "topology_spread": [
                    {"topology_key": "zone"},
                    {"topology_key": "zone", "when_unsatisfiable": "DoNotSchedule"},
                ]
            }
        },
    ),
    Case(
        "small_enough",
        {"args": ["é" * 16_000] * 6 + ["x" * 12_801]},
        "env",
        (str(MAX_TEXT_BYTES + 1), str(MAX_TEXT_BYTES)),
        {"args": ["é" * 16_000] * 6 + ["x" * 12_800]},
    ),
    Case(
        "small_enough",
        {"annotations": {f"note-{i}": "x" * 30_000 for i in range(7)}},
        "annotations",
        ("210000", str(MAX_TEXT_BYTES)),
        {"annotations": {f"note-{i}": "x" * 29_000 for i in range(7)}},
    ),
    Case("workdir_is_code", {"workdir": {}}, "workdir", ("needs a path",), {"workdir": "src"}),
    Case(
        "workdir_is_code",
        {"workdir": {"files": {"a.pem": ""}}},
        "workdir.files['a.pem']",
        ("looks like a secret", "workdir.exclude"),
        {"workdir": {"files": {"pem.py": ""}}},
    ),
    Case(
        "initializers_fit",
        {"initializers": [{**FETCHED, "name": "a" * 59}]},
        "initializers[0].name",
        ("at most 58 characters",),
        {"initializers": [{**FETCHED, "name": "a" * 58}]},
    ),
    Case(
        "initializers_fit",
        {"initializers": [FETCHED, {**FETCHED, "name": "other"}]},
        "initializers[1].path",
        ("(/mnt/a)", "another initializer"),
        {"initializers": [FETCHED, {**FETCHED, "name": "other", "path": "/mnt/b"}]},
    ),
)

every_case = pytest.mark.parametrize(
    "case", CASES, ids=[f"{i}-{case.rule}-{case.path}" for i, case in enumerate(CASES)]
)


@every_case
def test_a_broken_rule_names_the_field_and_the_reason(case: Case) -> None:
    """The path leads to the field, the reason says what disagrees."""
    with pytest.raises(ConfigError) as caught:
        jobs.job(**case.broken)

    reasons = [fault.reason for fault in caught.value.faults if fault.path == case.path]
    assert any(all(said in reason for said in case.says) for reason in reasons), caught.value
    assert all(reason.endswith(".") for reason in reasons)


@every_case
def test_a_rule_that_is_just_kept_lets_pass(case: Case) -> None:
    """One step back from the limit is valid."""
    jobs.job(**case.kept)


def test_every_rule_has_a_case() -> None:
    """A new rule comes with its table row."""
    assert {case.rule for case in CASES} == {rule.__name__ for rule in rules._RULES}


def test_every_broken_rule_is_reported_at_once() -> None:
    """One run shows all that is to be fixed."""
    with pytest.raises(ConfigError) as caught:
        jobs.job(
            module="train",
            elastic={"nnodes": "2:4", "initial_nodes": 9},
            runtime={"shutdown_grace_seconds": 600},
            security={"run_as_user": 0},
        )

    assert [fault.path for fault in caught.value.faults] == [
        "script",
        "elastic.initial_nodes",
        "runtime.shutdown_grace_seconds",
        "security.run_as_user",
    ]
