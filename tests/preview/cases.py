"""Changes that a reviewer meets, each small enough to read whole."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any, Final

from elastic_infra import JobConfig
from elastic_infra.preview import Comparison, Job, Side, SideFault, compare

Data = dict[str, Any]

LLM: Final[Data] = {
    "image": "registry.example.com/llm:1",
    "namespace": "research",
    "script": "train.py",
    "args": ["--epochs", "3"],
    "env": {"DATASET": "/data", "HF_TOKEN": {"secret": "hf", "key": "token"}},
    "elastic": {"nnodes": "2:6", "nproc_per_node": 8, "max_restarts": 5},
    "resources": {"cpu": 64, "memory": "512Gi", "gpu": 8},
    "shared_memory": {"size": "64Gi"},
    "storage": {"checkpoint": {"claim": "llm-checkpoints"}},
}
SMALL: Final[Data] = {
    "image": "registry.example.com/eval:4",
    "script": "eval.py",
    "resources": {"memory": "32Gi", "gpu": 1},
    "storage": {"checkpoint": {"size": "10Gi"}},
}


def changed(data: Data, **paths: Any) -> Data:
    """The config with some places changed; `a__b` is the place `a.b`, None takes it away."""
    data = copy.deepcopy(data)
    for path, value in paths.items():
        *above, last = path.split("__")
        place = data
        for name in above:
            place = place.setdefault(name, {})
        if value is None:
            del place[last]
        else:
            place[last] = value
    return data


def side(*faults: SideFault, **jobs: Data) -> Side:
    """A side with these jobs."""
    found = (Job.declared(name, f"{name}.yaml", JobConfig.from_mapping(data)) for name, data in jobs.items())
    return Side(tuple(found), tuple(faults))


METRICS: Final = [{"type": "cpu", "target": 80}, {"type": "memory", "target": 70}]
QUEUED: Final = changed(LLM, placement={"queue": "gpus"})
SCALED: Final = changed(LLM, autoscaling={"metrics": METRICS})
ADMITTED: Final = changed(LLM, target="job", placement={"queue": "gpus"})
GANGED: Final = changed(LLM, placement={"gang": {"scheduler": "coscheduling", "timeout_seconds": 30}})
MODEL: Final = {"name": "model", "kind": "huggingface", "source": "org/model", "path": "/cache/model"}
CACHED: Final = changed(
    LLM,
    storage__volumes=[{"name": "cache", "claim": "models"}],
    storage__mounts=[{"volume": "cache", "mount_path": "/cache"}],
)
FETCHED: Final = changed(CACHED, initializers=[MODEL])
CONFLICT: Final = SideFault(
    "base", "eval.yaml", "holds a merge conflict marker at line 7. Resolve the merge first.", "eval"
)

CASES: Final[dict[str, tuple[Side, Side]]] = {
    "image": (side(llm=LLM), side(llm=changed(LLM, image="registry.example.com/llm:2"))),
    "nodes-range": (side(llm=LLM), side(llm=changed(LLM, elastic__nnodes="2:12"))),
    "metrics": (
        side(llm=SCALED),
        side(
            llm=changed(SCALED, autoscaling__metrics=[{"type": "cpu", "target": 65}, {"type": "memory", "target": 70}])
        ),
    ),
    "metrics-order": (
        side(llm=SCALED),
        side(llm=changed(SCALED, autoscaling__metrics=METRICS[::-1])),
    ),
    "capacity": (side(llm=LLM), side(llm=changed(LLM, autoscaling={"policy": "capacity"}))),
    "shared-memory": (side(llm=LLM), side(llm=changed(LLM, shared_memory__size="128Gi"))),
    "secret-env": (
        side(llm=LLM),
        side(llm=changed(LLM, env={"DATASET": "/data", "HF_TOKEN": "hf_plain_text_token", "API_KEY": "k-123"})),
    ),
    "env-order": (side(llm=LLM), side(llm=changed(LLM, env=dict(reversed(LLM["env"].items()))))),
    "rename": (side(eval=SMALL), side(evaluation=SMALL)),
    "new-job": (side(llm=LLM), side(llm=LLM, eval=SMALL)),
    "deletion": (side(llm=LLM, eval=SMALL), side(llm=LLM)),
    "rendezvous-timeouts": (
        side(llm=LLM),
        side(llm=changed(LLM, elastic__rdzv_configs={"join_timeout": 1800, "last_call_timeout": 15})),
    ),
    "backoff-in-place": (
        side(llm=LLM),
        side(llm=changed(LLM, run_policy={"backoff_limit": 40, "clean_pod_policy": "All"})),
    ),
    "target-switch": (side(eval=SMALL), side(eval=changed(SMALL, target="pytorchjob"))),
    "trainer": (
        side(
            llm=changed(LLM, target="trainjob"),
            moved=changed(LLM, target="job"),
            held=changed(LLM, target="trainjob"),
        ),
        side(
            llm=changed(LLM, target="trainjob", image="registry.example.com/llm:2", elastic__nnodes="2:8"),
            moved=changed(LLM, target="trainjob"),
            held=changed(LLM, target="trainjob", run_policy={"suspend": True}),
        ),
    ),
    "trainer-size": (
        side(llm=changed(LLM, target="trainjob"), idle=changed(LLM, target="trainjob")),
        side(
            llm=changed(LLM, target="trainjob", elastic__elastic_job_set=True),
            idle=changed(LLM, target="trainjob", elastic__elastic_job_set=True, autoscaling={"policy": "capacity"}),
        ),
    ),
    "without-operator": (
        side(llm=LLM, small=changed(LLM, target="job")),
        side(
            llm=changed(LLM, target="job"),
            small=changed(LLM, target="job", run_policy={"backoff_limit": 40}),
        ),
    ),
    "suspend": (side(llm=LLM), side(llm=changed(LLM, run_policy={"suspend": True}))),
    "checkpoint-size": (side(eval=SMALL), side(eval=changed(SMALL, storage__checkpoint__size="50Gi"))),
    "refused-restart": (
        side(llm=changed(LLM, run_policy={"on_restart": "refuse"})),
        side(llm=changed(LLM, run_policy={"on_restart": "refuse"}, args=["--epochs", "4"])),
    ),
    "launcher": (
        dataclasses.replace(side(llm=LLM), package="0.1.0"),
        dataclasses.replace(side(llm=LLM), package="0.2.0"),
    ),
    "queue": (
        side(llm=LLM, moved=QUEUED, freed=ADMITTED),
        side(llm=QUEUED, moved=changed(QUEUED, placement__queue="urgent"), freed=changed(ADMITTED, placement=None)),
    ),
    "kueue-mode": (
        side(whole=ADMITTED, partial=changed(ADMITTED, placement__kueue={"mode": "partial"})),
        side(
            whole=changed(ADMITTED, placement__kueue={"mode": "partial"}),
            partial=changed(ADMITTED, placement__kueue={"mode": "elastic"}),
        ),
    ),
    "queue-priority": (
        side(llm=QUEUED, free=LLM),
        side(
            llm=changed(QUEUED, placement__kueue={"priority_class": "urgent"}),
            free=changed(LLM, placement={"priority_class": "urgent"}),
        ),
    ),
    "gang": (
        side(llm=LLM, patient=GANGED, moved=GANGED),
        side(
            llm=GANGED,
            patient=changed(GANGED, placement__gang__timeout_seconds=60),
            moved=changed(GANGED, placement__gang={"scheduler": "volcano", "queue": "research"}),
        ),
    ),
    "devices": (
        side(amd=LLM, claims=LLM, parts=LLM, efa=LLM),
        side(
            amd=changed(LLM, resources__gpu={"count": 8, "vendor": "amd"}),
            claims=changed(LLM, resources__gpu=None, resources__claims=[{"name": "gpus", "template": "eight-gpus"}]),
            parts=changed(LLM, resources__gpu={"count": 8, "resource": "nvidia.com/mig-1g.10gb"}),
            efa=changed(
                LLM,
                resources__rdma={"resource": "vpc.amazonaws.com/efa", "count": 4},
                resources__hugepages={"amount": "5Gi"},
                security={"profile": "baseline", "run_as_user": 0},
            ),
        ),
    ),
    "health-check": (
        side(llm=LLM, roomy=changed(LLM, health_check=True)),
        side(llm=changed(LLM, health_check=True), roomy=changed(LLM, health_check={"disk": "100Gi"})),
    ),
    "initializers": (
        side(llm=CACHED, again=FETCHED, freed=FETCHED),
        side(
            llm=FETCHED,
            again=changed(FETCHED, initializers=[{**MODEL, "source": "org/model-2"}]),
            freed=CACHED,
        ),
    ),
    "topology-pack": (
        side(llm=LLM, queued=QUEUED),
        side(
            llm=changed(LLM, placement__topology_pack={"topology_key": "topology.kubernetes.io/zone"}),
            queued=changed(QUEUED, placement__topology_pack={"topology_key": "example.com/rack", "required": True}),
        ),
    ),
    "spot": (
        side(llm=LLM, queued=QUEUED, trained=changed(LLM, target="trainjob")),
        side(
            llm=changed(LLM, placement__spot="preferred"),
            queued=changed(QUEUED, placement__spot="allowed"),
            trained=changed(LLM, target="trainjob", placement__spot="required"),
        ),
    ),
    "avoid-bad-nodes": (
        side(llm=LLM, told=changed(LLM, launcher={"kubernetes_events": True})),
        side(
            llm=changed(LLM, placement__avoid_bad_nodes=True),
            told=changed(LLM, launcher={"kubernetes_events": True}, placement__avoid_bad_nodes=True),
        ),
    ),
    "own-account": (
        side(llm=LLM, alone=SMALL, shared=changed(LLM, security__own_service_account=True)),
        side(
            llm=changed(LLM, security__own_service_account=True),
            alone=changed(SMALL, security__own_service_account=True),
            shared=LLM,
        ),
    ),
    "kubernetes-events": (
        side(llm=LLM, silent=changed(LLM, launcher__kubernetes_events=True)),
        side(llm=changed(LLM, launcher__kubernetes_events=True), silent=LLM),
    ),
    "verified": (side(llm=LLM), side(llm=changed(LLM, launcher={"verify": True}))),
    "nothing": (side(llm=LLM, eval=SMALL), side(llm=LLM, eval=SMALL)),
    "broken-base": (side(CONFLICT, llm=LLM), side(llm=changed(LLM, elastic__max_restarts=8), eval=SMALL)),
    "many": (
        side(llm=LLM, eval=SMALL, **{f"sweep-{i}": SMALL for i in range(8)}),
        side(
            llm=changed(LLM, image="registry.example.com/llm:2", elastic__nnodes="2:8"),
            **{f"sweep-{i}": changed(SMALL, args=["--seed", str(i)]) if i % 2 else SMALL for i in range(8)},
            probe=changed(LLM, elastic__nnodes=2, elastic__max_restarts=1, script="probe.py"),
        ),
    ),
}
"""Name to both sides."""


def comparison(case: str) -> Comparison:
    """What the preview says of a case."""
    return compare(*CASES[case])
