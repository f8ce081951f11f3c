"""The program of an initializer, run as a pod runs it: with real git, with stand-ins for what a test machine lacks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from elastic_infra.manifests import fetch
from elastic_infra.manifests.initializers import program

ORDER: dict[str, Any] = {
    "name": "data",
    "source": None,
    "revision": None,
    "repository": "model",
    "command": [],
    "attempts": 1,
}


def order(target: Path, kind: str, *, own: bool = False, **fields: Any) -> str:
    """What the pod says to the program."""
    return json.dumps({**ORDER, "kind": kind, "path": str(target), "own": own, **fields})


def started(text: str, **environ: str) -> subprocess.Popen[str]:
    """The program, with its text as the pod has it."""
    command = [sys.executable, "-c", program(), text]
    return subprocess.Popen(command, env={**os.environ, **environ}, stderr=subprocess.PIPE, text=True)


def ran(text: str, **environ: str) -> tuple[int, str]:
    """Exit code and last line on stderr."""
    process = started(text, **environ)
    _, errors = process.communicate(timeout=60)
    return process.returncode, (errors.strip().splitlines() or [""])[-1]


def left(target: Path) -> list[str]:
    """What lies beside the folder: locks and drafts, which should be gone."""
    return [each.name for each in target.parent.iterdir() if each != target]


def counting(file: Path, content: str = "data", seconds: float = 0) -> list[str]:
    """A command that notes that it ran, and fills its folder."""
    return ["sh", "-c", f"echo ran >> {file}; sleep {seconds}; echo {content} > content"]


def git(folder: Path, *arguments: str) -> str:
    """Run git as nobody's user."""
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    done = subprocess.run(["git", *identity, "-C", str(folder), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Where commands note that they ran."""
    return tmp_path / "log"


def test_a_folder_is_filled_once_and_found_again(tmp_path: Path, log: Path) -> None:
    """A pod that is made anew goes on at once; nothing is left beside."""
    target = tmp_path / "cache/set"
    text = order(target, "command", command=counting(log))

    assert [ran(text)[0], ran(text)[0]] == [0, 0]
    assert (target / "content").read_text() == "data\n"
    assert log.read_text() == "ran\n"
    assert left(target) == []


def test_of_several_pods_one_fetches_and_the_others_wait(tmp_path: Path, log: Path) -> None:
    """A cache that many pods share is downloaded once."""
    target = tmp_path / "cache/set"
    pods = [started(order(target, "command", command=counting(log, seconds=2))) for _ in range(3)]

    assert [pod.wait(60) for pod in pods] == [0, 0, 0]
    assert log.read_text() == "ran\n"
    assert left(target) == []
    for pod in pods:
        pod.communicate()


def test_no_part_of_a_folder_is_ever_seen(tmp_path: Path, log: Path) -> None:
    """A pod that is killed while it fetches leaves nothing under the name, and the next takes over its lock."""
    target = tmp_path / "cache/set"
    pod = started(order(target, "command", command=["sh", "-c", "echo half > content; sleep 100"]))
    while not [*target.parent.glob(".set.*.draft/content")]:
        time.sleep(0.05)
    pod.terminate()

    assert pod.wait(30) == 143
    pod.communicate()
    assert [*target.parent.iterdir()] == []
    assert ran(order(target, "command", command=counting(log)))[0] == 0


def test_the_lock_of_a_pod_that_is_gone_is_taken_over(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lost node beats no more; its draft goes as well."""
    target = tmp_path / "cache/set"
    (target.parent / ".set.lock").mkdir(parents=True)
    (target.parent / ".set.lost-1.draft").mkdir()
    monkeypatch.setattr(fetch, "STALE_SECONDS", 1.5)
    monkeypatch.setattr("signal.signal", lambda *_: None)

    assert fetch.main(json.loads(order(target, "command", command=counting(log)))) == 0
    assert left(target) == []


def test_a_failure_is_tried_again_and_told_in_its_own_words(tmp_path: Path, log: Path) -> None:
    """The last line has the cause, which a pod's status shows; a later attempt may succeed."""
    target = tmp_path / "cache/set"
    flaky = [
        "sh",
        "-c",
        f"echo ran >> {log}; test $(wc -l < {log}) = 2 && touch content || (echo '401 Denied' >&2; exit 3)",
    ]

    assert ran(order(target, "command", command=["sh", "-c", "echo '401 Denied' >&2; exit 3"])) == (
        fetch.RETRY,
        "initializer data: command sh -c echo '401 Denied' >&2; exit 3 failed 1 times: 401 Denied.",
    )
    assert ran(order(target, "command", command=flaky, attempts=2))[0] == 0


@pytest.mark.parametrize(
    ("command", "why"),
    [(["no-such-program"], "no-such-program: No such file or directory"), (["true"], "it is empty")],
)
def test_what_the_image_lacks_and_what_fetches_nothing_is_named(tmp_path: Path, command: list[str], why: str) -> None:
    """An empty folder would be found as done for ever."""
    code, said = ran(order(tmp_path / "cache/set", "command", command=command))

    assert (code, said.endswith(f"failed 1 times: {why}.")) == (fetch.RETRY, True), said


def test_what_is_there_is_never_overwritten(tmp_path: Path, log: Path) -> None:
    """Neither files of a person nor what another initializer fetched."""
    target = tmp_path / "cache/set"
    assert ran(order(target, "command", command=counting(log)))[0] == 0

    code, said = ran(order(target, "command", command=counting(log, "other")))

    assert (code, said) == (
        fetch.CONFLICT,
        f"initializer data: {target} holds something else. Choose another path, or delete it.",
    )
    assert (target / "content").read_text() == "data\n"


def test_a_folder_of_the_pods_own_is_filled_in_place(tmp_path: Path, log: Path) -> None:
    """It is a mount, which cannot be renamed."""
    text = order(tmp_path, "command", own=True, command=counting(log))

    assert ran(text)[0] == 0
    assert {"content", fetch.MARKER} <= {each.name for each in tmp_path.iterdir()}


def test_git_has_the_revision_alone(tmp_path: Path) -> None:
    """A tag, a commit, or where HEAD is: without the history."""
    origin = tmp_path / "origin"
    origin.mkdir()
    git(origin, "init", "-q")
    for text in ("one", "two"):
        (origin / "file").write_text(text)
        git(origin, "add", ".")
        git(origin, "commit", "-qm", text)
    git(origin, "tag", "v1", "HEAD~1")
    wanted = {"v1": "one", git(origin, "rev-parse", "HEAD"): "two", None: "two"}

    for number, (revision, text) in enumerate(wanted.items()):
        target = tmp_path / f"cache/{number}"
        assert ran(order(target, "git", source=f"file://{origin}", revision=revision))[0] == 0
        assert (target / "file").read_text() == text
        assert git(target, "rev-list", "--count", "HEAD") == "1"
    code, said = ran(order(tmp_path / "cache/none", "git", source=f"file://{origin}", revision="v9"))
    assert (code, "v9" in said) == (fetch.RETRY, True), said


def hub(folder: Path, *files: str) -> None:
    """A client of a hub whose repository has these files, of which it fetches `model`."""
    (folder / "huggingface_hub.py").write_text(
        "from pathlib import Path\n"
        "from types import SimpleNamespace as Made\n"
        "class HfApi:\n"
        "    def repo_info(self, name, *, revision, repo_type):\n"
        f"        files = [Made(rfilename=each) for each in {files}]\n"
        "        return Made(sha=f'commit of {revision}', siblings=files)\n"
        "def snapshot_download(name, *, revision, repo_type, local_dir):\n"
        "    Path(local_dir, '.cache/huggingface').mkdir(parents=True)\n"
        "    Path(local_dir, 'model').write_text(f'{name} {revision} {repo_type}')\n"
    )


def test_a_repository_of_which_files_are_missing_is_not_there(tmp_path: Path) -> None:
    """The client returns what an earlier attempt has left, without an error, where it reaches no hub."""
    hub(tmp_path, "model", "weights/part-1", "weights/part-2")
    target = tmp_path / "cache/model"
    code, said = ran(order(target, "huggingface", source="org/model"), PYTHONPATH=str(tmp_path))

    assert (code, target.exists()) == (200, False)
    assert said.endswith("failed 1 times: 2 of 3 files are missing.")


def test_the_hub_is_asked_by_its_own_library(tmp_path: Path) -> None:
    """With the folder, the commit of the revision and the kind; its own notes are left out."""
    hub(tmp_path, "model")
    target = tmp_path / "cache/model"
    text = order(target, "huggingface", source="org/model", revision="abc", repository="dataset")

    assert ran(text, PYTHONPATH=str(tmp_path))[0] == 0
    assert (target / "model").read_text() == "org/model commit of abc dataset"
    assert not (target / ".cache/huggingface").exists()


def test_s3_is_read_by_its_own_program(tmp_path: Path) -> None:
    """`aws` where the image has it."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/aws").write_text('#!/bin/sh\necho "$*" > "$4/arguments"\n')
    (tmp_path / "bin/aws").chmod(0o755)
    target = tmp_path / "cache/set"

    code, said = ran(order(target, "s3", source="s3://bucket/set"), PATH=f"{tmp_path}/bin:{os.environ['PATH']}")

    assert code == 0, said
    assert (target / "arguments").read_text().startswith("s3 sync s3://bucket/set ")
