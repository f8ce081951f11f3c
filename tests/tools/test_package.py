"""What is published: the wheel holds the package and nothing beside, and its page on an index leads somewhere."""

from __future__ import annotations

import ast
import email
import email.message
import re
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from trove_classifiers import classifiers

from elastic_infra.manifests import archive
from tests.distribution import PYTHONS, build
from tools.metadata import absolute
from tools.run import ROOT

LAUNCHER = "elastic_infra/manifests/launcher.zip"
LAUNCHER_SOURCES = ROOT / "elastic_infra/launcher"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    return build("wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist of this checkout."""
    return build("sdist", tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> email.message.Message:
    """The wheel's own metadata."""
    with zipfile.ZipFile(wheel) as file:
        (name,) = (name for name in file.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(file.read(name))


def tracked(*folders: str) -> set[str]:
    """Files of the checkout that git has or would take."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *folders]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("not a git checkout, so there is no list of tracked files")
    return {name for name in done.stdout.splitlines() if (ROOT / name).is_file()}


def test_the_wheel_holds_the_package_and_nothing_beside(wheel: Path) -> None:
    """No tests, no tools; but what is no Python: the mark of a typed package, the policy pack, the launcher."""
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}

    assert names == {*tracked("elastic_infra"), LAUNCHER}
    assert {"elastic_infra/py.typed", "elastic_infra/policy/PulumiPolicy.yaml", LAUNCHER} <= names


def test_the_wheel_carries_the_launcher_of_its_sources(wheel: Path) -> None:
    """Bytes of deflate differ between machines, so a release brings its own."""
    assert zipfile.ZipFile(wheel).read(LAUNCHER) == archive.build(ROOT / "elastic_infra")


def test_the_sdist_holds_no_more_than_the_checkout(sdist: Path) -> None:
    """Neither environments nor caches nor anything else that lies about."""
    with tarfile.open(sdist) as file:
        names = {name.partition("/")[2] for name in file.getnames()}

    assert names - tracked() == {"PKG-INFO"}
    assert {"LICENSE", "README.md", "pyproject.toml", "tools/wheel.py", "tools/metadata.py"} <= names


def test_the_sdist_makes_the_same_wheel(sdist: Path, wheel: Path, tmp_path: Path) -> None:
    """A build from the sources gives what was published, to the byte."""
    subprocess.run(["tar", "--extract", "--file", sdist], cwd=tmp_path, check=True)  # Python's way differs by release
    (source,) = tmp_path.iterdir()

    assert build("wheel", tmp_path / "dist", source).read_bytes() == wheel.read_bytes()


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the library for scripts alone."""
    return build("wheel", tmp_path_factory.mktemp("training"), ROOT / "distributions/training")


def imported(path: Path) -> Iterator[Path]:
    """The modules of the launcher that a module imports relatively, and the packages around these."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level > 1:
            package = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
            yield from (
                folder / "__init__.py"
                for folder in (package, *package.parents)
                if LAUNCHER_SOURCES in (folder, *folder.parents)
            )
            yield from (package / f"{name.name}.py" for name in node.names if (package / f"{name.name}.py").is_file())


def test_the_wheel_of_the_library_holds_what_the_library_imports(
    training: Path, metadata: email.message.Message
) -> None:
    """Of the launcher no other module, so that one more import fails here and not in an image; no dependency."""
    needed = {ROOT / name for name in tracked("elastic_infra/training")}
    found: set[Path] = set()
    while found != needed:
        found = set(needed)
        needed |= {module for path in found if path.suffix == ".py" for module in imported(path)}
    sources = {path.relative_to(ROOT).as_posix() for path in needed}

    with zipfile.ZipFile(training) as file:
        names = {name for name in file.namelist() if ".dist-info/" not in name}
        (described,) = (name for name in file.namelist() if name.endswith(".dist-info/METADATA"))
        page = email.message_from_bytes(file.read(described))
        assert file.read("elastic_infra_training.pth") == b"elastic_infra_training\n"
    inside = {name.removeprefix("elastic_infra_training/") for name in names if "/" in name}
    assert inside == {*sources, "elastic_infra/__init__.py", "elastic_infra/py.typed", "LICENSE"}
    assert names - {f"elastic_infra_training/{name}" for name in inside} == {"elastic_infra_training.pth"}
    assert page["Version"] == metadata["Version"]
    assert page.get_all("Requires-Dist") == ["torch>=2.6; extra == 'torch'"]


def test_the_page_of_an_index_leads_to_this_release(metadata: email.message.Message) -> None:
    """Links of the README are relative, and would lead nowhere on an index."""
    page, version = str(metadata.get_payload()), metadata["Version"]
    repository = dict(url.split(", ") for url in metadata.get_all("Project-URL", []))["Repository"]
    links = re.findall(r"\]\(([^)\s]+)\)", page)
    ours = [link.removeprefix(f"{repository}/blob/v{version}/") for link in links if link.startswith(repository)]

    assert len(ours) > 10
    assert [link for link in links if not link.startswith("https://")] == []
    assert [path for path in ours if not (ROOT / path.partition("#")[0]).exists()] == []


def test_the_metadata_is_true(metadata: email.message.Message) -> None:
    """Classifiers exist and name the Pythons that the tests of an installed wheel try; the license's text is there."""
    given = metadata.get_all("Classifier", [])
    versions = [line.rpartition(" ")[2] for line in given if re.search(r"Python :: 3\.", line)]

    assert [line for line in given if line not in classifiers] == []
    assert versions == list(PYTHONS)
    assert metadata["Requires-Python"] == f">={PYTHONS[0]}"
    assert (metadata["License-Expression"], metadata["License-File"]) == ("Apache-2.0", "LICENSE")
    assert metadata["Author"] == "The elastic-infra project"


@pytest.mark.parametrize(
    ("written", "published"),
    [
        ("[page](docs/run.md#faults)", "[page](https://host.test/x/blob/v1/docs/run.md#faults)"),
        ("![picture](docs/timeline.svg)", "![picture](https://host.test/x/raw/v1/docs/timeline.svg)"),
        ("[there](https://other.test/a) [here](#install)", "[there](https://other.test/a) [here](#install)"),
    ],
)
def test_relative_links_become_absolute(written: str, published: str) -> None:
    """Pages to read, pictures to show; what has an address keeps that address."""
    assert absolute(written, "https://host.test/x", "v1") == published
