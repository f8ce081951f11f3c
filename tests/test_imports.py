"""Which package may load which: the launcher runs in images that have neither Pulumi nor pydantic."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import elastic_infra

PACKAGE = Path(elastic_infra.__file__).parent
HEAVY = ("pulumi", "pulumi_kubernetes", "pydantic", "torch", "yaml", "typer", "rich")


def run_python(program: str) -> str:
    """What a program prints in a fresh interpreter that sees neither our environment variables nor this folder."""
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("module", ["elastic_infra", "elastic_infra.launcher", "elastic_infra.launcher.settings"])
def test_importing_loads_nothing_heavy(module: str) -> None:
    """`import elastic_infra` costs about nothing, and the launcher starts without what the infra side needs."""
    loaded = run_python(f"import sys, {module}; print(*sorted(sys.modules.keys() & set({HEAVY!r})))")

    assert loaded == ""


def test_the_launcher_imports_where_nothing_is_installed() -> None:
    """A stock training image has neither Pulumi nor pydantic."""
    blocked = f"sys.modules.update(dict.fromkeys({HEAVY!r}))"
    module = run_python(f"import sys; {blocked}; import elastic_infra.launcher.settings as s; print(s.__name__)")

    assert module == "elastic_infra.launcher.settings"


def test_the_launcher_imports_only_the_standard_library_and_torch() -> None:
    """It travels as a zip: anything absolute must be there in every Python, or be torch."""
    allowed = {
        *sys.stdlib_module_names,
        "torch",
        "elastic_infra_bootstrap",
    }  # copied beside the fork server
    found = {
        (str(file.relative_to(PACKAGE)), name)
        for file in (PACKAGE / "launcher").rglob("*.py")
        for name in absolute_imports(file)
    }

    assert {(file, name) for file, name in found if name not in allowed} == set()


def test_the_library_for_scripts_imports_only_the_standard_library_and_torch() -> None:
    """It is in the same zip; an adapter imports its framework besides, which a script that uses the adapter has."""
    adapters = {"hf": "transformers", "lightning": "lightning", "pytorch_lightning": "pytorch_lightning"}
    allowed = {**adapters, "object_store": "fsspec"}
    found = {
        (file.stem, name)
        for file in (PACKAGE / "training").rglob("*.py")
        for name in absolute_imports(file) - {*sys.stdlib_module_names, "torch", allowed.get(file.stem, "")}
    }

    assert found == set()


def absolute_imports(file: Path) -> set[str]:
    """Top-level packages that a file imports by absolute name, inside functions too."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.split(".")[0])
    return names
