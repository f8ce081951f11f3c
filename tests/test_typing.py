"""Type checkers and editors know the config: a wrong key is named where it stands, and each field explains itself."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from elastic_infra import args
from elastic_infra.config.docs import field_docs
from tests.typing.language_server import LanguageServer

BIN = Path(sys.executable).parent
MISTAKES = {
    'ElasticTrainingJob("train", {"image": "i", "sript": "s"})': "sript",
    'ElasticTrainingJob("train", {"script": "s"})': "image",
    'ElasticTrainingJob("train", {"image": "i", "elastic": {"nodes": 2}})': "nodes",
    'ElasticTrainingJob("train", {"image": "i", "env": {"A": {"secrt": "a"}}})': "secrt",
    'ElasticTrainingJob.from_config("train", JobConfig(image="i", scrpt="s"))': "scrpt",
}
RIGHT = 'ElasticTrainingJob("train", {"image": "i", "script": "s", "elastic": {"nnodes": "2:4"}})'
CHECKERS: dict[str, list[str]] = {
    "mypy": ["--no-error-summary"],
    "basedpyright": ["--level", "error", "--pythonpath", sys.executable],
}


def program(name: str) -> Path:
    """A program of the environment's lint tools."""
    if not (BIN / name).exists():
        pytest.skip(f"{name} is not in this environment; `make setup` installs it")
    return BIN / name


@pytest.mark.parametrize("checker", CHECKERS)
def test_a_wrong_key_of_an_inline_dict_is_named_on_its_line(checker: str, tmp_path: Path) -> None:
    """Before anything runs, and without a word on what is right."""
    file = tmp_path / "program.py"
    mistakes = {line: key for line, key in MISTAKES.items() if checker == "mypy" or "JobConfig" not in line}
    file.write_text("\n".join(["from elastic_infra import ElasticTrainingJob, JobConfig", RIGHT, *mistakes, ""]))
    options = CHECKERS[checker] + (["--cache-dir", str(tmp_path)] * (checker == "mypy"))
    command: list[str | Path] = [program(checker), *options, file]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 1, done.stdout + done.stderr
    for number, key in enumerate(mistakes.values(), start=3):
        assert key in _about(done.stdout, number), done.stdout
    assert _about(done.stdout, 2) == ""


def _about(output: str, line: int) -> str:
    """What a checker says about a line; pyright goes on with the reason in indented lines."""
    blocks = [f"program.py:{block}" for block in output.split("program.py:")]
    return "".join(block for block in blocks if block.startswith(f"program.py:{line}:"))


def test_every_field_explains_itself_in_an_editor(tmp_path: Path) -> None:
    """The text under the mouse is the field's documentation, in every part of the config."""
    typed = {
        name: part for name, part in vars(args).items() if inspect.isclass(part) and part.__module__ == args.__name__
    }
    fields = [(name, field) for name, part in typed.items() for field in part.__annotations__]
    file = tmp_path / "program.py"
    file.write_text(
        "from elastic_infra.args import *\n"
        + "".join(f"def _{i}(part: {name}): part['{field}']\n" for i, (name, field) in enumerate(fields))
    )
    lines = file.read_text().splitlines()
    with LanguageServer.started(program("basedpyright-langserver"), tmp_path) as server:
        server.open(file)
        shown = {each: server.hover(file, i, lines[i].rindex("'") - 1) for i, each in enumerate(fields, start=1)}

    assert len(fields) > 100
    assert [each for each, text in shown.items() if _words(_doc(typed[each[0]], each[1])) not in _words(text)] == []


def _doc(part: Any, field: str) -> str:
    return field_docs(part)[field]


def _words(text: str) -> str:
    return " ".join(text.replace("\\", "").split())
