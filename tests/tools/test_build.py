"""Building real Go modules, and what is said when that fails."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tools import build, modules
from tools.run import SetupError

MAIN = "package main\n\nfunc main() {}\n"


@pytest.fixture(scope="module")
def go() -> str:
    """The Go of this machine."""
    try:
        return build.go_program()
    except SetupError as error:
        pytest.skip(str(error))


@pytest.fixture
def tool(tmp_path: Path) -> modules.Tool:
    """A tool without dependencies, whose command is in its own module."""
    folder = tmp_path / "tools" / "example"
    (folder / "cmd/hello").mkdir(parents=True)
    (folder / "go.mod").write_text("module example.com/tool\n\ngo 1.20\n")
    (folder / "go.sum").write_text("")
    (folder / "tools.go").write_text('//go:build tools\n\npackage tools\n\nimport _ "example.com/tool/cmd/hello"\n')
    (folder / "cmd/hello/main.go").write_text(MAIN)
    return modules.Tool(folder, ("example.com/tool/cmd/hello",), "1.2.3")


def test_a_tool_is_built_once(tool: modules.Tool, tmp_path: Path, go: str) -> None:
    """The second time says that it is there and starts no compiler."""
    lines: list[str] = []
    first = build.build(tool, tmp_path / "cache", go, lines.append)
    second = build.build(tool, tmp_path / "cache", go, lines.append)

    assert first == second
    assert (first / "hello").stat().st_mode & 0o111
    assert [line.split(" in ")[0] for line in lines] == [
        *("example 1.2.3: building", "example 1.2.3: built", "example 1.2.3: there"),
    ]


def test_a_tool_that_is_there_takes_no_lock(tool: modules.Tool, tmp_path: Path, go: str) -> None:
    """A cache that somebody else has filled may be read-only."""
    build.build(tool, tmp_path / "cache", go, str)
    shutil.rmtree(tmp_path / "cache" / build.LOCKS)
    build.build(tool, tmp_path / "cache", go, str)

    assert not (tmp_path / "cache" / build.LOCKS).exists()


def test_whoever_comes_meanwhile_waits_and_builds_nothing(tool: modules.Tool, tmp_path: Path, go: str) -> None:
    """Two checkouts that are set up at once build a tool once, and both have it."""
    lines: list[str] = []
    with ThreadPoolExecutor() as pool:
        built = [pool.submit(build.build, tool, tmp_path / "cache", go, lines.append) for _ in range(2)]

    assert built[0].result() == built[1].result()
    assert sorted(line.rpartition(": ")[2].split(" in ")[0] for line in lines if "waits" not in line) == [
        *("building", "built", "there"),
    ]


def test_a_failed_build_leaves_nothing(tool: modules.Tool, tmp_path: Path, go: str) -> None:
    """The reason is the compiler's own, and no half-built folder stays."""
    (tool.folder / "cmd/hello/main.go").write_text("package main\n\nfunc main() { nonsense }\n")

    with pytest.raises(SetupError, match=r"example does not build: .*undefined: nonsense"):
        build.build(tool, tmp_path / "cache", go, str)
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [build.LOCKS]


def test_one_failure_does_not_stop_the_others(tool: modules.Tool, tmp_path: Path, go: str) -> None:
    """Every tool that can be built is built; the failures are given back."""
    broken = modules.Tool(tool.folder, ("example.com/tool/cmd/absent",), "1.2.3")
    failures = build.build_all([broken, tool], tmp_path / "cache", go, str)

    assert len(failures) == 1
    assert (modules.built_folder(tool, tmp_path / "cache", build.go_version(go)) / "hello").exists()


def test_an_unknown_program_is_answered_with_the_known(tmp_path: Path, go: str) -> None:
    """A slip of the pen is told what can be had."""
    with pytest.raises(SetupError, match=r"No tool here has a program 'kubelett'\. Choose one of: .*kubelet,"):
        build.program_path("kubelett", tmp_path, go)


def test_a_program_that_is_not_built_says_how(tmp_path: Path, go: str) -> None:
    """The message names the command that builds it."""
    with pytest.raises(SetupError, match=r"kubelet is not built yet. Run `make tools`"):
        build.program_path("kubelet", tmp_path, go)


def test_the_operators_crd_is_read_from_its_module(pytorchjob_crd: dict[str, object]) -> None:
    """The pinned sources hold the CRD that the tests of the manifests use."""
    assert pytorchjob_crd["kind"] == "CustomResourceDefinition"
