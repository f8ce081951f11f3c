"""What the adapters of frameworks share."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
import torch

from elastic_infra.training.adapted import damage_of_torch_file, needs


@pytest.mark.parametrize(
    ("adapter", "package"),
    [("hf", "transformers"), ("lightning", "lightning"), ("pytorch_lightning", "pytorch_lightning")],
)
def test_a_package_that_is_not_installed_is_named(adapter: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing the adapter says what to install; nothing else of the library needs the package."""
    name = f"elastic_infra.training.{adapter}"
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, name, raising=False)

    with pytest.raises(ModuleNotFoundError, match=f"^{name} needs .*Install .* in the image"):
        importlib.import_module(name)


def test_a_package_that_lacks_another_one_says_so_itself() -> None:
    """What an installed package cannot import is not taken for a package that is missing."""
    with pytest.raises(ModuleNotFoundError, match="No module named 'yonder'"), needs("torch", "adapter"):
        importlib.import_module("yonder")


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "pickle"])
def test_a_whole_file_of_torch_is_whole(zipped: bool, tmp_path: Path) -> None:  # noqa: FBT001
    """In both of torch's forms."""
    path = tmp_path / "optimizer.pt"
    torch.save({"step": 1, "weights": torch.zeros(3)}, path, _use_new_zipfile_serialization=zipped)

    assert damage_of_torch_file(path) is None


def test_a_file_of_torch_that_is_cut_off_anywhere_is_damaged(tmp_path: Path) -> None:
    """As its writer leaves it when it is killed, and as a volume leaves it that had no time to write."""
    path = tmp_path / "optimizer.pt"
    torch.save({"step": 1, "weights": torch.zeros(3)}, path)
    whole = path.read_bytes()

    for length in range(len(whole) - 1, -1, -1):
        with path.open("r+b") as file:
            file.truncate(length)
        assert damage_of_torch_file(path) == "optimizer.pt ends too early"
    path.write_bytes(bytes(len(whole)))
    assert damage_of_torch_file(path) == "optimizer.pt begins with zeros"
