"""What a change of a job does, as a real engine sees it: nothing, an update in place, or a replacement."""

from __future__ import annotations

import copy
import json
from typing import Any

import pulumi
import pytest

from elastic_infra import ElasticTrainingJob
from tests.engine.engine import Engine, Stack
from tests.engine.jobs import AUTOSCALED, CONTAINER, JOB, WORKLOAD, job
from tests.engine.provider import KubernetesProvider

REPLICAS = "spec.pytorchReplicaSpecs.Worker.replicas"
SIZES = {"PyTorchJob": {"nnodes": "2:4"}, "Job": {"nnodes": "1"}}
REFUSE = {"run_policy": {"on_restart": "refuse"}}
CLAIM = "train-checkpoint"
WHY = "the claim made for storage.checkpoint cannot be changed, only left behind for an empty one"


@pytest.fixture(scope="module")
def deployed(engine: Engine) -> Stack:
    """A stack that holds `JOB`; for previews only."""
    stack = engine.stack()
    stack.up(job())
    return stack


def test_the_same_program_changes_nothing(deployed: Stack) -> None:
    """A second preview after `up` is empty."""
    assert deployed.preview(job()).ops() == {}


def test_a_new_image_replaces_the_job_and_deletes_first(deployed: Stack) -> None:
    """Pods of two images never train together, and two jobs never compete for the same GPUs."""
    changed = deployed.preview(job(image="registry.example.com/train:2"))

    assert changed.ops() == {"train": "update", "train-store": "update", WORKLOAD: "delete-replaced"}
    assert changed.diff(WORKLOAD) == {
        f"{CONTAINER}.image": "update-replace",
        "spec.elasticPolicy.rdzvId": "update-replace",
    }


def test_a_fixed_size_job_changes_one_child_for_a_new_image(stack: Stack) -> None:
    """Without a store pod a new image is one replaced child and one updated component."""
    stack.up(job(elastic={"nnodes": 2}))
    changed = stack.up(job(elastic={"nnodes": 2}, image="registry.example.com/train:2"))

    assert not changed.failed
    assert changed.ops() == {"train": "update", WORKLOAD: "delete-replaced"}


def test_a_new_backoff_limit_updates_in_place(deployed: Stack) -> None:
    """The operator reads it live, so nothing restarts."""
    changed = deployed.preview(job(run_policy={"backoff_limit": 30}))

    assert changed.ops() == {WORKLOAD: "update"}
    assert changed.diff(WORKLOAD) == {"spec.runPolicy.backoffLimit": "update"}


def test_one_more_variable_is_one_more_entry(deployed: Stack) -> None:
    """A reviewer sees the variable that was added, not a list rewritten from its place on."""
    changed = deployed.preview(job(env={**JOB["env"], "DEBUG": "1"}))
    entries = {path: kind for path, kind in changed.diff(WORKLOAD).items() if ".env[" in path}

    assert list(entries.values()) == ["add-replace"]
    assert set(changed.diff(WORKLOAD)) - set(entries) == {"spec.elasticPolicy.rdzvId"}


def test_a_running_job_is_closed_by_one_object(stack: Stack) -> None:
    """As an upgrade closes a job that a version without NetworkPolicies made: nothing restarts."""
    stack.up(job(security={"network_policy": False})).ops()

    assert stack.preview(job()).ops() == {"train-network_policy": "create"}


def test_a_new_rerun_text_replaces_the_job(deployed: Stack) -> None:
    """Changing it runs a finished job again."""
    assert deployed.preview(job(run_policy={"rerun": "2"})).ops() == {WORKLOAD: "delete-replaced"}


def test_another_queue_replaces_the_job(deployed: Stack) -> None:
    """Kueue refuses to move a job that runs: its label is a path with a key in brackets."""
    changed = deployed.preview(job(placement={"queue": "research", "kueue": {"priority_class": "high"}}))

    assert changed.ops()[WORKLOAD] == "delete-replaced"
    assert changed.diff(WORKLOAD) == {
        'metadata.labels["kueue.x-k8s.io/priority-class"]': "add-replace",
        'metadata.labels["kueue.x-k8s.io/queue-name"]': "add-replace",
    }


PARTIAL = {"target": "job", "placement": {"queue": "research", "kueue": {"mode": "partial"}}}
INITIAL = {"elastic": {"nnodes": "2:4", "initial_nodes": 2}}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({**INITIAL, **AUTOSCALED}, {}),
        ({"elastic": {"nnodes": "2:4"}}, {}),
        (INITIAL, {WORKLOAD: "update"}),
        ({"elastic": {"nnodes": "2:4"}, "target": "job"}, {}),
        ({**INITIAL, "target": "job"}, {WORKLOAD: "delete-replaced"}),
        ({**INITIAL, "elastic": {"nnodes": "2:4"}, **PARTIAL}, {}),
    ],
)
def test_the_size_is_pulumis_where_it_is_given_and_no_autoscaler_has_it(
    stack: Stack, settings: dict[str, Any], expected: dict[str, str]
) -> None:
    """`up` after a change of size leaves the nodes alone, unless the program says how many there are.

    For an Indexed Job that is a replacement: Pulumi's own provider replaces a Job for these fields.
    """
    program = job(**settings)
    stack.up(program)
    stack.load([_with_replicas(resource, 3) for resource in stack.state()])  # as a refresh leaves it

    assert stack.preview(program).ops() == expected


def test_a_new_store_leaves_the_size_alone(stack: Stack) -> None:
    """Only a workload that is made anew begins with the config's number."""
    small = {"elastic": {"nnodes": "2:4"}}
    stack.up(job(**small))
    stack.load([_with_replicas(resource, 3) for resource in stack.state()])

    assert stack.preview(job(**small, rendezvous={"resources": {"memory": "512Mi"}})).ops() == {"train-store": "update"}


def test_a_restart_begins_with_the_size_of_the_config(stack: Stack) -> None:
    """A size that someone left behind may be outside of a new range, where the job would wait for ever."""
    stack.up(job(elastic={"nnodes": "2:4"}))
    stack.load([_with_replicas(resource, 3) for resource in stack.state()])
    changed = stack.up(job(elastic={"nnodes": "5:8"}))

    assert changed.ops()[WORKLOAD] == "delete-replaced"
    assert _replicas(stack) == 8


@pytest.mark.parametrize("operation", ["Delete", "Create"])
def test_a_restart_that_failed_begins_with_the_size_of_the_config(
    stack: Stack, provider: KubernetesProvider, operation: str
) -> None:
    """The update that is run again makes the job, so that the job is new in that one, and in no later one."""
    stack.up(job(elastic={"nnodes": "2:4"}))
    stack.load([_with_replicas(resource, 3) for resource in stack.state()])
    provider.fail_once(operation, WORKLOAD)
    changed = job(elastic={"nnodes": "5:8"})
    failed, again = stack.up(changed), stack.up(changed)

    assert (failed.failed, again.failed) == (True, False)
    assert {"Delete": "timed out waiting", "Create": "exceeded quota"}[operation] in failed.text
    assert _replicas(stack) == 8

    stack.load([_with_replicas(resource, 6) for resource in stack.state()])
    assert stack.preview(changed).ops() == {}


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_job_that_was_waited_for_in_vain_has_been_made(
    stack: Stack, provider: KubernetesProvider, *, goes_on: bool
) -> None:
    """The update fails, with `--continue-on-error` too, and the job is there: what others set in it since is theirs."""
    provider.fail_once("wait", WORKLOAD)
    failed = stack.up(job(elastic={"nnodes": "2:4"}), continue_on_error=goes_on)
    stack.load([_with_replicas(resource, 3) for resource in stack.state()])
    again = stack.up(job(elastic={"nnodes": "2:4"}))

    assert (failed.failed, "train-size **creating failed" in failed.text) == (True, False)
    assert again.ops() == {WORKLOAD: "update"}
    assert _replicas(stack) == 3


def test_two_new_jobs_of_one_name_below_parents_of_two_types_are_made(stack: Stack) -> None:
    """The engine knows hooks by name, all over a deployment."""

    def program() -> None:
        for team in ("vision", "speech"):
            parent = pulumi.ComponentResource(f"acme:index:{team}", "team")
            config: Any = {**JOB, "namespace": team}
            ElasticTrainingJob("train", config, pulumi.ResourceOptions(parent=parent))

    made = stack.up(program)

    assert not made.failed, made.text
    assert stack.preview(program).ops() == {}


def _replicas(stack: Stack) -> int:
    (workload,) = (each for each in stack.state() if each["urn"].endswith(WORKLOAD))
    replicas: int = workload["inputs"]["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"]
    return replicas


def _with_replicas(resource: dict[str, Any], replicas: int) -> dict[str, Any]:
    changed = copy.deepcopy(resource)
    if resource["urn"].endswith(WORKLOAD):
        for side in ("inputs", "outputs"):
            spec = changed[side]["spec"]
            if "completions" in spec:
                spec |= {"parallelism": replicas, "completions": replicas}
            else:
                spec["pytorchReplicaSpecs"]["Worker"]["replicas"] = replicas
    return changed


TRAIN_JOB: dict[str, Any] = {"elastic": {"nnodes": "2:4"}, "target": "trainjob"}
RUNTIME = "train-runtime"


def test_a_train_job_goes_with_its_runtime(stack: Stack) -> None:
    """Another image is another runtime, for which the TrainJob is made anew; to hold it is an update."""
    stack.up(job(**TRAIN_JOB))
    same = stack.preview(job(**TRAIN_JOB))
    held = stack.preview(job(**TRAIN_JOB, run_policy={"suspend": True}))
    changed = stack.up(job(**TRAIN_JOB, image="registry.example.com/train:2"))

    assert same.ops() == {}
    assert held.ops() == {WORKLOAD: "update"}
    assert changed.ops() == {
        "train": "update",
        "train-store": "update",
        RUNTIME: "create-replacement",
        WORKLOAD: "delete-replaced",
    }
    assert changed.diff(WORKLOAD) == {"spec.runtimeRef.name": "update-replace"}


def test_a_train_job_goes_with_a_value_that_is_known_late(stack: Stack) -> None:
    """No name tells such a value: the runtime changes in place, and the job is made anew all the same."""

    def program(seed: str) -> Any:
        return job(**TRAIN_JOB, env=lambda: {"SEED": pulumi.Output.from_input(seed)})

    stack.up(program("1"))
    changed = stack.up(program("2"))

    assert (stack.preview(program("2")).ops(), changed.ops()[RUNTIME]) == ({}, "update")
    assert changed.ops()[WORKLOAD] == "delete-replaced"


def test_a_single_pod_is_replaced_as_well(stack: Stack) -> None:
    """Kubernetes refuses to change the pods of a batch/v1 Job."""
    stack.up(job(elastic=SIZES["Job"]))
    changed = stack.preview(job(elastic=SIZES["Job"], image="registry.example.com/train:2"))

    assert changed.ops() == {"train": "update", WORKLOAD: "delete-replaced"}


@pytest.fixture(scope="module")
def guarded(engine: Engine) -> dict[str, Stack]:
    """Stacks with a guarded job, by kind of workload; for operations that change nothing."""
    stacks = {"PyTorchJob": engine.stack(), "Job": engine.stack()}
    for kind, stack in stacks.items():
        stack.up(job(elastic=SIZES[kind], **REFUSE))
    return stacks


@pytest.mark.parametrize("kind", ["PyTorchJob", "Job"])
@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"image": "registry.example.com/train:2"}, "containers[0].image"),
        ({"namespace": "other"}, "metadata.namespace"),
    ],
)
def test_a_guarded_job_is_not_restarted(
    guarded: dict[str, Stack], kind: str, change: dict[str, str], cause: str
) -> None:
    """`on_restart: refuse` fails the preview and the update with the cause, before anything is touched."""
    stack, changed = guarded[kind], job(elastic=SIZES[kind], **REFUSE, **change)
    before = stack.state()
    for outcome in (stack.preview(changed), stack.up(changed)):
        assert outcome.failed
        assert cause in outcome.text
        assert "on_restart is 'refuse'" in outcome.text
        assert outcome.attempted() == {"train": "update"}

    assert _inputs(stack.state()) == _inputs(before)


def test_a_guard_is_lifted_together_with_the_change(guarded: dict[str, Stack]) -> None:
    """Setting `on_restart: replace` beside the change is the way to restart a guarded job."""
    changed = guarded["PyTorchJob"].preview(job(image="registry.example.com/train:2"))

    assert not changed.failed
    assert changed.ops()[WORKLOAD] == "delete-replaced"


def test_a_guarded_job_takes_changes_in_place_and_can_be_destroyed(stack: Stack) -> None:
    """The guard stands in the way of restarts only, and nothing has to be run or unprotected first."""
    stack.up(job(**REFUSE))
    update = stack.up(job(run_policy={"on_restart": "refuse", "backoff_limit": 30}))
    destroyed = stack.destroy()

    assert (update.failed, update.ops()) == (False, {WORKLOAD: "update"})
    assert not destroyed.failed
    assert stack.state() == []


def test_a_guarded_secret_counts_and_stays_hidden(stack: Stack) -> None:
    """A changed secret restarts the job like any other value, and no error shows it."""

    def with_token(token: str) -> Any:
        return job(env=lambda: {"TOKEN": pulumi.Output.secret(token)}, **REFUSE)

    stack.up(with_token("hunter2-one"))
    changed = stack.preview(with_token("hunter2-two"))

    assert changed.failed
    assert "env[" in changed.text
    assert "hunter2" not in changed.text


def _stored(nnodes: str = "1:4", /, **checkpoint: str) -> dict[str, Any]:
    return {"elastic": {"nnodes": nnodes}, "storage": {"checkpoint": {"size": "10Gi", **checkpoint}}}


@pytest.fixture(scope="module")
def stored(engine: Engine) -> Stack:
    """A stack that made a claim for checkpoints; for operations that change nothing."""
    stack = engine.stack()
    assert not stack.up(job(**_stored())).failed
    return stack


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (_stored(size="20Gi"), "spec.resources.requests.storage"),
        (_stored(storage_class="fast"), "spec.storageClassName"),
        (_stored(access_mode="ReadWriteOnce"), "spec.accessModes[0]"),
        (_stored("1"), "spec.accessModes[0]"),
        ({**_stored(), "namespace": "other"}, "metadata.namespace"),
        ({**_stored(), "name": "other"}, "metadata.name"),
    ],
)
def test_the_made_claim_is_never_replaced(stored: Stack, change: dict[str, Any], cause: str) -> None:
    """Preview and update fail with what, why and what to do, before anything is touched."""
    before = stored.state()
    for outcome in (stored.preview(job(**change)), stored.up(job(**change))):
        assert outcome.failed
        assert (
            f"would go on without its checkpoints: {WHY}. Nothing was changed. What differs: {cause}. Undo"
            in outcome.text
        )
        assert set(outcome.attempted()) <= {"train"}

    assert _inputs(stored.state()) == _inputs(before)


def test_both_guards_speak_at_once(stack: Stack) -> None:
    """A user who undoes one cause does not find the next one afterwards."""
    stack.up(job(**_stored(), **REFUSE))
    changed = stack.preview(job(**_stored(size="20Gi"), **REFUSE, image="registry.example.com/train:2"))

    assert "would go on without its checkpoints" in changed.text
    assert "on_restart is 'refuse'" in changed.text


def test_a_claim_that_was_expanded_in_the_cluster_stays(stack: Stack) -> None:
    """The config keeps its size; a refresh that brings the larger one home changes nothing."""
    stack.up(job(**_stored()))
    stack.load([_with_size(resource, "50Gi") for resource in stack.state()])  # as a refresh leaves it

    assert stack.preview(job(**_stored())).ops() == {}
    assert stack.preview(job(**_stored(), labels={"team": "a"})).ops()[CLAIM] == "update"


def _with_size(resource: dict[str, Any], size: str) -> dict[str, Any]:
    changed = copy.deepcopy(resource)
    if resource["urn"].endswith(CLAIM):
        for side in ("inputs", "outputs"):
            changed[side]["spec"]["resources"]["requests"]["storage"] = size
    return changed


def test_a_made_claim_stays_when_it_is_taken_out(stack: Stack) -> None:
    """Nothing has to be run or unprotected first; to make it anew fails, and says how to go on."""
    stack.up(job(**_stored()))
    removed = stack.up(job())
    again = stack.up(job(**_stored(size="20Gi")))
    destroyed = stack.destroy()

    assert (removed.failed, removed.ops()[CLAIM]) == (False, "delete")
    assert "[retain]" in removed.text
    assert again.failed
    assert "already exists" in again.text
    assert f"storage.checkpoint.claim: {CLAIM}, in place of `size`" in again.text
    assert not destroyed.failed
    assert stack.state() == []


def _inputs(state: list[dict[str, Any]]) -> list[Any]:
    """The inputs of every object; a secret is encrypted anew whenever the state is written, so its cipher is not.

    The component's own are left out: it has no object, and is updated before the guard beside the objects refuses.
    """
    kept = [each.get("inputs") for each in state if not each["urn"].endswith("::train")]
    inputs: list[Any] = json.loads(json.dumps(kept), object_hook=_without_cipher)
    return inputs


def _without_cipher(value: dict[str, Any]) -> dict[str, Any]:
    return {name: item for name, item in value.items() if name != "ciphertext"}


@pytest.mark.parametrize("fields", [{}, {"elastic": {"nnodes": 2}}, {"target": "job"}])
def test_a_queued_job_that_is_made_anew_has_the_placement_of_its_config(stack: Stack, fields: dict[str, Any]) -> None:
    """Kueue's selectors and tolerations are left alone in a job that goes on, and are not those of the next one."""
    stack.up(job(**fields, placement={"queue": "gpu"}))
    changed = stack.up(job(**fields, placement={"queue": "gpu", "spot": "allowed", "node_selector": {"pool": "a"}}))
    (workload,) = (each for each in stack.state() if each["urn"].endswith(WORKLOAD))
    pod = str(workload["inputs"]["spec"])

    assert changed.ops()[WORKLOAD] == "delete-replaced"
    assert "gke-spot" in pod
    assert "'pool': 'a'" in pod


@pytest.mark.parametrize("fields", [{}, {"target": "job"}])
@pytest.mark.parametrize("operation", ["Delete", "Create"])
def test_a_queued_job_whose_restart_failed_has_the_placement_of_its_config(
    stack: Stack, provider: KubernetesProvider, operation: str, fields: dict[str, Any]
) -> None:
    """The update that is run again puts it where the config says."""
    stack.up(job(**fields, placement={"queue": "gpu", "node_selector": {"pool": "a"}}))
    provider.fail_once(operation, WORKLOAD)
    changed = job(**fields, placement={"queue": "gpu", "spot": "allowed", "node_selector": {"pool": "b"}})
    failed, again = stack.up(changed), stack.up(changed)
    (workload,) = (each for each in stack.state() if each["urn"].endswith(WORKLOAD))
    pod = str(workload["inputs"]["spec"])

    assert (failed.failed, again.failed) == (True, False)
    assert "gke-spot" in pod
    assert "'pool': 'b'" in pod
