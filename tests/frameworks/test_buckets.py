"""Snapshots in S3 and in Google Cloud Storage, through fsspec's own file systems and emulators' servers."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
import torch

from elastic_infra.training import ElasticState, Restored
from elastic_infra.training.object_store import ObjectStore
from elastic_infra.training.snapshots import Folder, Keep, Writer
from tests.ports import free_port
from tests.training.parts import content

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(300)]

LARGE = 60 << 20
"""Bytes: more than one part of an upload by s3fs and by gcsfs."""


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of an empty bucket on a server of this process."""
    import s3fs
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    variables = {"AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_DEFAULT_REGION": "us-east-1"}
    for name, value in {**variables, "AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "key"}.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    name = uuid.uuid4().hex  # moto's buckets are the process's, and not the server's
    s3fs.S3FileSystem().mkdir(name)
    yield f"s3://{name}/job"
    s3fs.S3FileSystem.clear_instance_cache()
    server.stop()


@pytest.fixture
def gcs(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of an empty bucket on an emulator of Google Cloud Storage."""
    import gcsfs
    from gcp_storage_emulator.server import create_server

    port = free_port()
    server = create_server("127.0.0.1", port, in_memory=True, default_bucket="bucket")
    server.start()
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{port}")
    gcsfs.GCSFileSystem.clear_instance_cache()
    yield "gs://bucket/job"
    gcsfs.GCSFileSystem.clear_instance_cache()
    server.stop()


LARGE_BODY = pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
"""Of aiohttp, about gcsfs."""


@pytest.fixture(params=["s3", pytest.param("gcs", marks=LARGE_BODY)])
def bucket(request: pytest.FixtureRequest) -> str:
    """The URL of an empty bucket in either store, one after the other."""
    return str(request.getfixturevalue(request.param))


def test_training_goes_on_from_a_bucket(bucket: str) -> None:
    """The state of a job whose nodes are all gone."""
    model, other = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    state = ElasticState(bucket, model=model)
    state.step = 7
    state.snapshot(durable=True)
    state.wait()

    assert ElasticState(bucket, model=other).restore() == Restored(7, "disk")
    assert torch.equal(other.weight, model.weight)


def test_large_parts_are_whole_and_old_snapshots_are_deleted(bucket: str) -> None:
    """An upload in several parts, a damaged object, and what is left in the end."""
    warnings: list[str] = []
    store = ObjectStore(bucket)
    folder = Folder(store, warnings.append, Keep(last=1))
    large = bytes(range(256)) * (LARGE // 256)

    assert folder.save(1, memoryview(large), Writer()), warnings
    assert content(folder, 1) == large
    assert folder.save(2, b"small", Writer()), warnings
    assert store.names() == ["step-000000000002"]
    store._write("step-000000000002/0/rank-00000.bin", b"other length")
    assert folder.steps() == ()
    assert "another length than the manifest says" in warnings[-1]


def test_a_bucket_that_does_not_exist_is_a_warning(bucket: str) -> None:
    """Training goes on; the message names the address."""
    warnings: list[str] = []
    nowhere = bucket.replace("://", "://nowhere-")
    folder = Folder(ObjectStore(nowhere), warnings.append)

    assert not folder.save(1, b"part", Writer())
    assert f"cannot be saved in {nowhere}" in warnings[0]
    assert bucket.startswith("gs:") or "The specified bucket does not exist" in warnings[0]


def test_a_bucket_without_rights_is_named_with_what_to_do(s3: str) -> None:
    """The server refuses this key: training goes on, and the warning has its words and no secret."""
    from moto.core import set_initial_no_auth_action_count

    warnings: list[str] = []

    @set_initial_no_auth_action_count(0)
    def save() -> bool:
        return Folder(ObjectStore(s3), warnings.append).save(1, b"part", Writer())

    assert not save()
    assert f"cannot be saved in {s3}" in warnings[0]
    assert "Give the job's account the right to write there." in warnings[0]
