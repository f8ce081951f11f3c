"""Pulumi programs, run under mocks in a process of their own."""

from __future__ import annotations

import json
from pathlib import Path

import pulumi
import pytest

from elastic_infra.preview.programs import stack_config
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


ENTRYPOINT = """

async def main() -> None:
    await asyncio.sleep(0)
    ElasticTrainingJob("awaited", {"image": "team/train:1", "script": "train.py"})


pulumi.run(main)
"""


@pytest.mark.skipif(not hasattr(pulumi, "run"), reason="Pulumi's SDK has pulumi.run from 3.254 on")
def test_jobs_of_an_entrypoint_that_pulumi_awaits_are_compared(repository: Path) -> None:
    """Programs of many jobs are written so: docs/scale.md."""
    write(repository, {"__main__.py": f"import asyncio\n{PROGRAM}{ENTRYPOINT}"})
    code, document, _ = diff(repository, "HEAD", ".", "--run-programs")

    assert code == 0
    assert consequences(document)["awaited"] == "added"


def test_a_secret_that_changed_is_told_as_one(repository: Path) -> None:
    """Of an encrypted value the file tells that it is another; neither the value nor a digest of the value is told."""
    write(repository, {"Pulumi.dev.yaml": STACK.replace(":1", ":2", 1).replace("xxxx", "yyyy")})
    _, document, _ = diff(repository, "HEAD", ".", "--run-programs")
    text = run(repository, "diff", "HEAD", ".", "--run-programs").stdout
    comment = run(repository, "diff", "HEAD", ".", "--run-programs", "--format", "markdown").stdout

    assert set(consequences(document).values()) == {"restart"}
    for job in document["jobs"]:
        (change,) = job["changes"]
        assert (change["path"], change["secret"]) == ("env.PASSWORD", True)
        assert (change["old"], change["new"]) == ("(hidden)", "(hidden)")
    assert text.count("env.PASSWORD: a secret changed") == len(document["jobs"]) == 2
    assert "env.PASSWORD (a secret changed)" in comment
    assert "| `(hidden)` | a secret changed | restart |" in comment


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


BY_STACK = """
import pulumi
from elastic_infra import ElasticTrainingJob

stack = pulumi.get_stack()
ElasticTrainingJob("llm", {
    "image": "team/train:2" if stack == "prod" else "team/train:1", "script": "train.py",
    "labels": {"stack": stack}, "resources": {"memory": "1Gi"},
})
"""


def test_a_program_knows_its_stack(tmp_path: Path) -> None:
    """A change for one stack alone is seen in that stack; the only config file names it where `--stack` does not."""
    commit(tmp_path, {"Pulumi.yaml": PROJECT, "__main__.py": BY_STACK})
    commit(tmp_path, {"__main__.py": BY_STACK.replace("train:2", "train:3")})
    _, prod, _ = diff(tmp_path, "HEAD~1", "HEAD", "--run-programs", "--stack", "prod")
    _, dev, _ = diff(tmp_path, "HEAD~1", "HEAD", "--run-programs", "--stack", "dev")
    commit(tmp_path, {"Pulumi.prod.yaml": "config: {}\n"})
    write(tmp_path, {"__main__.py": BY_STACK.replace("train:2", "train:4")})
    _, only, _ = diff(tmp_path, "HEAD", ".", "--run-programs")

    assert [consequences(each) for each in (prod, dev, only)] == [
        {"llm": "restart"},
        {"llm": "none"},
        {"llm": "restart"},
    ]


def test_config_is_what_pulumi_gives(tmp_path: Path) -> None:
    """A date is text, and a secret inside an object is text that tells only whether the file has another."""
    content = """
config:
  infra:since: 2024-01-01
  infra:database:
    users: [{name: a, password: {secure: v1:xxxx}}]
    since: 2024-01-01
"""
    write(tmp_path, {"Pulumi.dev.yaml": content})
    config = stack_config(tmp_path, {"name": "infra"}, "dev")
    database = json.loads(config["infra:database"])
    write(tmp_path, {"Pulumi.dev.yaml": content.replace("xxxx", "yyyy")})
    other = json.loads(stack_config(tmp_path, {"name": "infra"}, "dev")["infra:database"])
    (user,) = database["users"]

    assert (config["infra:since"], database["since"], user["name"]) == ("2024-01-01", "2024-01-01", "a")
    assert user["password"].startswith("(secret-")
    assert "xxxx" not in user["password"]
    assert user["password"] != other["users"][0]["password"]


def test_a_misspelt_stack_is_told(tmp_path: Path) -> None:
    """Once, with the stacks that have a file; a stack that has one on a side, or a project without any, is fine."""
    commit(tmp_path, {"Pulumi.yaml": PROJECT, "__main__.py": BY_STACK})
    sides = ("HEAD", ".", "--run-programs", "--stack")
    _, _, without = diff(tmp_path, *sides, "prdo")
    write(tmp_path, {"Pulumi.prod.yaml": "config: {}\n", "other/Pulumi.elsewhere.yaml": "config: {}\n"})
    _, _, known = diff(tmp_path, *sides, "prod")
    code, document, misspelt = diff(tmp_path, *sides, "prdo")

    assert (without, known) == ("", "")
    assert (code, consequences(document)) == (0, {"llm": "none"})
    assert misspelt == (
        "--stack prdo: there is no Pulumi.prdo.yaml, so the programs ran without a stack's config. There are files of "
        "these stacks: prod.\n"
    )


LATE = """
import pulumi
from elastic_infra import ElasticTrainingJob

given = {"metadata": {"name": "team-a"}, "status": None}
namespace = pulumi.CustomResource("kubernetes:core/v1:Namespace", "team", given)
other = pulumi.StackReference("team/platform/prod")
ElasticTrainingJob("llm", {
    "image": other.require_output("image"), "script": "train.py", "resources": {"memory": "1Gi"},
    "namespace": namespace.metadata["name"], "args": [other.get_output("dataset")],
    "storage": {"checkpoint": {"claim": other.outputs["claims"]["llm"]}},
})
"""


def test_late_values_are_exempt_from_rules_on_text(tmp_path: Path) -> None:
    """Nothing is known of them but their place: no fault, and no difference between two of them."""
    commit(tmp_path, {"Pulumi.yaml": PROJECT, "__main__.py": LATE})
    write(tmp_path, {"__main__.py": LATE.replace('"1Gi"', '"2Gi"').replace('"dataset"', '"data"')})
    code, document, stderr = diff(tmp_path, "HEAD", ".", "--run-programs")
    write(tmp_path, {"__main__.py": LATE.replace('namespace.metadata["name"]', '"plain"')})
    _, plain, _ = diff(tmp_path, "HEAD", ".", "--run-programs")

    assert (code, stderr) == (0, "")
    assert [change["path"] for job in document["jobs"] for change in job["changes"]] == ["resources.memory"]
    (change,) = plain["jobs"][0]["changes"]
    assert (change["path"], change["old"], change["new"]) == ("namespace", "(known later)", "plain")


NAMED = """
from elastic_infra import ElasticTrainingJob

ElasticTrainingJob("old", {
    "name": "llm", "image": "team/train:1", "script": "train.py", "elastic": {"nnodes": "2:4"},
    "resources": {"memory": "1Gi"}, "storage": {"checkpoint": {"size": "10Gi"}},
})
"""


def test_a_renamed_resource_is_told(tmp_path: Path) -> None:
    """No object changes; with an upgrade beside it all of them do, and with children named after it `up` fails."""
    files = {"Pulumi.yaml": PROJECT, "requirements.txt": "elastic-infra==0.1.0\n"}
    renamed = NAMED.replace('"old"', '"new"')
    commit(tmp_path, {**files, "__main__.py": NAMED})
    write(tmp_path, {"__main__.py": renamed})
    _, alone, _ = diff(tmp_path, "HEAD", ".", "--run-programs")
    write(tmp_path, {"requirements.txt": "elastic-infra==0.2.0\n"})
    _, both, _ = diff(tmp_path, "HEAD", ".", "--run-programs")
    write(tmp_path, {**files, "__main__.py": renamed.replace('"name"', '"children": "resource", "name"')})
    _, children, _ = diff(tmp_path, "HEAD", ".", "--run-programs")
    (job,), (upgraded,), (after) = alone["jobs"], both["jobs"], children["jobs"][0]

    assert (job["consequence"], job["warnings"], job["loses_checkpoints"]) == ("none", [], False)
    assert [(each["path"], each["old"], each["new"]) for each in job["changes"]] == [("Pulumi resource", "old", "new")]
    assert (upgraded["consequence"], upgraded["loses_checkpoints"]) == ("restart", True)
    assert any("upgrade first" in warning for warning in upgraded["warnings"])
    assert any('aliases=[pulumi.Alias(name="old")]' in warning for warning in after["warnings"])


def test_children_of_another_name_are_told(tmp_path: Path) -> None:
    """Pulumi finds no record of the objects of a job that is there under the names of its resource."""
    after_resource = NAMED.replace('"name"', '"children": "resource", "name"')
    commit(tmp_path, {"Pulumi.yaml": PROJECT, "__main__.py": NAMED})
    write(tmp_path, {"__main__.py": after_resource})
    _, document, _ = diff(tmp_path, "HEAD", ".", "--run-programs")
    commit(tmp_path, {"__main__.py": after_resource})
    write(tmp_path, {"__main__.py": NAMED})
    _, back, _ = diff(tmp_path, "HEAD", ".", "--run-programs")
    (job,), (found,) = document["jobs"], back["jobs"]

    assert (job["consequence"], [each["path"] for each in job["changes"]]) == ("restart", ["children"])
    assert any("Keep `children: name` in this job" in warning for warning in job["warnings"])
    assert (found["consequence"], found["warnings"]) == ("none", [])


def test_a_job_of_a_program_that_fails_on_the_other_side_is_unknown(repository: Path) -> None:
    """It may be there or not: it is neither added nor removed."""
    commit(repository, {"__main__.py": "raise RuntimeError('no region, Authorization: Bearer abcdef1234567890')"})
    code, document, stderr = diff(repository, "HEAD", "HEAD~1", "--run-programs")

    assert code == 2
    assert set(consequences(document).values()) == {"unknown"}
    assert "no region, Authorization: (hidden)" in stderr
    assert "abcdef" not in stderr
