"""The comment made from a real `pulumi preview --json` says what the offline one says."""

from __future__ import annotations

import json
import os
import subprocess
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pulumi
import pytest
from pulumi.automation._server import LanguageServer
from pulumi.runtime.proto import language_pb2_grpc

from elastic_infra.preview.markdown import as_markdown
from elastic_infra.preview.pulumi_preview import PreviewError, read_preview
from tests.engine.conftest import engine  # noqa: F401 - a fixture
from tests.engine.engine import Engine, Program, Stack
from tests.engine.jobs import JOB, job
from tests.preview.pairs import config, diff_of
from tests.preview.repositories import run

CHANGES: dict[str, dict[str, Any]] = {
    "in place": {"run_policy": {"backoff_limit": 40}},
    "containers restarted in place": {"run_policy": {"restart_policy": "OnFailure"}},
    "restart": {"image": "registry.example.com/train:2", "elastic": {"nnodes": "2:8"}},
    "pods end": {"run_policy": {"suspend": True}},
    "target": {"elastic": {"nnodes": 1}, "target": "job"},
}


def _preview(stack: Stack, program: Program, engine: Engine) -> str:  # noqa: F811
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
            [*command, "--exec-kind", "auto.inline"],
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
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_both_ways_agree(change: Any, deployed: Stack, engine: Engine, tmp_path: Path) -> None:  # noqa: F811
    """The same consequence, and the same figures as far as the objects tell them."""
    path = tmp_path / "preview.json"
    path.write_text(_preview(deployed, job(**change), engine), "utf-8")
    (found,) = read_preview(path).jobs
    offline = diff_of(config(dict(JOB)), config({**JOB, **change}))

    assert (found.name, found.consequence) == ("train", offline.consequence)
    assert found.deltas == {name: offline.deltas[name] for name in found.deltas}
    assert {"nodes", "gpus_at_most", "memory_at_most"} & set(offline.deltas) <= set(found.deltas)


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


def secret_env() -> dict[str, Any]:
    """What the deployed job has."""
    return {"TOKEN": pulumi.Output.secret("hunter2-one")}


CAUSES: dict[str, tuple[Program, list[str]]] = {
    "a label by a transform": (
        job("train", lambda: pulumi.ResourceOptions(transforms=[_label]), env=secret_env),
        ["in place  train", "labels.team: unset → vision"],
    ),
    "a rename": (
        job("ranking", name="train", env=secret_env),
        ["none  ranking", "Pulumi resource: train → ranking  none"],
    ),
}


@pytest.fixture(scope="module")
def with_secret(engine: Engine) -> Stack:  # noqa: F811
    """A stack with one job that has a secret."""
    stack = engine.stack()
    stack.up(job(env=secret_env))
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
    """A label is no launcher, and a renamed resource is no new job."""
    path = tmp_path / "preview.json"
    path.write_text(_preview(with_secret, program, engine), "utf-8")
    done = run(tmp_path, "diff", "--from-pulumi", "preview.json")

    assert done.returncode == 0, done.stderr
    assert [text for text in said if text not in done.stdout] == []
    assert "launcher changed" not in done.stdout
    assert "hunter2" not in done.stdout


@pytest.mark.parametrize(
    ("content", "reason"),
    [("", "is not JSON"), ("[]", "is not the output"), ('{"steps": 3}', "is not the output"), (None, "cannot be read")],
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
