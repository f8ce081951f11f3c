"""Reading the Go module files: pins, commands, where a build belongs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tools import modules

GO_MOD = """
module elastic-infra.test/tools/example

go 1.24.0

require example.com/big/tool/v2 v2.3.4

require (
	example.com/big v1.0.0 // indirect
	example.com/other v0.0.0-20240101000000-abcdefabcdef // indirect
)

replace example.com/other => example.com/fork v0.1.0
"""


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """A tool's folder with all its files."""
    folder = tmp_path / "example"
    folder.mkdir()
    (folder / "go.mod").write_text(GO_MOD)
    (folder / "go.sum").write_text("")
    (folder / "tools.go").write_text('package tools\n\nimport (\n\t_ "example.com/big/tool/v2/cmd/first"\n)\n')
    return folder


def test_pins_reads_both_forms_of_require() -> None:
    """Single requirements and blocks are read; replacements are no requirements."""
    assert modules.pins(GO_MOD) == {
        "example.com/big/tool/v2": "v2.3.4",
        "example.com/big": "v1.0.0",
        "example.com/other": "v0.0.0-20240101000000-abcdefabcdef",
    }


def test_a_tools_version_is_that_of_the_nearest_module(example: Path) -> None:
    """Where two required modules could hold a command, the longer path does, as Go resolves it."""
    tool = modules.load(example)

    assert (tool.name, tool.version, tool.programs) == ("example", "2.3.4", ("first",))


def test_a_module_without_commands_is_pinned_and_never_built(example: Path, tmp_path: Path) -> None:
    """Of some only files are read: such a tool has the version of what it requires, and no program to wait for."""
    (example / "go.mod").write_text("module elastic-infra.test/tools/example\n\nrequire example.com/big v1.0.0\n")
    (example / "tools.go").write_text("package tools\n")
    tool = modules.load(example)

    assert (tool.version, tool.programs) == ("1.0.0", ())
    assert modules.is_built(tool, tmp_path / "absent")


def test_every_tool_of_ours_loads() -> None:
    """Each folder with a go.mod has a version; Kubernetes, the longest to build, comes first."""
    tools = modules.load_all()

    assert next(iter(tools)) == "kubernetes"
    assert tools["kubernetes"].programs == (
        *("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kubelet"),
    )
    assert tools["pulumi-language-python"].programs == ("pulumi-language-python", "pulumi-language-python-exec")
    assert all(tool.version[0].isdigit() for tool in tools.values())


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, "/home/ann/.cache/elastic-infra/tools"),
        ({"XDG_CACHE_HOME": "/var/cache/ann"}, "/var/cache/ann/elastic-infra/tools"),
        ({"XDG_CACHE_HOME": ""}, "/home/ann/.cache/elastic-infra/tools"),
        ({"XDG_CACHE_HOME": "/var/cache/ann", "ELASTIC_INFRA_CACHE": "/big/disk"}, "/big/disk/tools"),
    ],
)
def test_the_cache_folder_can_be_chosen(environ: dict[str, str], expected: str) -> None:
    """Our own variable wins over the user's cache folder, which wins over the default."""
    assert modules.cache_folder(environ, Path("/home/ann")) == Path(expected)


def test_linker_flags_stamp_the_pinned_version() -> None:
    """Kubernetes built by hand says its real version, in full and in parts."""
    flags = modules.linker_flags(modules.Tool(Path("kubernetes"), ("k8s.io/kubernetes/cmd/kubectl",), "1.34.1"))

    assert flags.startswith("-s -w -X ")
    assert "k8s.io/component-base/version.gitVersion=v1.34.1" in flags
    assert "k8s.io/component-base/version.gitMinor=34" in flags


@pytest.mark.parametrize("changed", ["go.mod", "go.sum", "tools.go"])
def test_any_changed_module_file_makes_a_new_build(example: Path, changed: str) -> None:
    """The cache can never give a program that differs from its pins."""
    before = modules.checksum(modules.load(example), "go1.26.8")
    with (example / changed).open("a") as file:
        file.write("\n// changed\n")

    assert modules.checksum(modules.load(example), "go1.26.8") != before


def test_another_go_makes_a_new_build(example: Path) -> None:
    """Programs of two compilers do not mix."""
    tool = modules.load(example)

    assert modules.checksum(tool, "go1.26.8") != modules.checksum(tool, "go1.27.0")


def test_a_folder_that_lacks_a_program_is_not_built(example: Path, tmp_path: Path) -> None:
    """Only a whole tool counts as built."""
    tool = modules.load(example)
    folder = modules.built_folder(tool, tmp_path / "cache", "go1.26.8")
    folder.mkdir(parents=True)

    assert not modules.is_built(tool, folder)
    shutil.copyfile(example / "go.mod", folder / "first")
    assert modules.is_built(tool, folder)
