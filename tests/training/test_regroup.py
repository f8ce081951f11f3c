"""A group that gets other members in place, and the reasons why one does not."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch.torch_version import TorchVersion

from elastic_infra.training import regroup
from elastic_infra.training.communicator import Communicator
from elastic_infra.training.connections import Connections
from tests.launcher.launched import ROOT

can_reconfigure = pytest.mark.skipif(not hasattr(dist, "_reconfigure"), reason="this torch cannot reconfigure a group")
has_nccl2 = pytest.mark.skipif(not hasattr(dist, "ProcessGroupNCCL2"), reason="this torch has no newer NCCL backend")


@pytest.fixture(autouse=True)
def _no_group_left() -> Iterator[None]:
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


def test_gloo_is_made_anew_unless_the_script_asks_for_more() -> None:
    """What every torch can is the default."""
    assert regroup.obstacle("gloo", experimental=False) == ""
    assert isinstance(regroup.way_of("gloo", None, experimental=False), regroup.Anew)
    assert isinstance(regroup.freeing_of("gloo"), Connections)


@pytest.mark.parametrize("backend", ["nccl", "cpu:gloo,cuda:nccl"])
def test_another_backend_has_to_be_asked_for(backend: str) -> None:
    """Nothing was proved on a GPU, so that workers restart by default."""
    assert regroup.obstacle(backend, experimental=False) == (
        f"The backend {backend} cannot be rebuilt in place without experimental=True."
    )


def test_an_older_torch_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is made there."""
    monkeypatch.delattr(dist, "_reconfigure", raising=False)

    said = regroup.obstacle("nccl", experimental=True)
    assert said == f"Torch {torch.__version__} cannot reconfigure a process group, which torch 2.14 and later can."


@can_reconfigure
@has_nccl2
@pytest.mark.parametrize("backend", ["gloo", "nccl", "nccl2"])
def test_a_backend_that_can_has_no_obstacle(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what this torch was built with; no group is made to find out."""
    monkeypatch.setenv("TORCH_DIST_USE_NCCL2", "1")  # torch 2.14 makes its older NCCL backend without it
    assert regroup.obstacle(backend, experimental=True) == ""
    assert not dist.is_initialized()


@can_reconfigure
@pytest.mark.parametrize(
    ("backend", "lacks"),
    [
        ("nccl-legacy", "only gloo and nccl can be, each alone"),
        ("cpu:gloo,cuda:nccl", "only gloo and nccl can be, each alone"),
        ("nccl", "it is the older ProcessGroupNCCL, which ends the process"),
    ],
)
def test_a_backend_that_cannot_is_named(monkeypatch: pytest.MonkeyPatch, backend: str, lacks: str) -> None:
    """The older NCCL backend, by its own name or by the job's choice, and several backends in one group."""
    monkeypatch.setenv("TORCH_DIST_USE_NCCL2", "0")

    said = regroup.obstacle(backend, experimental=True)
    assert said == f"Torch {torch.__version__} cannot reconfigure the backend {backend}: {lacks}."


@can_reconfigure
@has_nccl2
@pytest.mark.parametrize(
    ("version", "chosen", "is_older"),
    [("2.14.1", "", True), ("2.14.1", "1", False), ("2.15.0", "", False), ("2.15.0", "0", True)],
)
def test_the_older_nccl_is_named_where_torch_would_make_it(
    monkeypatch: pytest.MonkeyPatch, version: str, chosen: str, *, is_older: bool
) -> None:
    """Torch 2.14 has both and makes the older one, unless the job chooses; later ones make the newer one."""
    monkeypatch.setattr(torch, "__version__", TorchVersion(version))
    monkeypatch.setenv("TORCH_DIST_USE_NCCL2", chosen)

    assert ("it is the older ProcessGroupNCCL" in regroup.obstacle("nccl", experimental=True)) == is_older


@can_reconfigure
@has_nccl2
def test_an_nccl_that_cannot_revoke_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch can only abort its communicators."""
    monkeypatch.setenv("TORCH_DIST_USE_NCCL2", "1")
    monkeypatch.setattr(torch.cuda.nccl, "version", lambda: (2, 27, 5))

    assert regroup.obstacle("nccl", experimental=True).endswith("it needs NVIDIA's NCCL 2.28, and finds 2.27.5.")


def test_a_group_that_broke_while_it_was_made_leaves_no_trace_in_the_next_ones_name() -> None:
    """Torch counts it. Members that were in it and those that were not would wait under two names for each other."""
    way, names = regroup.Anew("gloo", None), []
    way.begin()
    for generation, is_lost in ((1, False), (2, True), (3, False)):
        way.leave()
        store = dist.HashStore()
        with pytest.raises(dist.DistStoreError) if is_lost else contextlib.nullcontext():
            way.enter(Lost() if is_lost else store, generation, ["here"], 0)
            names.append(dist.distributed_c10d._world.pg_names[dist.group.WORLD])
    assert names == ["0", "0"]


class Lost(dist.Store):  # type: ignore[misc]  # torch's types are not read
    """A store of which nothing is heard any more."""

    def set(self, key: str, value: str) -> None:
        raise dist.DistStoreError(key, value)


@can_reconfigure
def test_a_reconfigured_group_stays_the_same_object() -> None:
    """Ranks, names of further groups and the store are those of the new generation; the timeout is the script's."""
    way = regroup.Reconfigured("gloo", timedelta(seconds=77))
    way.begin()
    group = dist.group.WORLD
    names = []
    for generation in (3, 4):
        store = dist.HashStore()
        way.leave()
        way.enter(store, generation, [way.handle()], 0)
        names.append(dist.distributed_c10d._world.pg_names[further := dist.new_group(backend="gloo")])
        dist.destroy_process_group(further)

        assert store.num_keys() > 0, "the members meet in the generation's store"
        assert dist.group.WORLD is group
        assert dist.get_process_group_ranks(group) == [0]
    assert names == ["1", "1"]
    assert group._get_backend(torch.device("cpu")).options._timeout == timedelta(seconds=77)


class Aborted:
    """A group that counts how often it was aborted."""

    def __init__(self, fault: Exception | None = None) -> None:
        self.times = 0
        self._fault = fault

    def abort(self) -> None:
        self.times += 1
        if self._fault is not None:
            raise self._fault


def test_a_communicator_is_revoked_only_while_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, not before the first one, nor while another one is made, when torch replaces what would be aborted."""
    group, communicator = Aborted(), Communicator()
    monkeypatch.setattr(dist, "group", SimpleNamespace(WORLD=group))
    cut = [communicator.cut()]
    with communicator.making(2):
        cut.append(communicator.cut())
    with communicator.settling():
        cut.append(communicator.cut())
    cut.append(communicator.cut())
    with pytest.raises(OSError, match="lost"), communicator.making(2):
        raise OSError(7, "lost")
    cut.append(communicator.cut())

    assert cut == [0, 0, 1, 0, 0]
    assert group.times == 1


def test_a_communicator_that_cannot_be_revoked_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The thread that hears the agent lives on; the agent ends a worker that does not park."""
    communicator = Communicator()
    monkeypatch.setattr(dist, "group", SimpleNamespace(WORLD=Aborted(RuntimeError("no device"))))
    with communicator.making(2):
        pass

    assert communicator.cut() == 1
    assert capsys.readouterr().err == (
        "elastic_infra.training: NCCL's communicator cannot be revoked: no device. The launcher replaces this worker.\n"
    )


REVOKED = """
import os, torch.distributed as dist
from elastic_infra.training.communicator import Communicator
dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1, enable_reconfigure=True)
communicator = Communicator()
with communicator.making(2):
    pass
print(dist._supports_reconfigure(), communicator.has_failed, communicator.cut(), communicator.has_failed, flush=True)
os._exit(0)  # without a device torch ends the process as the group is destroyed
"""


@can_reconfigure
@has_nccl2
def test_a_revoked_communicator_has_failed() -> None:
    """Torch's own NCCL backend says so, also where there is no device."""
    # Torch's recorder would write a file for an aborted group.
    environ = {**os.environ, "TORCH_FR_BUFFER_SIZE": "0", "TORCH_DIST_USE_NCCL2": "1"}
    done = subprocess.run(
        [sys.executable, "-c", REVOKED], env=environ, cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert done.stdout.split() == ["True", "False", "1", "True"], done.stderr
