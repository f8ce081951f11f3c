"""Initializers with the real clients: huggingface_hub at a small hub, s3fs at moto's server."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.frameworks.hub import SHA, Hub, serving
from tests.frameworks.test_buckets import s3 as s3  # noqa: PLC0414 - a fixture
from tests.manifests.test_fetch import order, ran

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(300)]
FILES = {
    "config.json": b"{}",
    "weights/part-1.bin": bytes(range(256)) * 400,
    "weights/part-2.bin": b"",
    "README.md": b"x",
}


def filled(folder: Path) -> Mapping[str, bytes]:
    """The files of a folder, without the marker."""
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {name: content for name, content in found.items() if name != ".initialized.json"}


def environ(hub: Hub, home: Path, **more: str) -> dict[str, str]:
    """What the client reads: where the hub is, and a home of its own."""
    own = {"HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_XET": "1", "HF_TOKEN": ""}
    return {**own, "NO_PROXY": "127.0.0.1", "HOME": str(home), "HF_HOME": str(home / "hf"), **more}


@pytest.mark.parametrize("kind", ["model", "dataset"])
@pytest.mark.parametrize("revision", [None, "main", SHA])
def test_a_repository_is_fetched_whole(tmp_path: Path, kind: str, revision: str | None) -> None:
    """Every file of the revision, and nothing of the client's own."""
    target = tmp_path / "cache/set"
    with serving(Hub("org/name", kind, FILES)) as hub:
        text = order(target, "huggingface", source="org/name", revision=revision, repository=kind)
        code, said = ran(text, **environ(hub, tmp_path))

    assert (code, filled(target)) == (0, FILES), said


def test_a_private_repository_needs_its_token(tmp_path: Path) -> None:
    """Without it the last line says what is wrong; with it, from a variable, all is there."""
    target = tmp_path / "cache/set"
    text = order(target, "huggingface", source="org/name", repository="model")
    with serving(Hub("org/name", "model", FILES, token="secret")) as hub:
        refused, said = ran(text, **environ(hub, tmp_path))
        code, _ = ran(text, **environ(hub, tmp_path, HF_TOKEN="secret"))

    assert refused == 200
    assert "huggingface org/name failed" in said
    assert "secret" not in said
    assert (code, filled(target)) == (0, FILES)


def test_a_revision_that_is_not_there_fails(tmp_path: Path) -> None:
    """Nothing is left behind."""
    target = tmp_path / "cache/set"
    with serving(Hub("org/name", "model", FILES)) as hub:
        text = order(target, "huggingface", source="org/name", revision="v9", repository="model")
        code, said = ran(text, **environ(hub, tmp_path))

    assert (code, target.exists()) == (200, False), said


def test_a_hub_that_goes_away_in_between_leaves_no_half_a_repository(tmp_path: Path) -> None:
    """A client of 0.30 calls a folder with some of the files good where it reaches no hub: the initializer does not."""
    target = tmp_path / "cache/set"
    many = {f"part-{number}.bin": b"x" * 1000 for number in range(40)}
    text = order(target, "huggingface", source="org/name", repository="model", attempts=2)
    with serving(Hub("org/name", "model", many)) as hub:
        hub.breaks_after = 10
        code, said = ran(text, **environ(hub, tmp_path, HF_HUB_DOWNLOAD_TIMEOUT="1", HF_HUB_ETAG_TIMEOUT="1"))

    assert (code, target.exists()) == (200, False), said


def test_a_prefix_of_a_bucket_is_fetched_whole(tmp_path: Path, s3: str) -> None:
    """Nested objects as well, below the folder; the neighbour with a longer name is not."""
    import s3fs

    files = s3fs.S3FileSystem()
    for name, content in FILES.items():
        files.pipe(f"{s3}/set/{name}", content)
    files.pipe(f"{s3}/set-2/other", b"other")
    target = tmp_path / "cache/set"
    code, said = ran(order(target, "s3", source=f"{s3}/set"), **os.environ)

    assert (code, filled(target)) == (0, FILES), said


def test_a_prefix_without_objects_fails(tmp_path: Path, s3: str) -> None:
    """A mistyped source is no empty data set."""
    target = tmp_path / "cache/set"
    code, said = ran(order(target, "s3", source=f"{s3}/none"), **os.environ)

    assert (code, target.exists()) == (200, False)
    assert "s3 s3://" in said
