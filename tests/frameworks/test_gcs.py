"""Snapshots in Google Cloud Storage, through fsspec's own file system and an emulator's server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from elastic_infra.training import ElasticState, Restored
from elastic_infra.training.object_store import ObjectStore
from elastic_infra.training.snapshots import Folder, Keep, Writer
from tests.ports import free_port

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning"),  # of aiohttp, about gcsfs
]

LARGE = 60 << 20
"""Bytes: more than one part of gcsfs's uploads."""


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of an empty bucket on a server of this process."""
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


def test_training_goes_on_from_gcs(bucket: str) -> None:
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
    assert folder.part(1, 0) == large
    assert folder.save(2, b"small", Writer()), warnings
    assert store.names() == ["step-000000000002"]
    store._write("step-000000000002/0/rank-00000.bin", b"other length")
    assert folder.steps() == ()
    assert "another length than the manifest says" in warnings[-1]


def test_a_bucket_that_does_not_exist_is_a_warning(bucket: str) -> None:
    """Training goes on; the message names the address."""
    warnings: list[str] = []
    folder = Folder(ObjectStore(bucket.replace("gs://", "gs://nowhere-")), warnings.append)

    assert not folder.save(1, b"part", Writer())
    assert "cannot be saved in gs://nowhere-bucket/job" in warnings[0]
