"""The CI that others copy: its script steps run here, against stand-ins for the services they talk to."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.preview.repositories import EVAL, LLM, commit, git

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples/ci"
MAIN = "#!{python}\nimport sys\nsys.path.insert(0, {root!r})\nfrom elastic_infra.cli import main\nmain()\n"
TOOL = """#!{python}
import json, os, sys
with open({log!r}, "a") as log:
    log.write(json.dumps([sys.argv[1:], "" if sys.stdin.isatty() else sys.stdin.read()]) + "\\n")
if "{listing}" in " ".join(sys.argv) and not any(word in sys.argv for word in ("PATCH", "POST", "PUT")):
    sys.stdout.write(os.environ.get("FOUND", ""))
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The merge commit of a pull request: its first parent is the base."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    commit(folder, {"jobs/llm.yaml": LLM, "jobs/eval.yaml": EVAL})
    git(folder, "switch", "--quiet", "--create", "change")
    commit(folder, {"jobs/llm.yaml": LLM.replace("llm:1", "llm:2")})
    git(folder, "switch", "--quiet", "main")
    commit(folder, {"README.md": "moved on"})
    git(folder, "merge", "--quiet", "--no-ff", "--message", "merge", "change")
    return folder


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A runner's environment, with the program under test and stand-ins for `gh` and `curl` on PATH."""
    programs = tmp_path / "bin"
    programs.mkdir()
    _program(programs / "elastic-infra", MAIN.format(python=sys.executable, root=str(ROOT)))
    for name, listing in (("gh", "--paginate"), ("curl", "per_page")):
        log = str(tmp_path / f"{name}.log")
        _program(programs / name, TOOL.format(python=sys.executable, log=log, listing=listing))
    return {
        "PATH": os.pathsep.join([str(programs), os.environ["PATH"]]),
        "HOME": str(tmp_path),
        "RUNNER_TEMP": str(tmp_path),
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
        "GITHUB_REPOSITORY": "team/infra",
        "FOLDER": "jobs",
        "NUMBER": "7",
        "RUN": "https://ci.example.com/runs/1",
    }


def _program(path: Path, text: str) -> None:
    path.write_text(text, "utf-8")
    path.chmod(0o755)


def _step(script: str, folder: Path, environ: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """One step as a runner runs it."""
    command = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", script]
    return subprocess.run(command, cwd=folder, env=dict(environ), capture_output=True, text=True, check=False)


def _github() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((EXAMPLES / "github-preview.yml").read_text("utf-8"))
    return document


def _scripts() -> dict[str, str]:
    return {step["name"]: step["run"] for step in _github()["jobs"]["preview"]["steps"] if "run" in step}


def _calls(log: Path) -> Iterator[tuple[list[str], str]]:
    for line in log.read_text("utf-8").splitlines():
        arguments, text = json.loads(line)
        yield arguments, text


def test_the_github_example_posts_one_comment_and_then_updates_it(
    checkout: Path, environ: dict[str, str], tmp_path: Path
) -> None:
    """Compared with the base that was merged into, so that what others merged meanwhile is not shown."""
    compared = _step(_scripts()["Compare"], checkout, environ)
    posted = _step(_scripts()["Comment"], checkout, environ)
    updated = _step(_scripts()["Comment"], checkout, environ | {"FOUND": "12345\n678\n"})

    assert (compared.returncode, posted.returncode, updated.returncode) == (0, 0, 0), compared.stderr + posted.stderr
    assert "restart | `llm`" in (checkout / "comment.md").read_text("utf-8")
    assert (tmp_path / "output").read_text("utf-8") == "code=0\n"
    methods = [arguments for arguments, _ in _calls(tmp_path / "gh.log") if "--method" in arguments]
    assert [call[2:4] for call in methods] == [
        ["POST", "repos/team/infra/issues/7/comments"],
        ["PATCH", "repos/team/infra/issues/comments/12345"],
    ]


def test_the_github_example_fails_on_bad_input_after_the_comment(checkout: Path, environ: dict[str, str]) -> None:
    """The comment says what is wrong; the check is red."""
    commit(checkout, {"jobs/llm.yaml": "image: [\nscript: a\n"})
    compared = _step(_scripts()["Compare"], checkout, environ)
    failed = _step(_scripts()["Fail on bad input"], checkout, environ | {"CODE": "2"})

    assert (compared.returncode, failed.returncode) == (0, 2)
    assert "**Not compared:**" in (checkout / "comment.md").read_text("utf-8")


def test_the_github_example_may_do_little() -> None:
    """Least permissions, actions pinned by commit, no secret, no input of others inside a script."""
    document = _github()
    text = (EXAMPLES / "github-preview.yml").read_text("utf-8")
    uses = [step["uses"] for step in document["jobs"]["preview"]["steps"] if "uses" in step]

    assert document["permissions"] == {"contents": "read", "pull-requests": "write"}
    assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", use) for use in uses)
    assert "${{ secrets" not in text
    assert "pull_request_target" not in text
    assert not any("${{" in script for script in _scripts().values())


@pytest.mark.parametrize(
    ("found", "expected"), [("", "POST"), ('[{"id": 9, "body": "<!-- elastic-infra diff -->"}]', "PUT")]
)
def test_the_gitlab_example_posts_or_updates_one_note(
    checkout: Path, environ: dict[str, str], tmp_path: Path, found: str, expected: str
) -> None:
    """With a token; the scripts of a job run in one shell."""
    if shutil.which("jq") is None:
        pytest.skip("no jq: the GitLab example needs it")
    job = yaml.safe_load((EXAMPLES / "gitlab-preview.yml").read_text("utf-8"))["preview-training-jobs"]
    place = {
        "CI_MERGE_REQUEST_DIFF_BASE_SHA": git(checkout, "rev-parse", "HEAD^1").strip(),
        "CI_PIPELINE_URL": "https://ci.example.com/pipelines/1",
        "CI_API_V4_URL": "https://gitlab.example.com/api/v4",
        "CI_PROJECT_ID": "3",
        "CI_MERGE_REQUEST_IID": "7",
        "PREVIEW_TOKEN": "token",
        "FOUND": found or "[]",
    }
    done = _step("\n".join(job["script"]), checkout, environ | place)
    sent = [(arguments, text) for arguments, text in _calls(tmp_path / "curl.log") if "--request" in arguments]

    assert done.returncode == 0, done.stderr
    assert "restart | `llm`" in done.stdout
    ((arguments, text),) = sent
    assert arguments[arguments.index("--request") + 1] == expected
    assert arguments[-1].endswith("/notes/9" if expected == "PUT" else "/notes")
    assert json.loads(text)["body"].startswith("<!-- elastic-infra diff -->")


def test_the_action_compares_and_tells_the_worst_consequence(
    checkout: Path, environ: dict[str, str], tmp_path: Path
) -> None:
    """Outputs for later steps; it fails only as asked."""
    action = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
    script = action["runs"]["steps"][1]["run"]
    place = tmp_path / "elastic-infra/bin"
    place.mkdir(parents=True)
    shutil.copy(tmp_path / "bin/elastic-infra", place)
    inputs = {"BASE": "HEAD^1:jobs", "HEAD": "HEAD:jobs", "TITLE": "Jobs", "LINK": "https://ci.example.com/1"}
    told = _step(script, checkout, environ | inputs | {"FAIL_ON": "none"})
    failed = _step(script, checkout, environ | inputs | {"FAIL_ON": "change"})

    assert (told.returncode, failed.returncode) == (0, 1), told.stderr
    assert f"comment={tmp_path}/comment.md\nconsequence=restart\n" in (tmp_path / "output").read_text("utf-8")
    assert "### Jobs" in (tmp_path / "summary").read_text("utf-8")
    assert not any("${{" in step["run"] for step in action["runs"]["steps"])
