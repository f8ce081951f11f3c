"""The launcher's zip: the same bytes from the same sources, small, and it runs anywhere."""

from __future__ import annotations

import ast
import base64
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tokenize
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from elastic_infra.manifests import archive, launcher
from tests import jobs

ROOT = Path(__file__).parents[2]


def _zip() -> zipfile.ZipFile:
    return zipfile.ZipFile(io.BytesIO(launcher.archive()))


def test_the_zip_says_nothing_of_the_machine_that_made_it() -> None:
    """Sorted, fixed times, one kind of system."""
    entries = _zip().infolist()

    assert [entry.filename for entry in entries] == sorted(entry.filename for entry in entries)
    assert {entry.date_time for entry in entries} == {(1980, 1, 1, 0, 0, 0)}
    assert {entry.compress_type for entry in entries} == {zipfile.ZIP_DEFLATED}
    assert {entry.create_system for entry in entries} == {3}


def test_the_zip_is_the_same_in_another_process() -> None:
    """Built anew, whatever the hash seed and the folder."""
    program = "from elastic_infra.manifests.launcher import digest; print(digest())"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "7"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd="/", capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == launcher.digest()


def test_the_zip_holds_the_launcher_and_what_training_scripts_import() -> None:
    """Sources only, nothing of the infra side."""
    text = _zip().read("elastic_infra/sources").decode()
    paths = [part.partition("\n")[0] for part in text.split("\0")]

    assert _zip().namelist() == ["__main__.py", "elastic_infra/__init__.py", "elastic_infra/sources"]
    assert sorted(SOURCES) == paths
    assert {path.split("/")[0] for path in paths} == {"launcher", "training"}


def test_the_config_map_can_be_applied_by_kubectl() -> None:
    """Its whole text, as client-side apply keeps it in an annotation, with room for labels and annotations."""
    applied = json.dumps(jobs.objects(jobs.job())["launcher"])

    assert len(applied) + 8_192 < launcher.MAX_OBJECT_BYTES


@pytest.mark.parametrize("page", ["docs/architecture.md", "docs/upgrade.md", "CHANGELOG.md"])
def test_a_page_tells_the_size_of_the_config_map(page: str) -> None:
    """It grows with the launcher, and a reader may count on it to a twentieth."""
    told = re.findall(r"(\d+)\s+kB\s+of\s+base64", (ROOT / page).read_text())

    assert [int(each) for each in told] == [
        pytest.approx(len(launcher.launcher_data()["launcher.zip"]) / 1e3, rel=0.05)
    ]


def test_the_page_tells_what_kubectl_can_keep() -> None:
    """Client-side apply keeps the object in an annotation."""
    page = " ".join((ROOT / "docs/architecture.md").read_text().split())

    assert f"can keep {launcher.MAX_OBJECT_BYTES / 1e3:.0f} kB" in page


def test_the_launcher_alone_is_small() -> None:
    """Without what training scripts import, which grows with what it offers, and is as much as the page says."""
    package = ROOT / "elastic_infra"
    sources = {path: text for path, text in archive.sources(package).items() if not path.startswith("training/")}
    content = archive.packed({"sources": archive.joined(sources).encode()})

    alone = len(base64.b64encode(content))
    assert alone <= 150_000
    assert 1 - alone / len(launcher.launcher_data()["launcher.zip"]) == pytest.approx(1 / 3, abs=0.025)
    assert "of which a third is the library for training scripts" in (ROOT / "docs/architecture.md").read_text()


SOURCES = archive.sources(ROOT / "elastic_infra")
TRICKY = '''"""Docstring with a "quote" and a # sign, ä."""

from __future__ import annotations

VALUES = [
    "first",  # why
    "",
]
"""What an attribute means."""


class Empty(Exception):
    """Nothing
    else."""


class Both:
    """Class."""

    TEXT = """kept # here
  "as it stands"   """

    def method(self) -> str:  # a comment
        r"""A raw one is left."""
        'single'
        return "not # a comment" + '#"' + f"{self.TEXT!r}#{'#'}"
'''


@pytest.mark.parametrize("source", [*SOURCES.values(), TRICKY], ids=[*SOURCES, "tricky"])
def test_stripping_changes_no_statement_and_no_line(source: str) -> None:
    """The same program on the same lines, read by Python's own parser, and no comment left."""
    left = archive.stripped(source)

    assert _statements(left) == _statements(source)
    assert [token for token in _tokens(left) if token.type == tokenize.COMMENT] == []


def test_docstrings_go() -> None:
    """From modules, classes, functions and attributes; a text that is a value stays."""
    left = archive.stripped(TRICKY)

    assert [text for text in ("Docstring", "means", "Nothing", "Class.", "single", "why") if text in left] == []
    assert 'kept # here\n  "as it stands"   ' in left


def _statements(source: str) -> list[tuple[int, str]]:
    """Line and content of each statement; docstrings and the `pass` in place of one left out."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list):
            node.body = [each for each in body if not _is_needless(each)]  # type: ignore[attr-defined]
    return [(node.lineno, ast.dump(node)) for node in ast.walk(tree) if isinstance(node, ast.stmt)]


def _is_needless(node: ast.stmt) -> bool:
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    return is_text or isinstance(node, ast.Pass)


def _tokens(source: str) -> Iterator[tokenize.TokenInfo]:
    return tokenize.generate_tokens(io.StringIO(source).readline)


def test_a_traceback_from_the_zip_names_the_sources_lines(tmp_path: Path) -> None:
    """A reader of the traceback looks into the sources of the same version."""
    program = "from elastic_infra.launcher import exit_codes as found; print(found.__file__)\n"
    program += "from elastic_infra.launcher import launch; print(launch.main.__code__.co_firstlineno)"
    done = _run(tmp_path, "-c", program, PYTHONPATH=str(_mounted(tmp_path)))
    lines = SOURCES["launcher/launch.py"].splitlines()

    assert "launcher.zip" in done.stdout
    assert lines[int(done.stdout.splitlines()[-1]) - 1].startswith("def main(")


def test_an_installed_wheel_mounts_the_zip_that_it_carries(tmp_path: Path) -> None:
    """Whatever the installing machine's zlib would make of the sources."""
    package = tmp_path / "elastic_infra"
    shutil.copytree(ROOT / "elastic_infra", package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "manifests/launcher.zip").write_bytes(b"as released")
    program = "from elastic_infra.manifests.launcher import archive; print(archive())"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd="/", capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == "b'as released'"


def test_the_config_map_is_immutable_and_named_by_its_content() -> None:
    """A new version of the launcher is a new object, never a silent change under a running job."""
    config_map = jobs.objects(jobs.job())["launcher"]

    assert config_map["immutable"] is True
    assert config_map["metadata"]["name"] == f"job-launcher-{launcher.digest()}"
    assert base64.b64decode(config_map["binaryData"]["launcher.zip"]) == launcher.archive()


def _mounted(folder: Path) -> Path:
    archive = folder / "launcher.zip"
    archive.write_bytes(launcher.archive())
    return archive


def _run(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python as a container would: in a foreign folder, without site packages, and nothing of ours around."""
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    return subprocess.run(
        [sys.executable, "-S", *arguments],
        cwd=elsewhere,
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_zip_runs_without_an_installation(tmp_path: Path) -> None:
    """The standard library is enough to be asked for help."""
    done = _run(tmp_path, str(_mounted(tmp_path)), "--help")

    assert done.returncode == 0, done.stderr
    assert "--nnodes" in done.stdout


def test_a_script_keeps_its_own_modules_beside_the_zip(tmp_path: Path) -> None:
    """A user's `training.py` is the user's, and a module that is nowhere is not found."""
    (tmp_path / "own").mkdir()
    for name in ("training.py", "launcher.py"):
        (tmp_path / "own" / name).write_text("print(__file__)")
    program = "import elastic_infra.training, training, launcher, importlib.util as found\n"
    program += "print(found.find_spec('elastic_infra.nothing'), found.find_spec('sources'))"
    path = os.pathsep.join((str(_mounted(tmp_path)), str(tmp_path / "own")))
    done = _run(tmp_path, "-c", program, PYTHONPATH=path)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        *(str(tmp_path / "own" / each) for each in ("training.py", "launcher.py")),
        "None None",
    ]


def test_an_error_in_the_zip_shows_the_line(tmp_path: Path) -> None:
    """Python asks the loader for the source of a traceback, and `pkgutil` for the files that the launcher copies."""
    program = "import pkgutil, elastic_infra.launcher.settings\n"
    program += "from elastic_infra.launcher.workers import bootstrap\n"
    program += "assert b'def ' in pkgutil.get_data('elastic_infra.launcher.workers', 'bootstrap.py')\n"
    program += "import traceback; from elastic_infra.launcher import launch\n"
    program += "try: launch.main(None, None, None)\nexcept Exception: traceback.print_exc()"
    done = _run(tmp_path, "-c", program, PYTHONPATH=str(_mounted(tmp_path)))
    said = re.search(r'launcher\.zip/elastic_infra/(launcher/launch\.py)", line (\d+), in main\n +(.+)', done.stderr)

    assert said, done.stderr
    assert said[3] == archive.stripped(SOURCES[said[1]]).splitlines()[int(said[2]) - 1].strip()


def test_the_store_runs_from_the_zip(tmp_path: Path) -> None:
    """As its pod starts it: a module, with the zip on the path."""
    store = jobs.objects(jobs.elastic())["store"]["spec"]["template"]["spec"]["containers"][0]
    _, *arguments = store["command"]
    done = _run(tmp_path, *arguments, "--help", PYTHONPATH=str(_mounted(tmp_path)))

    assert done.returncode == 0, done.stderr
    assert "--port" in done.stdout
