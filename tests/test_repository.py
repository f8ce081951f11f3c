"""What holds for every file of the repository: links lead somewhere, commands exist, nothing names one machine."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.collector import uncollected

ROOT = Path(__file__).resolve().parent.parent

REGISTRY_HOSTS = [
    ".".join(parts)
    for parts in [
        ("pypi", "org"),
        ("files", "pythonhosted", "org"),
        ("download", "pytorch", "org"),
        ("proxy", "golang", "org"),
        ("sum", "golang", "org"),
        ("registry", "npmjs", "org"),
        ("deb", "debian", "org"),
    ]
]
"""Spelled in parts, for this file is searched too."""

MACHINE_PATH = re.compile(r"(?<![\w@}.])/(?:root|work/(?:main|shared)|tmp/(?:brief|build))/")

SHORTEST_DOCSTRING = 3
"""Words."""

LAUNCHER = "elastic_infra/launcher"
TESTED_ELSEWHERE = {
    "__main__": "scenarios/test_delivery.py",
    "agent/agent": "scenarios/test_membership.py",
    "agent/store_session": "scenarios/test_start_order.py",
    "driver/__main__": "driver/test_main.py",
    "protocol/actions": "protocol/test_machine.py",
    "protocol/events": "protocol/test_apply_event.py",
    "store/__main__": "store/test_server.py",
    "supervisor/supervisor": "scenarios/test_processes_end_to_end.py",
    "supervisor/worker_processes": "scenarios/test_processes_end_to_end.py",
    "workers/call_function": "scenarios/test_functions.py",
}
"""Modules of the launcher that hold shapes only, or effects that show with real processes."""


@pytest.fixture(scope="module")
def tracked() -> dict[Path, str]:
    """Every file that git tracks or would take, by path, as text."""
    done = run("git", "ls-files", "--cached", "--others", "--exclude-standard", "-z")
    if done.returncode:
        pytest.skip("not a git checkout, so there is no list of tracked files")
    files = (ROOT / name for name in done.stdout.split("\0") if name)
    return {file: file.read_text(errors="replace") for file in files if file.is_file()}


def test_no_package_registry_is_named(tracked: dict[Path, str]) -> None:
    """The project installs from any mirror: which one is the machine's own setting."""
    found = [(str(file), host) for file, text in tracked.items() for host in REGISTRY_HOSTS if host in text]

    assert found == []


def test_no_machine_is_named(tracked: dict[Path, str]) -> None:
    """Nothing holds a path of the machine it was written on."""
    found = [
        (f"{file.relative_to(ROOT)}:{number}", line.strip())
        for file, text in tracked.items()
        if file != Path(__file__)
        for number, line in enumerate(text.splitlines(), 1)
        if MACHINE_PATH.search(line)
    ]

    assert found == []


def test_links_lead_somewhere(tracked: dict[Path, str]) -> None:
    """Every relative link of every Markdown file names a file or a heading that exists."""
    dead = [
        f"{file.relative_to(ROOT)}: {link}"
        for file, text in tracked.items()
        if file.suffix == ".md"
        for link in re.findall(r"\]\(([^)\s]+)\)", text)
        if not re.match(r"[a-z]+:", link) and not leads_somewhere(file, link)
    ]

    assert dead == []


def leads_somewhere(file: Path, link: str) -> bool:
    """Whether a relative link's file exists and, where it names a heading, has that heading."""
    path, _, heading = link.partition("#")
    target = (file.parent / path) if path else file
    return target.exists() and (not heading or target.suffix != ".md" or heading in anchors(target.read_text()))


def anchors(markdown: str) -> set[str]:
    """The anchors that a Markdown page's headings get."""
    headings = re.findall(r"^#+ (.+)$", markdown, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def readme_commands() -> list[str]:
    """The lines of the README's shell blocks, without comments."""
    blocks = re.findall(
        r"^```(?:sh|bash|console)\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE
    )
    lines = (line.removeprefix("$ ") for block in blocks for line in block.splitlines())
    return [line for line in lines if shlex.split(line, comments=True)]


def test_docstrings_say_more_than_the_name(tracked: dict[Path, str]) -> None:
    """Three words say what the name says already: such a docstring is dropped, or tells the reader something."""
    with uncollected():  # what a finalizer writes may parse too, which ast of CPython 3.11 does not bear (gh-106905)
        short = [
            f"{path}: {found!r}"
            for path, text in tracked.items()
            if path.suffix == ".py"
            for node in ast.walk(ast.parse(text))
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
            and (found := ast.get_docstring(node)) is not None
            and len(found.split()) <= SHORTEST_DOCSTRING
        ]

    assert short == []


def test_folders_that_are_listed_are_closed(tracked: dict[Path, str]) -> None:
    """An error in the middle of ``os.scandir`` leaves the folder open, and a warning that fails whichever test runs."""
    for path, text in tracked.items():
        if path.suffix != ".py":
            continue
        nodes = list(ast.walk(ast.parse(text)))
        listed = {node for node in nodes if isinstance(node, ast.Call) and ast.unparse(node.func) == "os.scandir"}
        closed = {item.context_expr for node in nodes if isinstance(node, ast.With) for item in node.items}
        assert listed <= closed, f"{path}: os.scandir stands in a `with`"


def test_the_readme_names_both_commands() -> None:
    """A newcomer finds the way to the main job and to the tests."""
    words = [shlex.split(line, comments=True) for line in readme_commands()]

    assert ["make", "demo"] in words
    assert ["make", "test"] in words


def test_the_readmes_make_commands_exist() -> None:
    """What the README says to make is a verb of the Makefile."""
    verbs = [shlex.split(line, comments=True)[1:] for line in readme_commands() if line.startswith("make ")]
    unknown = [words for words in verbs if run("make", "-n", *words).returncode]

    assert unknown == []


def test_the_readmes_own_commands_exist() -> None:
    """What the README says to type is a command of the program, and the files it names are there."""
    lines = [shlex.split(line, comments=True) for line in readme_commands() if "elastic-infra " in line]
    own = [words for words in lines if Path(words[0]).name == "elastic-infra"]
    unknown = [words for words in own if run(ROOT / ".venv/bin/elastic-infra", words[1], "--help").returncode]
    missing = [word for words in own for word in words if word.startswith("examples/") and not (ROOT / word).exists()]

    assert unknown + missing == []


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """A command run at the root, whatever it answers."""
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_makefile_explains_every_verb() -> None:
    """`make` alone lists what can be made."""
    text = (ROOT / "Makefile").read_text()
    phony = {verb for line in re.findall(r"^\.PHONY: (.+)$", text, re.MULTILINE) for verb in line.split()}
    explained = {verb for line in re.findall(r"^([a-z- ]+):.*## ", text, re.MULTILINE) for verb in line.split()}

    assert phony - explained == set()


def test_every_module_of_the_launcher_has_its_tests() -> None:
    """In the file of the same name, or where the table says; so a reader of either finds the other."""
    sources = {path.relative_to(ROOT / LAUNCHER).with_suffix("") for path in (ROOT / LAUNCHER).rglob("*.py")}
    modules = {str(path) for path in sources if path.name != "__init__"}
    folder = ROOT / "tests/launcher"
    tested = {name for name in modules if (folder / name).with_name(f"test_{Path(name).name}.py").exists()}

    assert modules - tested - TESTED_ELSEWHERE.keys() == set()
    assert TESTED_ELSEWHERE.keys() - modules == set(), "these modules are gone"
    assert TESTED_ELSEWHERE.keys() & tested == set(), "these modules have a test file of their own"
    assert [file for file in TESTED_ELSEWHERE.values() if not (folder / file).exists()] == []
