"""What others wrote, as job files: nothing of it is lost but what is named."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from elastic_infra import ConfigError, JobConfig, render
from elastic_infra.importing import Imported, import_command, import_manifest
from elastic_infra.importing.shell import split
from elastic_infra.manifests.figures import pod_template, workload_of
from elastic_infra.preview.tree import differences, written

CORPUS = Path(__file__).parent / "corpus"
MANIFESTS = sorted(CORPUS.glob("*.yaml"))
"""A file for each kind, and what people write in it."""


def manifest(path: Path) -> dict[str, Any]:
    """The object in a file."""
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    return found


def imported(path: Path) -> Imported:
    """The job of a file."""
    return import_manifest(manifest(path), "unnamed")


def original(path: Path) -> Any:
    """The pod template that a file has."""
    spec = manifest(path)["spec"]
    if "trainer" in spec:
        trainer = {name: spec["trainer"][name] for name in ("image", "command", "args", "env")}
        container = {"name": "pytorch", **trainer, "resources": spec["trainer"]["resourcesPerNode"]}
        return {"spec": {"containers": [container]}}
    return spec["pytorchReplicaSpecs"]["Worker"]["template"] if "pytorchReplicaSpecs" in spec else spec["template"]


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_what_is_rendered_again_is_the_original_but_for_what_was_named(path: Path) -> None:
    """The law of importing, held by another comparison than the importer's own."""
    found = imported(path)
    made: Any = pod_template(workload_of(render("unnamed", JobConfig.from_mapping(found.job))))
    rendered = json.loads(json.dumps(made).replace('"name": "node"', '"name": "pytorch"'))  # in a TrainJob's pod
    told = re.sub(r"['\"]", "", "\n".join(found.notes))
    untold = [
        place
        for each in differences(original(path), rendered, keys_matter=False)
        if str(each.old) != str(each.new) and not is_told(place := re.sub(r"['\"]", "", written(each.path)), told)
    ]

    assert untold == []


def is_told(place: str, told: str) -> bool:
    """Whether a line names the place, or what it lies in; the items of a list stand in one line."""
    if re.search(r"containers\[(?!pytorch)", place) or "-own" in place or re.search(r"\[(checkpoint|/ckpt)\]", place):
        return "renames the" in told
    parent, _, item = place.partition("[pytorch]")[2].rpartition("[") if "[pytorch]" in place else place.rpartition("[")
    names = [place, item.partition("]")[0], parent]
    return any(name and name.strip(".") in told for name in names)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_nothing_of_the_original_is_dropped_in_silence(path: Path) -> None:
    """Every text that the file has is in what is rendered or in a note."""
    found = imported(path)
    job = JobConfig.from_mapping(found.job)
    rendered = yaml.safe_dump(workload_of(render("unnamed", job))) + "\n".join(found.notes)
    values = [text for text in texts(original(path)) if text != "True"]
    words = {word for text in values for word in re.split(r"[\s=,]+", text) if len(word) > 3}
    lost = {word.strip("'\"") for word in words if word.strip("'\"") not in rendered}

    assert {word for word in lost if not REPLACED.search(word)} == set()


REPLACED = re.compile(r"torchrun|python|torch\.distributed|^--|MASTER_ADDR|^c10d$|^bash$|^exec$|^main$|^Never$|timeout")
"""Words of a launcher's command line, whose options the job's own fields and objects stand for."""


def texts(tree: Any) -> list[str]:
    """All values of a tree, as texts."""
    if isinstance(tree, dict):
        return [text for value in tree.values() for text in texts(value)]
    return [text for value in tree for text in texts(value)] if isinstance(tree, list) else [str(tree)]


def test_sizes_and_limits_are_kept() -> None:
    """What no pod shows: nodes, processes, restarts, time budgets, life and queue."""
    job = imported(CORPUS / "gpu_everything.yaml").job

    assert job["elastic"] == {
        "nnodes": "4", "nproc_per_node": "8", "max_restarts": 5, "rdzv_configs": {"timeout": 600, "join_timeout": 300},
    }  # fmt: skip
    assert job["run_policy"] == {
        "clean_pod_policy": "Running", "backoff_limit": 5, "ttl_seconds_after_finished": 86400,
        "restart_policy": "ExitCode",
    }  # fmt: skip
    assert job["placement"]["queue"] == "gpus"
    assert job["placement"]["kueue"] == {"priority_class": "research"}


def test_an_indexed_job_stays_one() -> None:
    """Its size of now is where it starts in the range of its command; the controller's labels name the old Job."""
    found = imported(CORPUS / "indexed_job.yaml")

    assert found.job["target"] == "job"
    assert found.job["elastic"] == {"nnodes": "2:4", "nproc_per_node": "1", "initial_nodes": 3}
    assert "overlays" not in found.job or "labels" not in found.job["overlays"]["pod"].get("metadata", {})
    assert {note.split(":")[0] for note in found.notes} >= {"drops spec.backoffLimitPerIndex"}
    assert any(note.startswith("leaves out run_policy.backoff_limit") for note in found.notes)


def test_a_train_job_stays_one() -> None:
    """Its number of nodes is the most that the job may have; what its runtime adds is named."""
    found = imported(CORPUS / "train_job.yaml")

    assert found.job["target"] == "trainjob"
    assert found.job["elastic"] == {"nnodes": "4", "nproc_per_node": "auto"}
    assert any("'torch-distributed'" in note for note in found.notes)


def test_what_programs_wrote_into_a_live_object_is_left_out() -> None:
    """Argo CD, Flux and Helm would take the new object for theirs; kubectl's annotation holds values of variables."""
    found = imported(CORPUS / "live_pytorchjob.yaml")

    assert found.job["labels"] == {"team": "vision"}
    assert found.job["annotations"] == {"example.com/contact": "vision@example.com"}
    assert "plain-value-of-a-variable" not in str(found)
    told = dict(note.split(" by which a program finds its objects: ") for note in found.notes if "finds its" in note)
    assert told == {
        "leaves out metadata.labels": LIVE_LABELS,
        "leaves out metadata.annotations": "argocd.argoproj.io/tracking-id, meta.helm.sh/release-name.",
    }


LIVE_LABELS = "app.kubernetes.io/instance, helm.toolkit.fluxcd.io/name, kustomize.toolkit.fluxcd.io/namespace."


COMMANDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "torchrun --nnodes=1:4 --nproc-per-node=8 --max-restarts 3 train.py --lr 0.1": (
        {"script": "train.py", "args": ["--lr", "0.1"]},
        {"nnodes": "1:4", "nproc_per_node": "8", "max_restarts": 3},
    ),
    "torchrun --nnodes 2:2 -m pkg.train": ({"module": "pkg.train"}, {"nnodes": "2", "nproc_per_node": "1"}),
    "python3.11 -u -m torch.distributed.run --nproc_per_node gpu t.py": (
        {"script": "t.py"},
        {"nproc_per_node": "auto"},
    ),
    "torchrun --no-python ./train --x": ({"command": ["./train"], "args": ["--x"]}, {"nproc_per_node": "1"}),
    "bash -c 'exec torchrun --standalone t.py'": ({"script": "t.py"}, {"nproc_per_node": "1"}),
    "bash -euo pipefail -c 'torchrun t.py'": ({"script": "t.py"}, {"nproc_per_node": "1"}),
    "sh -lc \"exec python t.py --note 'a; b'  # c | d\"": ({"script": "t.py", "args": ["--note", "a; b"]}, {}),
    "bash -e run.sh": ({"command": ["bash"], "args": ["-e", "run.sh"]}, {}),
    "bash run.sh -c 5": ({"command": ["bash"], "args": ["run.sh", "-c", "5"]}, {}),
    "python -u train.py -u 5 --x": ({"script": "train.py", "args": ["-u", "5", "--x"]}, {}),
    "python -u -m pkg.train -u": ({"module": "pkg.train", "args": ["-u"]}, {}),
    "python train.py a": ({"script": "train.py", "args": ["a"]}, {}),
    "python -m pkg.train": ({"module": "pkg.train"}, {}),
    "/usr/bin/train --fast": ({"command": ["/usr/bin/train"], "args": ["--fast"]}, {}),
    "torchrun --nnodes=2 \\\n  --rdzv-backend=etcd-v2 --rdzv-endpoint=etcd:2379 \\\n  t.py": (
        {"script": "t.py"},
        {"nnodes": "2", "nproc_per_node": "1", "rdzv_backend": "etcd-v2", "rdzv_endpoint": "etcd:2379"},
    ),
}


@pytest.mark.parametrize(("line", "expected"), COMMANDS.items(), ids=COMMANDS.keys())
def test_a_command_line_becomes_fields(line: str, expected: tuple[dict[str, Any], dict[str, Any]]) -> None:
    """What runs, its arguments, and torchrun's options."""
    fields, elastic = expected
    found = import_command(split(line), "train")

    assert {key: found.job[key] for key in found.job if key not in {"name", "image", "elastic"}} == fields
    assert found.job["elastic"] == elastic if elastic else not found.job.get("elastic")
    assert found.notes[0].startswith("needs an image")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "is empty"),
        ("torchrun 'x", "is no command line that can be read"),
        ("torchrun --nnodes 2", "is no torchrun command"),
        ("torchrun --nnodes=two t.py", "elastic.nnodes"),
        ("bash -c 'pip install x && torchrun t.py'", "is more than one plain command in a shell"),
        ("bash -c 'torchrun --nnodes $N t.py'", "is more than one plain command in a shell"),
        ("bash -c 'torchrun t.py --name $(date +%F)'", "is more than one plain command in a shell"),
        ("bash -c 'torchrun t.py --name \"$(hostname)\"'", "is more than one plain command in a shell"),
        ("bash -c '# do not stop\npip install x && torchrun t.py'", "is more than one plain command in a shell"),
        ("python -c 1", "starts Python with options of its own"),
    ],
)
def test_a_command_line_that_cannot_be_imported_says_why(line: str, said: str) -> None:
    """Better than a job that does another thing."""
    with pytest.raises(ConfigError) as error:
        import_command(split(line), "train")

    assert said in str(error.value)


@pytest.mark.parametrize(
    ("variable", "is_word"),
    [
        ({"name": "RUN", "value": "first-run"}, True),
        ({"name": "RUN", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}, True),
        ({"name": "RUN", "value": "two words"}, False),
        ({"name": "RUN"}, False),
        ({"name": "OTHER", "value": "1"}, False),
    ],
)
def test_what_kubernetes_puts_into_a_line_of_a_shell_is_kept(variable: dict[str, Any], is_word: bool) -> None:  # noqa: FBT001 - a case
    """Where it is one word: a shell takes others apart, and runs what is no variable as a command."""
    line = "torchrun --master-addr=$(MASTER_ADDR) t.py --name $(RUN)"
    container = {**POD["spec"]["containers"][0], "command": ["bash", "-c", line], "env": [variable]}
    manifest = {**JOB, "spec": {"template": {"spec": {"containers": [container]}}}}

    if is_word:
        assert import_manifest(manifest, "j").job["args"] == ["--name", "$(RUN)"]
    else:
        with pytest.raises(ConfigError, match="is more than one plain command in a shell"):
            import_manifest(manifest, "j")


POD: dict[str, Any] = {"spec": {"containers": [{"name": "c", "image": "i", "command": ["python", "t.py"]}]}}
JOB: dict[str, Any] = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": POD}}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "Pod"}, "kind: is 'Pod'"),
        ({"spec": None}, "spec: is missing"),
        ({"spec": {}}, "spec.template: is missing"),
        ({"spec": {"template": {"spec": {"containers": []}}}}, "containers: has no container"),
        ({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}}, "command: has no command"),
        ({"metadata": {"name": "Not A Name"}}, "name: "),
    ],
)
def test_an_object_that_cannot_be_imported_says_why(change: dict[str, Any], said: str) -> None:
    """The message names the place in the object."""
    with pytest.raises(ConfigError) as error:
        import_manifest({**JOB, **change}, "unnamed")

    assert said in str(error.value)


def test_what_the_config_refuses_is_left_out_and_named() -> None:
    """The rest is imported all the same."""
    found = import_manifest({**JOB, "spec": {"template": POD, "backoffLimit": -5, "ttlSecondsAfterFinished": 60}}, "j")

    assert found.job["run_policy"] == {"ttl_seconds_after_finished": 60}
    assert any(note.startswith("leaves out run_policy.backoff_limit") for note in found.notes)


DEVICES: dict[str, Any] = {
    "resources": {
        "limits": {"memory": "8Gi", "vpc.amazonaws.com/efa": "4", "hugepages-2Mi": "5Gi"},
        "requests": {"memory": "8Gi", "vpc.amazonaws.com/efa": "4", "hugepages-2Mi": "5Gi"},
        "claims": [{"name": "gpus"}],
    },
    "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
}


def test_devices_become_fields() -> None:
    """RDMA with its capability, large pages and claims need no overlay."""
    found = import_manifest(with_devices(DEVICES, {"resourceClaimTemplateName": "two"}), "j")

    assert found.job["resources"] == {
        "memory": "8Gi",
        "rdma": {"resource": "vpc.amazonaws.com/efa", "count": 4},
        "hugepages": {"amount": "5Gi", "page_size": "2Mi"},
        "claims": [{"name": "gpus", "template": "two"}],
    }
    assert found.job["security"] == {"profile": "baseline"}
    assert "overlays" not in found.job


@pytest.mark.parametrize(
    ("change", "claim", "left"),
    [
        ({"securityContext": {}}, {"resourceClaimTemplateName": "two"}, "rdma"),
        ({}, {"resourceClaimName": "shared"}, "claims"),
    ],
)
def test_devices_that_no_field_can_say_are_left_to_an_overlay(
    change: dict[str, Any], claim: dict[str, str], left: str
) -> None:
    """EFA without the capability, and a claim that all nodes share; the others are fields all the same."""
    found = import_manifest(with_devices({**DEVICES, **change}, claim), "j")

    assert found.job["resources"].keys() == {"memory", "rdma", "hugepages", "claims"} - {left}
    assert found.job["overlays"]


def with_devices(devices: dict[str, Any], claim: dict[str, str]) -> dict[str, Any]:
    """A Job whose container has these."""
    container = {**POD["spec"]["containers"][0], **devices}
    pod = {"spec": {"containers": [container], "resourceClaims": [{"name": "gpus", **claim}]}}
    return {**JOB, "spec": {"template": pod}}


def test_no_value_is_told() -> None:
    """A note names places, and never what stands there."""
    pod = {"spec": {"containers": [{**POD["spec"]["containers"][0], "env": [{"name": "RANK", "value": "hunter2"}]}]}}
    found = import_manifest({**JOB, "spec": {"template": pod}}, "j")

    assert any("RANK" in note for note in found.notes)
    assert "hunter2" not in str(found)
