"""Each rule by itself: what it lets pass, what it refuses, and that its limits are settable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from elastic_infra import ConfigError, JobConfig, render
from elastic_infra.manifests.figures import NO_LIMIT, figures, workload_of
from elastic_infra.policy import Policy, check, load_policy
from elastic_infra.policy.check import JOB_RULES, judged, store_of

PINNED = f"registry.example.com/train@sha256:{'0' * 64}"
RUN_POLICY = {"ttl_seconds_after_finished": 3600, "on_restart": "refuse"}
JOB: dict[str, Any] = {
    "image": PINNED,
    "script": "train.py",
    "elastic": {"nnodes": "2:4", "max_restarts": 5},
    "resources": {"cpu": 8, "memory": "64Gi", "gpu": 8},
    "labels": {"team": "research"},
    "placement": {"priority_class": "batch"},
    "storage": {"checkpoint": {"claim": "checkpoints"}},
    "run_policy": RUN_POLICY,
    "namespace": "team-research",
    "env": {"WANDB_PROJECT": "llm"},
}
EVERYTHING: dict[str, Any] = {
    "image_pinned": "mandatory",
    "gpu_budget": {"level": "mandatory", "per_job": 32, "per_stack": 64},
    "node_budget": {"level": "mandatory", "per_job": 4, "per_stack": 8},
    "checkpoint_when_preemptible": "mandatory",
    "restricted_profile": "mandatory",
    "labels": {"level": "mandatory", "required": {"team": "[a-z]+"}},
    "priority_class": {"level": "mandatory", "allowed": ["batch", "research"], "required": True},
    "restart_budget": "mandatory",
    "no_active_deadline": "advisory",
    "registries": {"level": "mandatory", "allowed": ["registry.example.com", "ghcr.io/team"]},
    "namespaces": {"level": "mandatory", "allowed": ["team-*"]},
    "queues": {"level": "mandatory", "allowed": ["research", "batch-*"]},
    "gpu_types": {"level": "mandatory", "allowed": ["NVIDIA-A100-*"]},
    "lifetime": {"level": "mandatory", "max_ttl_seconds": 86_400},
    "environment": {"level": "mandatory", "forbidden": ["AWS_*"], "required": {"WANDB_PROJECT": "[a-z]+"}},
    "on_restart": "mandatory",
}
DEADLINE = {"active_deadline_seconds": 60}
OTHER_GPUS = {"resources": {"gpu": {"count": 8, "resource": "a.b/npu"}}}
SPOT_TAINT = [{"key": "cloud.google.com/gke-spot"}]
SPOT_LABEL = {"cloud.google.com/gke-spot": "true"}
SPOT = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
    {"matchExpressions": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}]},
]}}}  # fmt: skip

BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "a tag": ({"image": "registry.example.com/train:latest"}, "image_pinned"),
    "too many GPUs": ({"resources": {"gpu": 16}}, "gpu_budget"),
    "too many nodes": ({"elastic": {"nnodes": "2:5"}, "resources": {"gpu": 1}}, "node_budget"),
    "a single pod with too many GPUs": ({"elastic": {"nnodes": 1}, "resources": {"gpu": 33}}, "gpu_budget"),
    "a MIG slice counts": ({"resources": {"gpu": {"count": 9, "resource": "nvidia.com/mig-1g.10gb"}}}, "gpu_budget"),
    "TPUs count": ({"resources": {"gpu": {"count": 9, "vendor": "google"}}}, "gpu_budget"),
    "a sidecar's GPUs count": ({"overlays": {"pod": {"spec": {"initContainers": [
        {"name": "agent", "image": PINNED, "restartPolicy": "Always", "resources": {"limits": {"nvidia.com/gpu": 1}},
         "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}},
    ]}}}}, "gpu_budget"),
    "spot nodes by selector": (
        {
            "placement": {"priority_class": "batch", "node_selector": {"cloud.google.com/gke-spot": "true"}},
            "storage": {},
        },
        "checkpoint_when_preemptible",
    ),
    "spot nodes by toleration": (
        {
            "placement": {"priority_class": "batch", "tolerations": SPOT_TAINT},
            "storage": {},
        },
        "checkpoint_when_preemptible",
    ),
    "spot nodes by affinity": (
        {"placement": {"priority_class": "batch", "affinity": SPOT}, "storage": {}},
        "checkpoint_when_preemptible",
    ),
    "the baseline profile": ({"security": {"profile": "baseline"}}, "restricted_profile"),
    "a container as root": ({"overlays": {"pod": {"spec": {"containers": [{"name": "pytorch", "securityContext": {
        "runAsNonRoot": False, "runAsUser": 0, "seccompProfile": {"type": "Unconfined"}}}]}}}}, "restricted_profile"),
    "an NFS volume": ({"overlays": {"pod": {"spec": {"volumes": [
        {"name": "data", "nfs": {"server": "nas", "path": "/"}}]}}}}, "restricted_profile"),
    "no label": ({"labels": {}}, "labels"),
    "a label of another form": ({"labels": {"team": "R2D2"}}, "labels"),
    "no priority class": ({"placement": {}}, "priority_class"),
    "another priority class": ({"placement": {"priority_class": "system-critical"}}, "priority_class"),
    "no restarts": ({"elastic": {"nnodes": "2:4", "max_restarts": 0}}, "restart_budget"),
    "no restarts of a single pod": ({"elastic": {"nnodes": 1, "max_restarts": 0}}, "restart_budget"),
    "too many restarts": ({"elastic": {"nnodes": "2:4", "max_restarts": 101}}, "restart_budget"),
    "endless container restarts": (
        {"run_policy": {**RUN_POLICY, "restart_policy": "OnFailure", "backoff_limit": -1}}, "restart_budget"
    ),
    "a deadline": ({"run_policy": {**RUN_POLICY, "active_deadline_seconds": 3600}}, "no_active_deadline"),
    "another registry": ({"image": PINNED.replace("registry.", "registry2.")}, "registries"),
    "another folder of a registry": ({"image": PINNED.replace("registry.example.com", "ghcr.io/teams")}, "registries"),
    "Docker Hub": ({"image": PINNED.replace("registry.example.com/", "")}, "registries"),
    "a tag of the store's image": ({"rendezvous": {"image": "registry.example.com/store:1"}}, "image_pinned"),
    "the registry of the store's image": ({"rendezvous": {"image": f"quay.io/{PINNED}"}}, "registries"),
    "a sidecar's registry": ({"overlays": {"pod": {"spec": {"initContainers": [
        {"name": "agent", "image": f"quay.io/{PINNED.rpartition('/')[2]}", "securityContext": {
            "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}},
    ]}}}}, "registries"),
    "a mounted image": ({"overlays": {"pod": {"spec": {"volumes": [
        {"name": "tools", "image": {"reference": "registry.example.com/tools:1"}}]}}}}, "image_pinned"),
    "another namespace": ({"namespace": "default"}, "namespaces"),
    "another queue": ({"placement": {"priority_class": "batch", "queue": "urgent"}}, "queues"),
    "another gang queue": (
        {"run_policy": {**RUN_POLICY, "scheduling_policy": {"queue": "urgent"}}}, "queues"
    ),
    "another queue of KAI": (
        {"placement": {"priority_class": "batch", "gang": {"scheduler": "kai", "queue": "urgent"}}}, "queues"
    ),
    "another queue of Volcano": (
        {"placement": {"queue": "research", "priority_class": "batch",
                       "gang": {"scheduler": "volcano", "queue": "urgent"}}}, "queues"
    ),
    "another type of GPU": ({"placement": {"priority_class": "batch", "node_selector": {
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}}}, "gpu_types"),
    "no time to live": ({"run_policy": {"on_restart": "refuse"}}, "lifetime"),
    "too long a time to live": ({"run_policy": {**RUN_POLICY, "ttl_seconds_after_finished": 86_401}}, "lifetime"),
    "a single pod's time to live": (
        {"elastic": {"nnodes": 1, "max_restarts": 5}, "run_policy": {"on_restart": "refuse"}}, "lifetime"
    ),
    "a forbidden variable": ({"env": {"WANDB_PROJECT": "llm", "AWS_SECRET_ACCESS_KEY": "s3cret"}}, "environment"),
    "a missing variable": ({"env": {}}, "environment"),
    "a variable of another form": ({"env": {"WANDB_PROJECT": "LLM"}}, "environment"),
    "a restart without a question": ({"run_policy": {"ttl_seconds_after_finished": 3600}}, "on_restart"),
}  # fmt: skip


def broken_rules(*jobs: dict[str, Any], policy: dict[str, Any] | None = None) -> list[str]:
    """The rules that these jobs break, taken as one stack."""
    objects = [render(f"job{i}", JobConfig.from_mapping(job)) for i, job in enumerate(jobs)]
    return [violation.rule for violation in check(objects, Policy.model_validate(policy or EVERYTHING))]


def test_a_job_within_every_rule_passes() -> None:
    """All rules on, nothing to say."""
    assert broken_rules(JOB) == []


@pytest.mark.parametrize(("change", "rule"), BROKEN.values(), ids=BROKEN.keys())
def test_a_rule_refuses_what_it_is_about(change: dict[str, Any], rule: str) -> None:
    """One thing wrong breaks exactly one rule."""
    assert broken_rules({**JOB, **change}) == [rule]


def test_every_rule_has_a_case() -> None:
    """No rule goes untested, and none goes undocumented."""
    assert {rule for _, rule in BROKEN.values()} == set(JOB_RULES) == set(Policy.model_fields) - {"custom"}
    assert all(Policy.model_fields[name].annotation.__doc__ for name in JOB_RULES)


def test_rules_are_off_until_given_a_level() -> None:
    """An empty policy refuses nothing."""
    assert broken_rules(*({**JOB, **change} for change, _ in BROKEN.values()), policy={"labels": "disabled"}) == []


def test_budgets_of_a_stack_count_all_jobs() -> None:
    """Each job fits, together they do not."""
    assert broken_rules(JOB, JOB) == []
    assert broken_rules(JOB, JOB, JOB) == ["gpu_budget", "node_budget"]


NODES = {"elastic": {"nnodes": "2:4"}, "resources": {"gpu": 1}}


@pytest.mark.parametrize(
    ("budget", "teams", "said"),
    [
        ({"per_team": {"a": 4}}, ["a", "b", "b"], []),
        ({"per_team": {"a": 4}}, ["a", "a"], ["all jobs of team 'a' (2) use up to 8 nodes, and 4 are allowed"]),
        ({"per_team": {"a": 8}, "other_teams": 4}, ["a", "a", "b"], []),
        ({"other_teams": 4}, ["a", "b", "b"], ["all jobs of team 'b' (2)"]),
        ({"other_teams": 4}, [None, None, "a"], ["all jobs without the label 'team' (2)"]),
        ({"team_label": "owner", "other_teams": 4}, ["a", "b"], ["all jobs without the label 'owner' (2)"]),
    ],
)
def test_budgets_of_teams(budget: dict[str, Any], teams: list[str | None], said: list[str]) -> None:
    """Each team has its own, by a label of its jobs; those without the label share one."""
    policy = Policy.model_validate({"node_budget": {"level": "mandatory", **budget}})
    labels: list[dict[str, Any]] = [{"labels": {"team": team} if team else {}} for team in teams]
    configs = [JobConfig.from_mapping({**JOB, **NODES, **label}) for label in labels]
    found = check([render(f"job{i}", config) for i, config in enumerate(configs)], policy)

    assert len(found) == len(said)
    assert all(violation.message.startswith(text) for violation, text in zip(found, said, strict=True))


EXEMPT = [{"labels": {"team": "research", "phase": ""}, "reason": "until the image is moved"}]


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        ({"team": "research", "phase": "any"}, "until the image is moved"),
        ({"team": "research"}, None),
        ({"team": "other", "phase": "any"}, None),
    ],
)
def test_a_job_with_the_labels_is_exempt_with_a_reason(labels: dict[str, str], reason: str | None) -> None:
    """All labels must be there; an empty value stands for any."""
    policy = Policy.model_validate({"image_pinned": {"level": "mandatory", "exempt": EXEMPT}})
    config = JobConfig.from_mapping({**JOB, "image": "registry.example.com/train:1", "labels": labels})
    (found,) = check([render("llm", config)], policy)

    assert found.exempt == reason


def test_an_exempt_job_is_not_counted_in_a_budget() -> None:
    """The stack's budget is for the others."""
    policy = {"node_budget": {"level": "mandatory", "per_stack": 4, "exempt": [{"labels": {"x": ""}, "reason": "r"}]}}

    assert broken_rules(JOB, JOB, policy=policy) == ["node_budget"]
    assert broken_rules(JOB, {**JOB, "labels": {"x": "1"}}, policy=policy) == []


@pytest.mark.parametrize(
    ("rule", "job", "is_kept"),
    [
        ({"queues": {"required": True}}, {}, False),
        ({"queues": {"required": True}}, {"placement": {"queue": "any"}}, True),
        ({"gpu_types": {"required": True}}, {}, False),
        ({"gpu_types": {"required": True}}, {"resources": {}}, True),
        (
            {"gpu_types": {"allowed": ["A"], "node_labels": ["gpu"]}},
            {"placement": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["B"]}]}]}}}}},
            False,
        ),
        ({"lifetime": {"max_active_seconds": 60}}, {}, False),
        ({"lifetime": {"max_active_seconds": 60}}, {"run_policy": {"active_deadline_seconds": 60}}, True),
        ({"environment": {"required": {"T": ""}}}, {"env": {"T": {"secret": "s", "key": "k"}}}, True),
        ({"environment": {"required": {"T": ".+"}}}, {"env": {"T": {"secret": "s", "key": "k"}}}, False),
        ({"on_restart": {"required": "replace"}}, {}, False),
        ({"on_restart": {"required": "replace"}}, {"run_policy": {}}, True),
        ({"registries": {"allowed": ["docker.io/library"]}}, {"image": "busybox"}, True),
        ({"registries": {"allowed": ["docker.io/team/"]}}, {"image": "team/train"}, True),
        ({"registries": {"allowed": ["docker.io/library"]}}, {"image": "docker.io/python:3"}, True),
        ({"registries": {"allowed": ["docker.io"]}}, {"image": "index.docker.io/library/python:3"}, True),
        ({"registries": {"allowed": ["index.docker.io/library"]}}, {"image": "python:3"}, True),
        ({"registries": {"allowed": ["docker.io/library"]}}, {"image": "docker.io/team/python:3"}, False),
        ({"gpu_budget": {"per_job": 1}}, {"resources": {"gpu": {"count": 8, "resource": "habana.ai/gaudi"}}}, False),
        ({"gpu_budget": {"per_job": 1, "resources": ["a.b/n*"]}}, OTHER_GPUS, False),
        ({"gpu_budget": {"per_job": 32, "per_stack": 31, "resources": ["a.b/npu"]}}, OTHER_GPUS, False),
        ({"gpu_budget": {"per_job": 32, "resources": ["a.b/npu"]}}, OTHER_GPUS, True),
        ({"gpu_types": {"required": True, "resources": ["a.b/npu"]}}, OTHER_GPUS, False),
        (
            {"priority_class": {"allowed": ["batch"]}},
            {"run_policy": {"scheduling_policy": {"priority_class": "high"}}},
            False,
        ),
        ({"no_active_deadline": {}}, {"target": "job", "run_policy": DEADLINE}, True),
        ({"no_active_deadline": {}}, {"target": "trainjob", "run_policy": DEADLINE}, True),
        ({"registries": {"allowed": ["localhost:5000"]}}, {"image": "localhost:5000/train"}, True),
    ],
)  # fmt: skip
def test_settings_of_a_rule(rule: dict[str, Any], job: dict[str, Any], *, is_kept: bool) -> None:
    """What each asks for beyond its defaults."""
    policy = {name: {"level": "mandatory", **settings} for name, settings in rule.items()}

    assert broken_rules({**JOB, **job}, policy=policy) == ([] if is_kept else [*rule])


def test_no_value_of_a_variable_is_told() -> None:
    """It may be a secret; its name is enough."""
    policy = Policy.model_validate({"environment": EVERYTHING["environment"]})
    config = JobConfig.from_mapping({**JOB, "env": {"AWS_SECRET_ACCESS_KEY": "s3cret", "WANDB_PROJECT": "S3CRET"}})
    found = check([render("llm", config)], policy)

    assert len(found) == 2
    assert "s3cret" not in " ".join(violation.message for violation in found).lower()


def test_a_checkpoint_may_be_asked_of_every_job() -> None:
    """`always` needs no spot node."""
    policy = {"checkpoint_when_preemptible": {"level": "mandatory", "always": True}}

    assert broken_rules({**JOB, "storage": {}}, policy=policy) == ["checkpoint_when_preemptible"]


@pytest.mark.parametrize("limit", [-1, 0, 40])
def test_a_limit_that_counts_nothing_is_not_asked_for(limit: int) -> None:
    """With `ExitCode` no container is restarted in place, whatever the limit says."""
    exit_code = {"run_policy": {**RUN_POLICY, "restart_policy": "ExitCode", "backoff_limit": limit}}

    assert broken_rules({**JOB, **exit_code}) == []


def test_a_violation_says_what_to_do() -> None:
    """The message names the field to edit, the violation its job and level."""
    config = JobConfig.from_mapping({**JOB, "run_policy": {**RUN_POLICY, "active_deadline_seconds": 60}})
    (found,) = check([render("llm", config)], Policy.model_validate(EVERYTHING))

    assert (found.job, found.level) == ("llm", "advisory")
    assert "Remove run_policy.active_deadline_seconds" in found.message


@pytest.mark.parametrize(
    ("rule", "job", "said"),
    [
        ({"queues": {"allowed": ["a"]}}, {"placement": {"queue": "b"}}, "Set placement.queue to"),
        (
            {"queues": {"allowed": ["a"]}},
            {"placement": {"queue": "a", "gang": {"scheduler": "volcano", "queue": "b"}}},
            "Set placement.gang.queue to",
        ),
        (
            {"queues": {"allowed": ["a"]}},
            {"run_policy": {"scheduling_policy": {"queue": "b"}}},
            "Set run_policy.scheduling_policy.queue to",
        ),
        (
            {"priority_class": {"allowed": ["batch"]}},
            {"run_policy": {"scheduling_policy": {"priority_class": "high"}}},
            "Set run_policy.scheduling_policy.priority_class to",
        ),
        ({"environment": {"forbidden": ["PYTHONUNBUFFERED"]}}, {}, "where this package sets it itself, leave it out"),
        (
            {"checkpoint_when_preemptible": {}},
            {"placement": {"spot": "required"}, "storage": {}},
            "nodes labelled cloud.google.com/gke-spot can",
        ),
        ({"lifetime": {"max_ttl_seconds": 60}}, {"target": "trainjob", "run_policy": {}}, "Set target: job."),
    ],
)
def test_a_violation_names_what_can_be_changed(rule: dict[str, Any], job: dict[str, Any], said: str) -> None:
    """The field that holds the value, and none that the config would refuse."""
    policy = Policy.model_validate({name: {"level": "mandatory", **settings} for name, settings in rule.items()})
    found = check([render("llm", JobConfig.from_mapping({**JOB, **job}))], policy)

    assert found
    assert all(said in violation.message for violation in found)


@pytest.mark.parametrize(
    ("overlay", "is_kept"),
    [
        ({}, True),
        ({"volumes": [{"name": "checkpoint", "persistentVolumeClaim": None, "emptyDir": {}}]}, False),
        ({"volumes": [{"name": "checkpoint", "persistentVolumeClaim": None, "ephemeral": {}}]}, False),
        (
            {"volumes": [{"name": "checkpoint", "persistentVolumeClaim": None, "nfs": {"server": "n", "path": "/"}}]},
            True,
        ),
        (
            {"containers": [
                {"name": "pytorch", "volumeMounts": [{"mountPath": "/checkpoints", "$patch": "delete"}]}
            ]},
            False,
        ),
    ],
)  # fmt: skip
def test_checkpoints_lie_on_a_volume_that_outlives_the_pod(overlay: dict[str, Any], *, is_kept: bool) -> None:
    """What an overlay makes of the volume counts, and not what the config had asked for."""
    policy = {"checkpoint_when_preemptible": {"level": "mandatory", "always": True}}
    broken = broken_rules({**JOB, "overlays": {"pod": {"spec": overlay}}}, policy=policy)

    assert broken == ([] if is_kept else ["checkpoint_when_preemptible"])


def test_a_policy_file_is_checked_like_a_job_file(tmp_path: Path) -> None:
    """Unknown rules, levels and limits are faults with a path."""
    path = tmp_path / "policy.yaml"
    path.write_text("gpu_budgets: mandatory\nlabels: {level: must}\nnode_budget: {per_job: -1}\n", "utf-8")
    with pytest.raises(ConfigError) as error:
        load_policy(path)

    paths = [fault.path for fault in error.value.faults]
    assert sorted(paths) == ["gpu_budgets", "labels.level", "node_budget.per_job"]
    assert "Did you mean 'gpu_budget'?" in str(error.value)


def test_an_empty_policy_file_is_told_as_one(tmp_path: Path) -> None:
    """The message speaks of a policy, and not of the job file that most files are."""
    path = tmp_path / "policy.yaml"
    path.write_text("", "utf-8")

    with pytest.raises(ConfigError, match="A policy starts with keys such as image_pinned: and"):
        load_policy(path)


def test_only_accelerators_count_as_gpus() -> None:
    """A network device of a GPU vendor is none."""
    limits = {"nvidia.com/mig-1g.10gb": 2, "nvidia.com/hostdev": 1}
    pod: dict[str, Any] = {"spec": {"containers": [{"resources": {"limits": limits}}]}}
    workload: dict[str, Any] = {"kind": "Job", "spec": {"parallelism": 1, "template": pod}}

    assert figures(workload).gpus_per_node == 2


@pytest.mark.parametrize(
    ("init", "containers", "expected"),
    [
        ([], [{"nvidia.com/gpu": 2}, {"nvidia.com/gpu": 8}], 10),
        ([("Never", {"nvidia.com/gpu": 8})], [{"nvidia.com/gpu": 8}], 8),
        ([("Never", {"nvidia.com/gpu": 9})], [{"nvidia.com/gpu": 8}], 9),
        ([("Always", {"nvidia.com/gpu": 3})], [{"nvidia.com/gpu": 8}], 11),
        ([("Always", {"nvidia.com/gpu": 3}), ("Never", {"nvidia.com/gpu": 9})], [{"nvidia.com/gpu": 8}], 12),
        ([("Never", {"nvidia.com/gpu": 9}), ("Always", {"nvidia.com/gpu": 3})], [{"nvidia.com/gpu": 8}], 11),
        ([("Never", {"nvidia.com/gpu": 8})], [{"nvidia.com/mig-1g.10gb": 2}], 10),
        ([], [{"nvidia.com/gpu": "2k"}, {"nvidia.com/gpu": 8.0}], 2008),
        ([], [{"nvidia.com/gpu": "1e1"}], 10),
        ([], [{"nvidia.com/gpu": "ten"}], NO_LIMIT),
        ([], [None], 0),
    ],
)
def test_gpus_count_as_the_scheduler_counts_them(init: list[Any], containers: list[Any], expected: int) -> None:
    """Containers and sidecars together, or an init container with the sidecars before it; each resource by itself."""
    spec = {
        "initContainers": [{"restartPolicy": policy, "resources": {"limits": limits}} for policy, limits in init],
        "containers": [{"resources": {"limits": limits}} for limits in containers],
    }
    workload: dict[str, Any] = {"kind": "Job", "spec": {"parallelism": 1, "template": {"spec": spec}}}

    assert figures(workload).gpus_per_node == expected


def test_other_objects_of_a_stack_are_left_alone() -> None:
    """A Job that this package did not make is none of the pack's business."""
    ours = render("llm", JobConfig.from_mapping({**JOB, "elastic": {"nnodes": 1}}))

    assert judged(ours.workload) == ours.workload
    assert judged({"kind": "Job", "metadata": {"labels": {"app": "migration"}}}) is None
    assert judged({"kind": "ConfigMap", "metadata": ours.workload["metadata"]}) is None
    assert store_of({"kind": "ConfigMap", "metadata": ours.workload["metadata"]}) is None
    assert store_of({"kind": "Deployment", "metadata": {"labels": {"app": "web"}}}) is None


def test_a_train_job_is_judged_by_its_runtime() -> None:
    """Pulumi shows a rule one object at a time, and the runtime holds the pods: every rule says the same of it."""
    config = JobConfig.from_mapping(
        {**JOB, "target": "trainjob", "placement": {"queue": "q"}, "run_policy": {"on_restart": "refuse"}}
    )
    made = render("llm", config)
    seen, whole = judged(made.runtime or {}), workload_of(made)

    assert judged(made.workload) is None
    assert seen is not None
    assert seen["metadata"]["name"] == "llm"
    for field, judge in JOB_RULES.items():
        rule = getattr(Policy.model_validate(EVERYTHING), field)
        assert list(judge(seen, rule)) == list(judge(whole, rule)), field
