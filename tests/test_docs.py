"""What the documents say is what the code does."""

from __future__ import annotations

import platform
import re
import sys
import types
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from elastic_infra import JobConfig, render
from elastic_infra.cli.app import COMMANDS
from elastic_infra.config.load import parse
from elastic_infra.preview import programs
from tests.cli import elastic_infra
from tests.golden import assert_golden
from tools import reference

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("examples/*/README.md"))]


def snippets(language: str, page: str = "README.md") -> list[str]:
    """Every code block of a page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)


def test_every_message_of_the_troubleshooting_page_is_a_programs_own() -> None:
    """A reader searches for the line that a log holds; a message that was reworded would not be found."""
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    messages = re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
    sources = "".join(path.read_text() for path in sorted((ROOT / "elastic_infra").rglob("*.py")))
    joined = re.sub(r'"\n\s*f?"', "", sources)  # a long message is written in pieces

    assert len(messages) > 15
    assert [message for message in messages if message not in joined] == []


def test_reference_is_golden() -> None:
    """`docs/reference.md` has every field as the models have it."""
    assert_golden(reference.TARGET, reference.source())


@pytest.mark.parametrize("code", snippets("yaml"))
def test_yaml_in_the_readme_is_a_valid_job(code: str) -> None:
    """Each snippet is a whole job, or keys that complete a job."""
    given = yaml.safe_load(code)
    config = parse(code) if "image" in given else JobConfig(**{"image": "i", "script": "s", **given})

    assert render("job", config).workload


PROGRAMS = [
    code
    for page in ("README.md", "docs/python.md", "docs/upgrade.md")
    for code in snippets("python", page)
    if "elastic_infra.training" not in code  # a part of a training script, whose loops tests/training has whole
]


@pytest.mark.parametrize("code", PROGRAMS)
def test_python_on_a_page_runs(code: str, tmp_path: Path) -> None:
    """Each snippet runs as it stands, under Pulumi's mocks; the jobs that it declares are valid."""
    (tmp_path / "__main__.py").write_text(code)
    jobs = programs.run_program(tmp_path, {"name": "readme"}, "dev", {})

    assert len(jobs) == code.count("ElasticTrainingJob(")


def test_the_policy_on_the_page_is_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its rule of one's own, in `validate` and in the pack, and the rule tells what it is there for."""
    (policy,), (rule, pack_) = snippets("yaml", "docs/preview.md"), snippets("python", "docs/preview.md")
    for name, text in {"policy.yaml": policy, "rules.py": rule, "job.yaml": DEBUG_JOB}.items():
        (tmp_path / name).write_text(text)
    result = elastic_infra("validate", "--policy", tmp_path / "policy.yaml", tmp_path / "job.yaml")
    served: list[str] = []
    monkeypatch.setattr(
        "pulumi_policy.PolicyPack", lambda **given: served.extend(each.name for each in given["policies"])
    )
    rules = types.ModuleType("rules")
    exec(rule, vars(rules))
    monkeypatch.setitem(sys.modules, "rules", rules)
    exec(pack_, {})

    assert result.code == 2
    assert [line.partition(": job")[0] for line in result.err.splitlines()] == ["mandatory no_debug_jobs"]
    assert "no-debug-jobs" in served


DEBUG_JOB = f"""
name: probe
image: ghcr.io/team/train@sha256:{"0" * 64}
script: train.py
resources: {{memory: 1Gi}}
storage: {{checkpoint: {{claim: checkpoints}}}}
labels: {{team: vision, debug: "yes"}}
"""


@pytest.mark.parametrize("code", snippets("sh"))
def test_commands_in_the_readme_exist(code: str) -> None:
    """Each verb of make and each command of ours is there."""
    makefile = (ROOT / "Makefile").read_text()
    verbs = re.findall(r"^make ([a-z-]+)", code, re.MULTILINE)
    commands = re.findall(r"^elastic-infra ([a-z]+)", code, re.MULTILINE)

    assert [verb for verb in verbs if not re.search(rf"^{verb}\b.*:", makefile, re.MULTILINE)] == []
    assert set(commands) <= set(COMMANDS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Every link inside the repository has a target."""
    links = re.findall(r"\]\((?!https?://)([^)#]+)", page.read_text())

    assert [link for link in links if not (page.parent / link).exists()] == []


COUNTED = ("Linux", "x86_64", (3, 11))


def needs(package: str) -> list[str]:
    """What a package needs here, without its extras."""
    requirements = map(Requirement, metadata.requires(package) or ())
    return [need.name for need in requirements if need.marker is None or need.marker.evaluate({"extra": ""})]


def installed_with(packages: Iterable[str]) -> set[str]:
    """These packages and all that they need in turn."""
    found: set[str] = set()
    waiting = [str(canonicalize_name(package)) for package in packages]
    while waiting:
        package = waiting.pop()
        if package not in found:
            found.add(package)
            waiting += map(canonicalize_name, needs(package))
    return found


def megabytes(packages: Iterable[str]) -> float:
    """Their files without bytecode."""
    files = (file for package in packages for file in metadata.files(package) or ())
    return sum(file.size or 0 for file in files if file.suffix != ".pyc") / 1e6


@pytest.mark.skipif((platform.system(), platform.machine(), sys.version_info[:2]) != COUNTED, reason="other wheels")
def test_dependencies_are_as_many_and_as_large_as_the_page_says() -> None:
    """In all, row by row, and the parts that the text names."""
    page = (ROOT / "docs/dependencies.md").read_text()
    direct = needs("elastic-infra")
    everything = installed_with(direct)
    rows = re.findall(r"^\| `([\w-]+)` \| [^|]+ \| (\d+) \| ([\d.]+) \|", page, re.MULTILINE)
    sizes = {package: megabytes(installed_with([package])) for package in direct}
    rest = installed_with(package for package in direct if package != "pulumi-kubernetes")

    assert {name: (int(number), size) for name, number, size in rows} == {
        package: (len(installed_with([package])), f"{size:.0f}" if size >= 1 else f"{size:.1f}")
        for package, size in sizes.items()
    }
    assert f"{len(everything)} packages of {megabytes(everything):.0f} MB" in page
    assert f"{megabytes(['grpcio']):.0f} MB are gRPC, {megabytes(['debugpy']):.0f} MB `debugpy`" in page
    assert f"{megabytes(everything - rest):.0f} MB less" in page
