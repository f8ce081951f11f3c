"""What a program imports is read from its source, and nothing of it runs."""

from __future__ import annotations

import pathlib
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_infra.launcher.command_line.plan import Entrypoint
from elastic_infra.launcher.workers import import_scan


def declared(folder: pathlib.Path, source: str | bytes, **others: str) -> tuple[str, ...]:
    """The names that a script with files beside it imports."""
    return program(folder, source, **others).names


def program(folder: pathlib.Path, source: str | bytes, **others: str) -> import_scan.Declared:
    """What is known of a script with files beside it."""
    for name, text in others.items():
        (folder / f"{name}.py").write_text(text)
    script = folder / "train.py"
    script.write_bytes(source if isinstance(source, bytes) else source.encode())
    return import_scan.declared(Entrypoint("script", str(script)), "/nowhere")


def test_what_stands_at_the_top_counts(tmp_path: pathlib.Path) -> None:
    """Both forms, aliases and dotted names, in their order and once; the standard library needs no fork server."""
    source = (
        "import os, torch.distributed as dist\nfrom sklearn.datasets import load_digits\nimport numpy\nimport numpy\n"
    )

    assert declared(tmp_path, source) == ("torch.distributed", "sklearn.datasets", "numpy")


def test_what_may_not_run_does_not_count(tmp_path: pathlib.Path) -> None:
    """Neither functions, nor conditions, nor what is tried, nor a package's own relative names."""
    source = (
        "def f():\n    import torch\nif f:\n    import numpy\ntry:\n    import apex\nexcept ImportError:\n    pass\n"
    )

    assert declared(tmp_path, f"{source}from . import near\nfrom .near import thing\n") == ()


@pytest.mark.parametrize(
    "statement",
    ["os.environ['A'] = 'b'", "f()", "if os:\n    pass", "try:\n    import apex\nexcept ImportError:\n    pass"],
    ids=["variable", "call", "condition", "attempt"],
)
def test_nothing_counts_after_another_statement(tmp_path: pathlib.Path, statement: str) -> None:
    """What an import reads may have been changed by then, also by a file of the program's own."""
    before = f'"""Doc."""\nfrom __future__ import annotations\nimport os, numpy\n{statement}\n'

    assert declared(tmp_path, f"{before}import torch\n") == ("numpy",)
    assert declared(tmp_path, "import changes\nimport torch\n", changes=before) == ("numpy",)


HARMLESS = """
import logging, torch
from dataclasses import dataclass
LOG = logging.getLogger(__name__)
RATES = [0.1] * len("ab")
if __name__ == "__main__":
    run()
@dataclass
class Config:
    rate: float = 0.1
    @torch.no_grad()
    def run(self, rate=float("1")):
        anything()
"""


def test_definitions_of_an_own_file_change_nothing(tmp_path: pathlib.Path) -> None:
    """The imports after such a file still come before anything else; after a call of unknown effect they do not."""
    assert declared(tmp_path, "import model\nimport numpy\n", model=HARMLESS) == ("torch", "numpy")
    assert declared(tmp_path, "import model\nimport numpy\n", model=f"{HARMLESS}\nsetup()\n") == ("torch",)


def test_packages_of_the_program_are_followed_as_they_run(tmp_path: pathlib.Path) -> None:
    """First the package, then its module; relative names are found."""
    package = tmp_path / "parts"
    package.mkdir()
    (package / "__init__.py").write_text("import numpy\nfrom . import near\n")
    (package / "near.py").write_text("import sklearn\n")
    (package / "model.py").write_text("from .near import thing\nimport torch\n")

    assert declared(tmp_path, "from parts.model import Net\nimport scipy\n") == ("numpy", "sklearn", "torch", "scipy")


def test_code_of_the_users_elsewhere_is_followed(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies on PYTHONPATH, or is installed from its source tree, is the program's own."""
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "mine").mkdir(parents=True)
    (elsewhere / "mine" / "__init__.py").write_text("from .near import thing\n")
    (elsewhere / "mine" / "near.py").write_text("import numpy\n")
    (elsewhere / "changes.py").write_text("import os\nos.environ['A'] = 'b'\n")
    monkeypatch.syspath_prepend(str(elsewhere))

    assert declared(tmp_path, "import mine\nimport torch\n") == ("numpy", "torch")
    assert declared(tmp_path, "import numpy\nimport changes\nimport torch\n") == ("numpy",)


def test_own_files_are_followed_and_not_named(tmp_path: pathlib.Path) -> None:
    """A module beside the script is read in its place, once, even where two import each other."""
    found = declared(
        tmp_path, "import model\nimport numpy\n", model="import data\nimport torch\n", data="import model\n"
    )

    assert found == ("torch", "numpy")


@pytest.mark.parametrize(
    ("path", "kind", "target"),
    [
        ("train.py", "module", "train"),
        ("package/train.py", "module", "package.train"),
        ("package/__main__.py", "module", "package"),
    ],
)
def test_a_module_is_found_as_python_finds_it(
    tmp_path: pathlib.Path, path: str, kind: Literal["module"], target: str
) -> None:
    """``-m`` looks in the working folder first; of a package it runs ``__main__``."""
    file = tmp_path / path
    file.parent.mkdir(exist_ok=True)
    (file.parent / "__init__.py").touch()
    file.write_text("import torch\n")

    assert import_scan.declared(Entrypoint(kind, target), str(tmp_path)).names == ("torch",)


@pytest.mark.parametrize("source", ["def (", b"\x00", b"\xff\xfe\xfa"], ids=["syntax", "null", "encoding"])
def test_what_cannot_be_parsed_declares_nothing(tmp_path: pathlib.Path, source: str | bytes) -> None:
    """The worker itself says what is wrong."""
    assert declared(tmp_path, source) == ()


@pytest.mark.parametrize("kind", ["script", "module", "run_path", "command"])
def test_what_is_not_there_declares_nothing(tmp_path: pathlib.Path, kind: Literal["script", "module"]) -> None:
    """A missing file is the launcher's to report, elsewhere."""
    assert import_scan.declared(Entrypoint(kind, "missing"), str(tmp_path)) == import_scan.Declared()


@pytest.mark.parametrize(
    ("source", "needed"),
    [
        ("import torch, numpy\nimport torch.distributed as dist\ntorch.ones(1)\n", False),
        ("import torch\ndef f():\n    return torch.optim.SGD\n", True),
        ("import torch\nfrom torch import nn\n", True),
        ("import torch\nrun = torch.compile(print)\n", True),
        ("import torch\nimport lightning\n", True),
        ("def main():\n    import torch\n", True),
        ("import torch, model\n", True),
        ("import torch, os\nos.environ['A'] = 'b'\ntorch.optim\n", False),
        ("import torch, os\nos.environ |= {'A': 'b'}\ntorch.optim\n", False),
        ("import torch\nfrom dotenv import load_dotenv\nload_dotenv()\ntorch.optim\n", False),
        ("import torch, warnings\nwarnings.simplefilter('error')\ntorch.optim\n", False),
        ("import torch, sys\nsys.path.insert(0, 'lib')\ntorch.optim\n", False),
        ("import torch, sys, os\nprint(sys.path, os.environ['A'])\ntorch.optim\n", True),
    ],
    ids=[
        "tensors only",
        "optimizer",
        "network",
        "compiled",
        "another package",
        "not seen",
        "own file",
        "variable first",
        "variables first",
        "file of variables first",
        "filter first",
        "path first",
        "only read",
    ],
)
def test_dynamo_is_left_out_only_where_nothing_needs_it(tmp_path: pathlib.Path, source: str, needed: bool) -> None:
    """Torch loads it with the first optimizer, nearly as long as itself; in doubt it is loaded before the workers."""
    found = program(tmp_path, source, model="from torch import nn\n")

    assert found.needs_dynamo == needed
    assert (import_scan.DYNAMO in found.modules) == needed


@given(source=st.binary(max_size=200))
def test_any_bytes_are_answered(tmp_path_factory: pytest.TempPathFactory, source: bytes) -> None:
    """No source makes it raise."""
    found = declared(tmp_path_factory.mktemp("any"), source)

    assert all(found)
