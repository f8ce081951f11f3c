"""Pulumi programs, run under mocks in a process of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.preview.repositories import LLM, commit, consequences, diff, git, run, write

PROJECT = "name: infra\nruntime: python\n"
PROGRAM = """
import pulumi
from elastic_infra import ElasticTrainingJob

config = pulumi.Config()
image = config.require("image")
password = config.require_secret("password")
for size in (2, 4):
    ElasticTrainingJob(f"train-{size}", {
        "image": image,
        "script": "train.py",
        "elastic": {"nnodes": f"1:{size}"},
        "env": {"PASSWORD": password},
        "resources": {"memory": "1Gi"},
    })
print("declared")
"""
STACK = "config:\n  infra:image: team/train:1\n  infra:password: {secure: v1:xxxx}\n"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A program in two commits: the second takes another image for all jobs, and another job in place of one."""
    folder = tmp_path / "infra"
    folder.mkdir()
    commit(folder, {"Pulumi.yaml": PROJECT, "__main__.py": PROGRAM, "Pulumi.dev.yaml": STACK})
    commit(
        folder, {"__main__.py": PROGRAM.replace("(2, 4)", "(2, 5)"), "Pulumi.dev.yaml": STACK.replace(":1", ":2", 1)}
    )
    return folder


def test_programs_are_not_run_unless_asked(repository: Path) -> None:
    """They are the pull request's code."""
    write(repository, {"__main__.py": "open('ran', 'w')"})
    code, document, stderr = diff(repository, "HEAD", ".")

    assert (code, document["jobs"]) == (0, [])
    assert "--run-programs executes them" in stderr
    assert not (repository / "ran").exists()


def test_the_jobs_of_programs_are_compared(repository: Path) -> None:
    """With the stack's plain config; encrypted values and Outputs are known by their place only."""
    code, document, stderr = diff(repository, "HEAD~1", "HEAD", "--run-programs")

    assert (code, stderr) == (0, "")
    assert consequences(document) == {"train-4": "removed", "train-2": "restart", "train-5": "added"}
    assert [change["path"] for change in document["jobs"][1]["changes"]] == ["image"]


def test_the_process_has_nothing_to_lose(repository: Path) -> None:
    """No variable of the caller, no home, no ambient path."""
    write(repository, {"__main__.py": "import os, sys\nsys.exit(' '.join(sorted(os.environ)) + os.environ['HOME'])"})
    secret = {"PULUMI_ACCESS_TOKEN": "pul-1234", "KUBECONFIG": "/etc/kube", "PYTHONPATH": "/elsewhere"}
    done = run(repository, "diff", "HEAD", ".", "--run-programs", environ=secret)

    assert done.returncode == 2
    assert "HOME LANG" in done.stderr
    assert not any(name in done.stderr for name in secret)


def test_a_revision_is_run_as_it_would_be_checked_out(tmp_path: Path) -> None:
    """Links that stay inside work, those that lead out by whatever way are not there, and no attribute hides a file."""
    program = """
from pathlib import Path
import sys
sys.exit(" ".join(sorted(path.name for path in Path(".").iterdir() if path.exists())))
"""
    commit(
        tmp_path, {"Pulumi.yaml": PROJECT, "__main__.py": program, "a/b/c": "c", ".gitattributes": "a export-ignore"}
    )
    for link, target in {
        "in": "a/b/c",
        "out": str(tmp_path),
        "root": "a/b/../..",
        "a/up": "..",
        "way": "a/up/..",
    }.items():
        (tmp_path / link).symlink_to(target)
    commit(tmp_path, {})
    write(tmp_path, {"__main__.py": "pass"})
    _, document, _ = diff(tmp_path, "HEAD", ".", "--run-programs")

    (fault,) = document["errors"]
    assert fault["reason"].endswith(": .gitattributes Pulumi.yaml __main__.py a in root")


READING = """
from pathlib import Path
import yaml
from elastic_infra import ElasticTrainingJob

ElasticTrainingJob("llm", {**yaml.safe_load(Path("job.yaml").read_text()), "labels": {"team": "a"}})
"""


def test_a_file_that_a_program_reads_is_that_programs_job(tmp_path: Path) -> None:
    """It is no second job; a file of the same name elsewhere is."""
    files = {"llm/Pulumi.yaml": PROJECT, "llm/__main__.py": READING, "llm/job.yaml": LLM}
    write(tmp_path, {f"{side}/{name}": content for side in ("base", "head") for name, content in files.items()})
    code, document, _ = diff(tmp_path, "base", "head", "--run-programs")
    write(tmp_path, {"head/other/llm.yaml": LLM})
    twice, _, stderr = diff(tmp_path, "base", "head", "--run-programs")

    assert (code, consequences(document)) == (0, {"llm": "none"})
    assert twice == 2
    assert "head llm/Pulumi.yaml: declares job 'llm', and so does other/llm.yaml" in stderr


FAILING = {
    "raises": ("raise RuntimeError('no region')", "the program failed: RuntimeError: no region"),
    "is no Python": ("def", "the program failed: SyntaxError"),
    "has an invalid job": (
        "from elastic_infra import ElasticTrainingJob\nElasticTrainingJob('x', {'image': 'a'})",
        "exactly one of script, module and command",
    ),
    "lacks config": ("import pulumi\npulumi.Config().require('region')", "infra:region"),
    "ends early": ("import os\nos._exit(0)", "the program ended before its jobs were known"),
}


@pytest.mark.parametrize(("program", "reason"), FAILING.values(), ids=FAILING.keys())
def test_a_program_that_fails_is_named(repository: Path, program: str, reason: str) -> None:
    """Its last words, no traceback; the other side is still read."""
    write(repository, {"__main__.py": program})
    code, document, stderr = diff(repository, "HEAD", ".", "--run-programs")

    assert code == 2
    (error,) = document["errors"]
    assert (error["side"], error["path"]) == ("head", "Pulumi.yaml")
    assert reason in error["reason"]
    assert "Traceback" not in stderr


def test_what_a_program_prints_is_no_part_of_the_document(repository: Path) -> None:
    """Stdout holds the JSON alone."""
    code, document, _ = diff(repository, "HEAD", "HEAD", "--run-programs")

    assert code == 0
    assert set(consequences(document).values()) == {"none"}


def test_other_runtimes_are_left_alone(repository: Path) -> None:
    """Only Python programs can be run here."""
    commit(repository, {"Pulumi.yaml": "name: infra\nruntime: nodejs\n"})
    git(repository, "status")
    code, document, stderr = diff(repository, "HEAD", "HEAD", "--run-programs")

    assert (code, document, stderr) == (0, {"jobs": [], "errors": []}, "")
