"""The comment made from a real `pulumi preview --json` says what the offline one says."""

from __future__ import annotations

import json
import os
import subprocess
from concurrent import futures
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import grpc
import pulumi
import pytest
from pulumi.automation._server import LanguageServer
from pulumi.runtime.proto import language_pb2_grpc

from elastic_infra import ElasticTrainingJob
from elastic_infra.manifests import launcher
from elastic_infra.preview.formatting import COSTS
from elastic_infra.preview.markdown import as_markdown
from elastic_infra.preview.pulumi_preview import PreviewError, read_preview
from tests.engine.conftest import engine, provider  # noqa: F401 - fixtures
from tests.engine.engine import Engine, Program, Stack
from tests.engine.jobs import AUTOSCALED, JOB, job
from tests.engine.test_adoption import BY_HAND, live
from tests.preview.repositories import diff, run, write

if TYPE_CHECKING:
    from elastic_infra import ElasticTrainingJobArgs

Changes = dict[str, Any] | None

NEW_IMAGE: Final = {"image": "registry.example.com/train:2"}
ONE_NODE: Final = {"elastic": {"nnodes": 1}}
CPU_60: Final = {"autoscaling": {"metrics": [{"type": "cpu", "target": "60"}]}}
EVALUATION: Final = {"image": "eval:1", "script": "eval.py", "env": {}, **ONE_NODE, "resources": {"memory": "1Gi"}}
TUNING: Final = {"image": "tune:1", "script": "tune.py", "env": {}, "resources": {}, "storage": {}}
"""So different from each other and from `JOB` that none counts as another under a new name."""
EDITS: Final[dict[str, tuple[str, Changes, Changes]]] = {
    "nothing": ("none", {}, {}),
    "image": ("restart", {}, NEW_IMAGE),
    "variable": ("restart", {}, {"env": {"EDITED": "1"}}),
    "range": ("restart", {}, {"elastic": {"nnodes": "2:8"}, "resources": {"cpu": "2", "memory": "8Gi"}}),
    "code": ("restart", {"workdir": {"files": {"a.py": "MQ=="}}}, {"workdir": {"files": {"a.py": "Mg==", "b.py": ""}}}),
    "devices": ("restart", {"resources": {"gpu": 2}}, {"resources": {"claims": [{"name": "gpus", "template": "two"}]}}),
    "claim": ("restart", {}, {"storage": {"checkpoint": {"claim": "others"}}}),
    "backoff-limit": ("in place", {}, {"run_policy": {"backoff_limit": 40}}),
    "restart-policy": ("restart", {}, {"run_policy": {"restart_policy": "OnFailure"}}),
    "autoscaling": ("in place", AUTOSCALED, CPU_60),
    "pods-end": ("restart", {}, {"run_policy": {"suspend": True}}),
    "single-pod": ("restart", ONE_NODE, {**ONE_NODE, **NEW_IMAGE}),
    "target": ("restart", {}, {**ONE_NODE, "target": "job"}),
    "train-job": ("restart", {"target": "trainjob"}, {"target": "trainjob", **NEW_IMAGE}),
    "resource-renamed": ("none", {"resource": "before", "name": "ranking"}, {"resource": "after", "name": "ranking"}),
    "job-renamed": ("restart", {"name": "before-name"}, {"name": "after-name"}),
    "added": ("added", None, EVALUATION),
    "removed": ("removed", TUNING, None),
}
"""Edit to consequence, and what each side has in the place of `JOB`'s keys; none where the job is not there."""


def _declared(side: int) -> list[tuple[str, str, dict[str, Any]]]:
    """Edit, resource and config of the jobs of a side."""
    found = ((edit, sides[side]) for edit, (_, *sides) in EDITS.items())
    return [
        (
            edit,
            changes.get("resource", edit),
            {key: each for key, each in {**JOB, **changes}.items() if key != "resource"},
        )
        for edit, changes in found
        if changes is not None
    ]


def _program(side: int) -> Program:
    def program() -> None:
        for _, resource, config in _declared(side):
            ElasticTrainingJob(resource, cast("ElasticTrainingJobArgs", config))

    return program


PROGRAM: Final = """
import json
from pathlib import Path
from elastic_infra import ElasticTrainingJob

for _, resource, config in json.loads(Path("jobs.json").read_text()):
    ElasticTrainingJob(resource, config)
"""


def _preview(stack: Stack, program: Program, engine: Engine, *options: str) -> str:  # noqa: F811
    """What the command line prints, on an inline program as the Automation API runs it."""
    server = grpc.server(futures.ThreadPoolExecutor(4))
    language_pb2_grpc.add_LanguageRuntimeServicer_to_server(LanguageServer(program), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    work = stack._stack.workspace
    environ = {**os.environ, **work.env_vars, "PULUMI_BACKEND_URL": f"file://{engine._folder / 'state'}"}
    command = ["pulumi", "preview", "--json", "--stack", stack.name, f"--client=127.0.0.1:{port}", "--non-interactive"]
    try:
        done = subprocess.run(
            [*command, "--exec-kind", "auto.inline", *options],
            cwd=work.work_dir, env=environ, capture_output=True, text=True, check=False,
        )  # fmt: skip
    finally:
        server.stop(grace=None).wait()
    return done.stdout


@pytest.fixture(scope="module")
def deployed(engine: Engine) -> Stack:  # noqa: F811
    """A stack with one job."""
    stack = engine.stack()
    stack.up(job())
    return stack


@pytest.mark.engine
def test_the_engine_and_the_offline_diff_agree_on_every_edit(
    engine: Engine,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """The same consequence, and the same figures as far as the objects tell them; each edit is a job of its own."""
    monkeypatch.setattr(launcher, "archive", lambda: b"launcher")  # fifteen large ones would fill the state

    stack = engine.stack()
    stack.up(_program(0)).ops()
    files = {"Pulumi.yaml": "name: infra\nruntime: python\n", "__main__.py": PROGRAM}
    for side, folder in enumerate(("base", "head")):
        write(tmp_path / folder, {**files, "jobs.json": json.dumps(_declared(side))})
    (tmp_path / "preview.json").write_text(_preview(stack, _program(1), engine, "--show-sames"), "utf-8")
    _, from_engine, _ = diff(tmp_path, "--from-pulumi", "preview.json")
    _, offline, _ = diff(tmp_path, "base", "head", "--run-programs")
    jobs = {edit: (resource, config.get("name", resource)) for edit, resource, config in (*_declared(0), *_declared(1))}
    said = {job["name"]: job for job in from_engine["jobs"]}
    told = {job["name"]: job for job in offline["jobs"]}

    expected = {edit: (consequence, consequence) for edit, (consequence, *_) in EDITS.items()}
    found = {edit: (said[name]["consequence"], told[own]["consequence"]) for edit, (name, own) in jobs.items()}
    assert found == expected
    assert len(said) == len(told) == len(EDITS) >= 12
    for edit, (name, own) in jobs.items():
        figures = said[name]["deltas"]
        if None not in EDITS[edit]:
            assert figures == {key: told[own]["deltas"].get(key) for key in figures}, edit
            assert {"nodes", *COSTS, "memory_at_most"} & set(told[own]["deltas"]) <= set(figures), edit
        assert said[name]["loses_checkpoints"] == told[own]["loses_checkpoints"], edit


@pytest.mark.engine
def test_nothing_to_do_is_said(deployed: Stack, engine: Engine, tmp_path: Path) -> None:  # noqa: F811
    """Pulumi leaves out what stays the same."""
    path = tmp_path / "preview.json"
    path.write_text(_preview(deployed, job(), engine), "utf-8")

    assert "No training job changes." in as_markdown(read_preview(path))


@pytest.mark.engine
def test_jobs_come_and_go_and_secrets_do_not_show(engine: Engine, tmp_path: Path) -> None:  # noqa: F811
    """Added, removed; a secret variable is a place without a value."""

    def secret() -> dict[str, Any]:
        return {"PASSWORD": pulumi.Output.secret("hunter2"), "PLAIN": "visible-nowhere"}

    stack = engine.stack()
    stack.up(job("old"))

    def program() -> None:
        job("new")()
        job("kept", env=secret)()

    stack.up(lambda: (job("old")(), job("kept")())[0])
    path = tmp_path / "preview.json"
    path.write_text(_preview(stack, program, engine), "utf-8")
    done = run(tmp_path, "diff", "--from-pulumi", "preview.json", "--format", "markdown", "--title", "Preview")
    jobs = {each.name: each.consequence.value for each in read_preview(path).jobs}

    assert jobs == {"old": "removed", "new": "added", "kept": "restart"}
    assert done.returncode == 0, done.stderr
    assert "### Preview" in done.stdout
    assert "env[PASSWORD]" in done.stdout
    assert "hunter2" not in done.stdout + as_markdown(read_preview(path))
    assert "visible-nowhere" not in done.stdout


def _label(args: pulumi.ResourceTransformArgs) -> pulumi.ResourceTransformResult | None:
    metadata: Any = args.props.get("metadata")
    if metadata is None:
        return None
    labelled = {**metadata, "labels": {**metadata["labels"], "team": "vision"}}
    return pulumi.ResourceTransformResult({**args.props, "metadata": labelled}, args.opts)


def with_secrets(
    resource: str = "train", options: Any = None, *, token: str = "hunter2-1", hub: str = "hunter2-2", **changes: Any
) -> Program:
    """A program with a Secret, and a job that reads it and has a secret of Pulumi as well."""

    def program() -> None:
        hub_secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "hub", "namespace": "default"},
            "stringData": {"token": pulumi.Output.secret(hub)},
        }
        pulumi.CustomResource("kubernetes:core/v1:Secret", "hub", hub_secret)
        env = {"TOKEN": pulumi.Output.secret(token), "HUB": {"secret": "hub", "key": "token"}}
        job(resource, options, env=lambda: env, **changes)()

    return program


CAUSES: dict[str, tuple[Program, list[str]]] = {
    "a secret of Pulumi": (
        with_secrets(token="hunter2-3"),
        ["restart train", "containers[pytorch].env[TOKEN].value: a secret changed restart"],
    ),
    "a Secret that the job reads": (
        with_secrets(hub="hunter2-3"),
        [
            "none train",
            "Secret hub stringData.token: a secret changed none",
            "env[HUB].valueFrom.secretKeyRef",
            "warning: pods that run keep the earlier content",
        ],
    ),
    "a label by a transform": (
        with_secrets("train", lambda: pulumi.ResourceOptions(transforms=[_label])),
        ["in place train", "labels.team: unset → vision"],
    ),
    "a rename": (
        with_secrets("ranking", name="train"),
        ["none ranking", "Pulumi resource: train → ranking none"],
    ),
}


@pytest.fixture(scope="module")
def with_secret(engine: Engine) -> Stack:  # noqa: F811
    """A stack with one job that has secrets."""
    stack = engine.stack()
    stack.up(with_secrets())
    return stack


@pytest.mark.engine
@pytest.mark.parametrize(("program", "said"), CAUSES.values(), ids=CAUSES.keys())
def test_causes_are_told_as_they_are(
    program: Program,
    said: list[str],
    with_secret: Stack,
    engine: Engine,  # noqa: F811
    tmp_path: Path,
) -> None:
    """A secret that changed is one, a label is no launcher, and a renamed resource is no new job."""
    path = tmp_path / "preview.json"
    path.write_text(_preview(with_secret, program, engine, "--show-sames"), "utf-8")
    done = run(tmp_path, "diff", "--from-pulumi", "preview.json", environ={"COLUMNS": "400"})
    text = " ".join(done.stdout.split())

    assert done.returncode == 0, done.stderr
    assert [each for each in said if each not in text] == [], text
    assert ("a secret changed" in text) is any("secret" in each for each in said)
    assert "launcher changed" not in text
    assert "hunter2" not in done.stdout


@pytest.mark.engine
def test_a_job_that_is_taken_over_is_no_new_one(engine: Engine, tmp_path: Path) -> None:  # noqa: F811
    """It trains on, and is shown to restart when the key goes."""
    stack, path = engine.stack(), tmp_path / "preview.json"
    live(stack, BY_HAND["PyTorchJob"][0])
    path.write_text(_preview(stack, job(adopted=True), engine), "utf-8")
    (taken,) = read_preview(path).jobs
    stack.up(job(adopted=True)).ops()
    path.write_text(_preview(stack, job(), engine), "utf-8")
    (made_anew,) = read_preview(path).jobs

    assert (taken.consequence.value, [change.path for change in taken.changes]) == ("none", ["adopted"])
    assert made_anew.consequence.value == "restart"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "is not the output"),
        ('{"steps": 3}', "is not the output"),
        ('{"steps": [1]}', "its step 1 is none"),
        ('{"steps": [{"op": "same", "urn": "u"}, {"op": "same"}]}', "its step 2 is none"),
        ('{"steps": [{"urn": "u"}]}', "its step 1 is none"),
        ('{"steps": [{"op": "same", "urn": "u", "newState": 1}]}', "its step 1 is none"),
        ('{"diagnostics": null}', "is not the output"),
        (None, "cannot be read"),
    ],
)
def test_something_else_is_refused(content: str | None, reason: str, tmp_path: Path) -> None:
    """Says what the file should be, exit 2."""
    path = tmp_path / "preview.json"
    if content is not None:
        path.write_text(content, "utf-8")
    with pytest.raises(PreviewError, match=reason):
        read_preview(path)

    assert run(tmp_path, "diff", "--from-pulumi", "preview.json").returncode == 2


def test_the_engines_errors_are_told(tmp_path: Path) -> None:
    """A preview that failed is no empty comment."""
    path = tmp_path / "preview.json"
    diagnostics = [
        {"severity": "error", "urn": "urn:pulumi:dev::infra::pkg:index:Type::llm", "message": "no such image\n"}
    ]
    path.write_text(json.dumps({"steps": [], "diagnostics": diagnostics}), "utf-8")
    done = run(tmp_path, "diff", "--from-pulumi", "preview.json", "--format", "markdown")

    assert done.returncode == 2
    assert "`llm`: no such image" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "Give BASE and HEAD"),
        (["main"], "Give BASE and HEAD"),
        (["main", "HEAD", "--from-pulumi", "preview.json"], "takes the place of BASE"),
        (["--from-pulumi", "preview.json", "--name", "llm"], "takes the place of BASE"),
    ],
)
def test_a_diff_is_of_two_sides_or_of_a_preview(arguments: list[str], says: str, tmp_path: Path) -> None:
    """Anything between the two is an error of usage, not half a comparison."""
    done = run(tmp_path, "diff", *arguments)

    assert done.returncode == 2
    assert says in " ".join(done.stderr.split())
