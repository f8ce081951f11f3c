"""Local code in a config: what is read of a folder, and what is refused with a reason."""

from __future__ import annotations

import base64
import os
from pathlib import Path, PurePosixPath

import pytest

from elastic_infra import ConfigError, JobConfig
from elastic_infra.config import workdir, workdir_files
from elastic_infra.config.load import load
from elastic_infra.config.workdir_files import with_workdir
from tests import jobs


def written(folder: Path, *paths: str, content: str = "pass\n") -> Path:
    """The folder with these files."""
    for path in paths:
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    return folder


def read(folder: Path, **fields: object) -> list[str]:
    """Paths that a job beside `src` gets."""
    config = with_workdir(jobs.job(workdir={"path": "src", **fields}), folder)
    assert config.workdir is not None
    return [*(config.workdir.files or {})]


def refusal(folder: Path, **fields: object) -> str:
    """Why the folder is refused."""
    with pytest.raises(ConfigError) as refused:
        read(folder, **fields)
    return str(refused.value)


def test_the_path_starts_from_the_job_file(tmp_path: Path) -> None:
    """A job file that is read from anywhere declares the same job."""
    written(tmp_path / "src", "train.py", "lib/a.py")
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/llm.yaml").write_text("image: i\nscript: train.py\nworkdir: ../src\n")

    found = load(tmp_path / "jobs/llm.yaml").workdir

    assert found is not None
    assert found.files == {"lib/a.py": b"pass\n", "train.py": b"pass\n"}


def test_caches_history_and_job_files_are_left_out(tmp_path: Path) -> None:
    """Each would restart the job with every run of a tool, or with every edit of the job itself."""
    written(tmp_path / "src", "train.py", "a/b.py", ".git/HEAD", "a/__pycache__/b.pyc", ".venv/bin/python", "job.yaml")
    written(tmp_path / "src", "Pulumi.dev.yaml", "llm.job.yaml", "a/config.yaml")

    assert read(tmp_path) == ["a/b.py", "a/config.yaml", "train.py"]


@pytest.mark.parametrize(
    ("pattern", "left"),
    [
        ("*.csv", ["data/x.bin", "train.py"]),
        ("data", ["train.py", "x.csv"]),
        ("data/", ["train.py", "x.csv"]),
        ("data/*.csv", ["data/x.bin", "train.py", "x.csv"]),
        ("/data/*", ["train.py", "x.csv"]),
        ("*/x.bin", ["data/x.csv", "train.py", "x.csv"]),
    ],
)
def test_patterns_go_by_name_or_by_path(tmp_path: Path, pattern: str, left: list[str]) -> None:
    """Without a slash at any depth, with one from the folder."""
    written(tmp_path / "src", "train.py", "x.csv", "data/x.csv", "data/x.bin")

    assert read(tmp_path, exclude=[pattern]) == left


@pytest.mark.parametrize(
    "path",
    [".env", "a/.env.production", "server.pem", "id_rsa", "a/id_ed25519", ".ssh/config", "credentials.json", "a.key"],
)
def test_a_file_that_looks_like_a_secret_is_refused_with_the_way_out(tmp_path: Path, path: str) -> None:
    """A ConfigMap is no place for one; excluded it is no matter."""
    written(tmp_path / "src", "train.py", path)

    reason = refusal(tmp_path)

    assert f"workdir.files[{path!r}]" in reason
    assert "looks like a secret" in reason
    assert "workdir.exclude" in reason
    assert read(tmp_path, exclude=[path]) == ["train.py"]


def test_a_private_key_under_any_name_is_refused(tmp_path: Path) -> None:
    """The name says nothing there, the content does, and the message tells nothing of it."""
    key = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\n"
    written(tmp_path / "src", "train.py")
    written(tmp_path / "src", "notes.txt", content=key)

    reason = refusal(tmp_path)

    assert "notes.txt" in reason
    assert "b3BlbnNz" not in reason


def test_a_tokenizer_is_no_token(tmp_path: Path) -> None:
    """Names of code that only sound like a secret pass."""
    written(tmp_path / "src", "tokenizer.py", "id_rsa.pub", "secrets_test.py", "keys.py", "env.py")

    assert len(read(tmp_path)) == 5


def test_a_link_inside_counts_as_its_file_and_one_that_leads_out_is_refused(tmp_path: Path) -> None:
    """No file of the machine gets into the cluster by a link."""
    written(tmp_path, "src/train.py", "outside.py")
    (tmp_path / "src/same.py").symlink_to("train.py")
    assert read(tmp_path) == ["same.py", "train.py"]

    (tmp_path / "src/other.py").symlink_to("../outside.py")
    assert "workdir.files['other.py']: is a link out of the folder" in refusal(tmp_path)


def test_a_link_to_a_folder_is_refused(tmp_path: Path) -> None:
    """It may lead round in a circle."""
    written(tmp_path, "src/train.py", "src/a/b.py")
    (tmp_path / "src/again").symlink_to("a")

    assert "is a link to a folder" in refusal(tmp_path)
    assert read(tmp_path, exclude=["again"]) == ["a/b.py", "train.py"]


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    """Reading a pipe would never end."""
    written(tmp_path, "src/train.py")
    os.mkfifo(tmp_path / "src/pipe")

    assert "workdir.files['pipe']: is no plain file" in refusal(tmp_path)


def test_a_folder_that_is_missing_or_empty_is_refused(tmp_path: Path) -> None:
    """The message names the folder that was looked at."""
    assert f"is no folder: {tmp_path}/src" in refusal(tmp_path)

    (tmp_path / "src").mkdir()
    assert "holds no file" in refusal(tmp_path)


def test_the_bound_holds_before_anything_reaches_a_cluster(tmp_path: Path) -> None:
    """Just within it is taken; beyond it the largest files are named."""
    room = workdir.MAX_ARCHIVE_BYTES - 8192
    written(tmp_path, "src/train.py")
    (tmp_path / "src/weights.bin").write_bytes(os.urandom(room))
    assert read(tmp_path) == ["train.py", "weights.bin"]

    (tmp_path / "src/more.bin").write_bytes(os.urandom(64 * 1024))
    reason = refusal(tmp_path)
    assert "a ConfigMap has room for 960 KiB" in reason
    assert "The largest: weights.bin (952 KiB), more.bin (64 KiB), train.py (5 bytes)." in reason


def test_a_folder_with_data_is_refused_before_it_is_read(tmp_path: Path) -> None:
    """A sparse file of a terabyte costs nothing but its entry."""
    written(tmp_path, "src/train.py")
    with (tmp_path / "src/data.bin").open("wb") as file:
        file.truncate(2**40)

    assert "more than code has" in refusal(tmp_path)
    assert "data.bin (1.05e+06 MiB)" in refusal(tmp_path)


def test_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The walk ends there, so that a dataset of small files is not walked to its end."""
    monkeypatch.setattr(workdir_files, "MAX_FILES", 10)
    written(tmp_path / "src", *(f"{number}.txt" for number in range(11)))

    assert "has more than 10 files or 32 MiB" in refusal(tmp_path)


@pytest.mark.parametrize("path", ["/etc/passwd", "../a", "a/../b", "a//b", "", ".", "a\nb", "a" * 1025])
def test_files_have_plain_relative_names(path: str) -> None:
    """What is given in the config itself is held to what a folder can have."""
    with pytest.raises(ConfigError, match="relative path"):
        jobs.job(workdir={"files": {path: ""}})


def test_content_that_is_no_base64_is_refused_without_being_shown() -> None:
    """A program that forgets to encode learns why."""
    with pytest.raises(ConfigError, match="base64") as refused:
        jobs.job(workdir={"files": {"a.py": "import os!"}})

    assert "import os" not in str(refused.value)


def test_files_of_the_config_are_not_read_again(tmp_path: Path) -> None:
    """They win over the path, which is then only a name."""
    given = {"path": "nowhere", "files": {"a.py": base64.b64encode(b"1").decode()}}

    assert read(tmp_path, **given) == ["a.py"]


def test_a_workdir_without_a_source_is_refused() -> None:
    """The remedy is a path."""
    with pytest.raises(ConfigError, match="workdir: needs a path"):
        jobs.job(workdir={})


def test_the_mount_has_its_own_place_and_the_volume_its_own_name() -> None:
    """Neither the launcher's folder nor a user's volume is hidden by it."""
    files = {"files": {"a.py": "MQ=="}}
    with pytest.raises(ConfigError, match=r"workdir.mount_path: \(/home/elastic\) is taken"):
        jobs.job(workdir={**files, "mount_path": "/home/elastic"})
    with pytest.raises(ConfigError, match=r"storage.volumes\[0\].name: \(workdir\) is taken"):
        jobs.job(workdir=files, storage={"volumes": [{"name": "workdir", "empty_dir": "1Gi"}]})
    assert jobs.job(storage={"volumes": [{"name": "workdir", "empty_dir": "1Gi"}]}).workdir is None


def test_the_config_does_not_show_the_code() -> None:
    """A log of a config stays readable."""
    config = jobs.job(workdir={"files": {"a.py": base64.b64encode(b"secret sauce").decode()}})

    assert "secret sauce" not in repr(config)
    assert JobConfig.from_mapping(config.model_dump()) == config


def test_patterns_of_what_is_left_out_are_by_name() -> None:
    """So they hold at any depth."""
    assert workdir.is_left_out(PurePosixPath("a/b/__pycache__"), ())
    assert not any("/" in pattern for pattern in workdir.LEFT_OUT)
