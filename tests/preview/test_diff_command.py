"""`elastic-infra diff` as it is called: files, folders, revisions, and everything that can be wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.preview.repositories import EVAL, LLM, commit, consequences, diff, git, run, write


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two commits: the second restarts one job, adds one, and leaves one alone."""
    folder = tmp_path / "infra"
    folder.mkdir()
    commit(folder, {"jobs/llm.yaml": LLM, "jobs/eval/job.yaml": EVAL, "README.md": "image: no job\n"})
    commit(folder, {"jobs/llm.yaml": LLM.replace("llm:1", "llm:2"), "jobs/tune.job.yaml": EVAL})
    return folder


def test_two_revisions(repository: Path) -> None:
    """Read with git: the working tree does not matter."""
    (repository / "jobs/llm.yaml").write_text("broken: [", "utf-8")
    code, document, stderr = diff(repository, "HEAD~1", "HEAD")

    assert (code, stderr) == (0, "")
    assert consequences(document) == {"llm": "restart", "tune": "added", "eval": "none"}


def test_a_revision_and_the_working_tree(repository: Path) -> None:
    """A revision is read where the other side lies."""
    _, document, _ = diff(repository, "HEAD~1", "jobs")
    _, from_inside, _ = diff(repository / "jobs", "HEAD~1", ".")
    _, one_file, _ = diff(repository, "HEAD~1", "jobs/llm.yaml")

    assert consequences(document) == {"llm": "restart", "tune": "added", "eval": "none"}
    assert from_inside == document
    assert consequences(one_file) == {"llm": "restart"}


def test_a_path_of_a_revision(repository: Path) -> None:
    """`REVISION:PATH`, a folder or a file."""
    _, folders, _ = diff(repository, "HEAD~1:jobs/eval", "HEAD:jobs/eval")
    _, files, _ = diff(repository, "HEAD~1:jobs/llm.yaml", "HEAD:jobs/llm.yaml")

    assert consequences(folders) == {"eval": "none"}
    assert consequences(files) == {"llm": "restart"}


@pytest.mark.parametrize(
    "written",
    [
        b"\xef\xbb\xbfimage: team/llm:1\nscript: train.py\n",
        b'\xef\xbb\xbf{"image": "team/llm:1", "script": "train.py"}',
        b"{image: team/llm:1, script: train.py}\n",
    ],
    ids=["byte order mark", "byte order mark before JSON", "flow mapping"],
)
def test_every_way_to_write_a_job_is_found(tmp_path: Path, written: bytes) -> None:
    """What `validate` accepts is no file to pass over."""
    write(tmp_path, {"base/llm.yaml": written, "head/llm.yaml": written.replace(b"llm:1", b"llm:2")})
    _, document, _ = diff(tmp_path, "base", "head")

    assert consequences(document) == {"llm": "restart"}


def test_a_folder_that_is_new_in_the_pull_request(repository: Path) -> None:
    """Everything in it is added."""
    write(repository, {"more/probe.yaml": EVAL})
    code, document, _ = diff(repository, "HEAD", "more")

    assert (code, consequences(document)) == (0, {"probe": "added"})


def test_a_folder_that_is_new_is_read_by_its_path_as_well(repository: Path) -> None:
    """`BASE:jobs HEAD:jobs` of the first pull request, as the workflow gives it; a path that neither has is a typo."""
    commit(repository, {"more/probe.yaml": EVAL})
    code, document, _ = diff(repository, "HEAD~1:more", "HEAD:more")
    back, gone, _ = diff(repository, "HEAD:more", "HEAD~1:more/")
    on_disk, working, _ = diff(repository, "HEAD~1:more", "more")
    typo, _, stderr = diff(repository, "HEAD~1:moer", "HEAD:moer")

    assert (code, consequences(document)) == (0, {"probe": "added"})
    assert (back, consequences(gone)) == (0, {"probe": "removed"})
    assert (on_disk, working) == (0, document)
    assert typo == 2
    assert "neither side has this path" in stderr


def test_three_dots_start_where_the_branch_began(repository: Path) -> None:
    """As git takes them: what main got since then is no change of the branch."""
    git(repository, "branch", "work", "HEAD~1")
    git(repository, "checkout", "--quiet", "work")
    commit(repository, {"jobs/llm.yaml": LLM.replace("llm:1", "llm:3")})
    write(repository, {"jobs/llm.yaml": LLM})
    _, dots, _ = diff(repository, "main...HEAD")
    _, named, _ = diff(repository, "main...work:jobs")
    _, short, _ = diff(repository, "main...")
    _, two, _ = diff(repository, "main..HEAD")
    _, tree, _ = diff(repository, "main...HEAD", "jobs")
    git(repository, "checkout", "--quiet", "--orphan", "other")
    commit(repository, {})
    code, _, stderr = diff(repository, "main...other")

    assert consequences(dots) == consequences(named) == consequences(short) == {"llm": "restart", "eval": "none"}
    assert consequences(two) == {"llm": "restart", "eval": "none", "tune": "removed"}
    assert consequences(tree) == {"llm": "none", "eval": "none"}
    assert code == 2
    assert "no commit in common" in stderr


def test_two_files_are_one_job(tmp_path: Path) -> None:
    """Whatever the files are called."""
    write(tmp_path, {"old.yaml": LLM, "new.yaml": LLM.replace("llm:1", "llm:2")})
    _, document, _ = diff(tmp_path, "old.yaml", "new.yaml")
    _, named, _ = diff(tmp_path, "old.yaml", "new.yaml", "--name", "llm")

    assert consequences(document) == {"new": "restart"}
    assert consequences(named) == {"llm": "restart"}


def test_the_exit_code_tells_on_request(repository: Path) -> None:
    """0, or 1 when asked and something changes."""
    assert run(repository, "diff", "HEAD~1", "HEAD").returncode == 0
    assert run(repository, "diff", "HEAD~1", "HEAD", "--exit-code").returncode == 1
    assert run(repository, "diff", "HEAD", "HEAD", "--exit-code").returncode == 0


STORED = LLM + "storage: {checkpoint: {size: 10Gi}}\n"
FAILING = {
    "in place": (STORED + "run_policy: {backoff_limit: 9}\n", {"change"}),
    "restart": (STORED.replace("llm:1", "llm:2"), {"change", "restart"}),
    "another claim": (STORED.replace("size: 10Gi", "claim: mine"), {"change", "restart", "checkpoint-loss"}),
    "no checkpoints any more": (LLM, {"change", "restart", "checkpoint-loss"}),
    "another name": (f"name: other\n{STORED}", {"change", "restart", "checkpoint-loss"}),
    "the claim by its name": (STORED.replace("size: 10Gi", "claim: llm-checkpoint"), {"change"}),
    "nothing": (STORED, set()),
}


@pytest.mark.parametrize(("head", "fails"), FAILING.values(), ids=FAILING.keys())
def test_what_fails_is_chosen(tmp_path: Path, head: str, fails: set[str]) -> None:
    """`--fail-on`: any change, a restart, or a job that goes on without its checkpoints."""
    write(tmp_path, {"base/llm.yaml": STORED, "head/llm.yaml": head})
    levels = ("none", "change", "restart", "checkpoint-loss")
    codes = {level: run(tmp_path, "diff", "base", "head", "--fail-on", level).returncode for level in levels}

    assert codes == {level: int(level in fails) for level in levels}


@pytest.mark.parametrize(
    ("before", "consequence", "said"),
    [("0.1.0", "restart", "launcher changed"), ("0.2.0", "none", "a newer launcher is ready")],
)
def test_another_pinned_version_is_told(repository: Path, before: str, consequence: str, said: str) -> None:
    """It has another launcher, which jobs of 0.1 take at once; the lock file of each side tells."""
    lock = 'version = 1\n\n[[package]]\nname = "elastic-infra"\nversion = "{}"\n'
    commit(repository, {"uv.lock": lock.format(before)})
    commit(repository, {"uv.lock": lock.format("0.3.0")})
    _, document, _ = diff(repository, "HEAD~1:jobs", "HEAD:jobs")

    assert set(consequences(document).values()) == {consequence}
    assert {job["changes"][0]["path"] for job in document["jobs"]} == {said}


BROKEN = {
    "YAML": (b"image: team/llm:2\nscript: [a\n", "is not valid YAML at line"),
    "merge conflict": (b"image: team/llm:2\n<<<<<<< HEAD\nscript: a\n", "holds a merge conflict marker at line 2"),
    "binary": (b"image: \0\nscript: a\n", "is a binary file"),
    "not UTF-8": (b"image: caf\xe9\nscript: a\n", "is not UTF-8 text"),
    "invalid": (b"image: team/llm:2\nscript: a\nelastik: {}\n", "Did you mean 'elastic'?"),
}


@pytest.mark.parametrize(("content", "reason"), BROKEN.values(), ids=BROKEN.keys())
@pytest.mark.parametrize("side", ["base", "head"])
def test_a_broken_file_is_named_and_the_rest_is_shown(repository: Path, content: bytes, reason: str, side: str) -> None:
    """Which side, which file, why; the job itself counts neither as added nor as removed."""
    commit(repository, {"jobs/llm.yaml": content})
    sides = ("HEAD", "HEAD~1") if side == "base" else ("HEAD~2", "HEAD")
    code, document, stderr = diff(repository, *sides)

    assert code == 2
    assert "llm" not in consequences(document)
    assert consequences(document)["eval"] == "none"
    (error,) = document["errors"]
    assert (error["side"], error["path"], error["job"]) == (side, "jobs/llm.yaml", "llm")
    assert reason in error["reason"]
    assert f"{side} jobs/llm.yaml: " in stderr
    assert "Traceback" not in stderr


def test_a_side_that_is_nothing(repository: Path, tmp_path: Path) -> None:
    """A typo, a path that the revision lacks, a folder that is no repository."""
    code, document, stderr = diff(repository, "HEAD~7", "HEAD")
    lacking = diff(repository, "HEAD:jibs", "HEAD:jobs")
    outside = run(tmp_path, "diff", "main", "jobs", "--format", "json")

    assert (code, lacking[0], outside.returncode) == (2, 2, 2)
    assert document["errors"][0]["side"] == "base"
    assert "base HEAD~7: 'HEAD~7' is neither a file, a folder nor a revision" in stderr
    assert "'HEAD' has no 'jibs'" in lacking[2]
    assert "no git repository here" in outside.stderr


def test_an_option_is_no_revision(repository: Path) -> None:
    """What looks like an option of git never becomes one."""
    code, _, stderr = diff(repository, "--", "--output=/nowhere", "HEAD")

    assert code == 2
    assert "is neither a file, a folder nor a revision" in stderr


def test_a_shallow_clone_says_what_to_fetch(repository: Path, tmp_path: Path) -> None:
    """The usual state of a CI checkout."""
    git(tmp_path, "clone", "--quiet", "--depth=1", repository.as_uri(), "shallow")
    code, document, stderr = diff(tmp_path / "shallow", "HEAD~1", "HEAD")

    assert code == 2
    assert "is not in this shallow clone. Fetch it first" in stderr
    assert consequences(document) == {"llm": "unknown", "eval": "unknown", "tune": "unknown"}


def test_a_name_that_kubernetes_refuses(tmp_path: Path) -> None:
    """The file's stem is the job's name."""
    write(tmp_path, {"base/My_Job.yaml": LLM, "head/My_Job.yaml": LLM, "head/ok.yaml": LLM})
    code, document, _ = diff(tmp_path, "base", "head")

    assert (code, consequences(document)) == (2, {"ok": "added"})
    assert {error["side"] for error in document["errors"]} == {"base", "head"}


@pytest.mark.parametrize("side", ["base", "head"])
def test_two_jobs_of_one_name(tmp_path: Path, side: str) -> None:
    """Neither is compared, both files are named, and the rest is shown; with another name all are."""
    write(tmp_path, {f"{each}/{name}.yaml": LLM for each in ("base", "head") for name in ("a/llm", "ok")})
    write(tmp_path, {f"{side}/b/llm.yaml": EVAL})
    code, document, stderr = diff(tmp_path, "base", "head")
    write(tmp_path, {f"{side}/b/llm.yaml": f"name: other\n{EVAL}"})
    fixed, _, _ = diff(tmp_path, "base", "head")

    assert (code, fixed) == (2, 0)
    assert consequences(document) == {"ok": "none"}
    (error,) = document["errors"]
    assert (error["side"], error["path"], error["job"]) == (side, "b/llm.yaml", "llm")
    assert f"{side} b/llm.yaml: declares job 'llm', and so does a/llm.yaml: the two cannot be told apart." in stderr
    assert "Rename one of the files, or set `name` in it; --name is for two single files." in stderr


def test_links_lead_nowhere(tmp_path: Path) -> None:
    """A link may lead out of the folder, to anything."""
    write(tmp_path, {"secret.yaml": LLM, "head/eval.yaml": EVAL, "base/eval.yaml": EVAL})
    (tmp_path / "head/llm.yaml").symlink_to(tmp_path / "secret.yaml")
    _, document, _ = diff(tmp_path, "base", "head")

    assert consequences(document) == {"eval": "none"}


def test_only_the_document_goes_to_stdout(repository: Path) -> None:
    """Markdown too; what a person should know besides goes to stderr."""
    write(repository, {"Pulumi.yaml": "name: infra\nruntime: python\n"})
    done = run(repository, "diff", "HEAD", ".", "--format", "markdown", "--title", "GPU jobs", "--link", "https://ci/1")

    assert done.stdout.startswith("<!-- elastic-infra diff -->\n### GPU jobs\n")
    assert done.stdout.endswith("[More](https://ci/1)\n")
    assert "head: 1 Pulumi programs were not looked into; --run-programs executes them." in done.stderr
