"""The command `migrate`: the changed lines on stdout, what they mean on stderr, the file only where it is asked for."""

from __future__ import annotations

import itertools
import subprocess
from pathlib import Path

import pytest

from elastic_infra.cli.migrate import GAINED_AND_LOST
from elastic_infra.manifests.figures import WORKLOAD_KINDS
from tests.cli import elastic_infra
from tools.run import ROOT

JOB = "name: digits\nimage: i\nscript: s\nelastic: {nnodes: '2:4'}\nstorage: {checkpoint: {claim: c}}\n"


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job file in the working folder."""
    monkeypatch.chdir(tmp_path)
    file = Path("job.yaml")
    file.write_text(JOB)
    return file


def test_the_lines_are_a_patch_and_the_file_stays(job: Path) -> None:
    """`git apply` takes what is printed, and the file then says what was promised."""
    result = elastic_infra("migrate", "job.yaml", "--to", "job")

    assert (result.code, job.read_text()) == (0, JOB)
    subprocess.run(["git", "apply", "-"], input=result.out, text=True, check=True)
    assert job.read_text() == JOB + "target: job\n"


def test_the_session_in_the_docs_is_a_real_one(job: Path) -> None:
    """The patch as it is printed, and how what is told on stderr begins."""
    session = (ROOT / "docs/targets.md").read_text().partition("$ elastic-infra migrate job.yaml --to job\n")[2]
    shown = session.partition("...\n")[0]
    kept = [line[1:] for line in shown.splitlines() if line.startswith((" ", "-")) and not line.startswith("---")]
    job.write_text("\n".join(["name: digits", *kept, ""]))
    result = elastic_infra("migrate", "job.yaml", "--to", "job")

    assert result.code == 0
    assert (result.out + result.err).startswith(shown)


def test_every_workload_object_has_its_gains_and_losses() -> None:
    """Of one node and of several."""
    assert set(GAINED_AND_LOST) == set(itertools.product(WORKLOAD_KINDS, (False, True)))


def test_what_up_will_do_is_told(job: Path) -> None:
    """The consequence, what is gained and lost, and that the job has to be stopped first."""
    said = elastic_infra("migrate", str(job), "--to", "job").err

    assert "job.yaml: gained: no operator is needed, but Kubernetes 1.31.\n" in said
    assert "job.yaml: lost: a pod that replaces another comes after a delay" in said
    assert "restart  digits\n" in said
    assert "`elastic-infra cancel digits`" in " ".join(said.split())
    assert (
        "job.yaml: kept: the checkpoints stay where they are, on the claim c, and training goes on from them.\n" in said
    )
    assert "step 0" not in said, "no warning of checkpoints that are left behind"


@pytest.mark.parametrize(
    ("storage", "kept"),
    [("storage: {checkpoint: {size: 1Gi}}\n", "on the claim digits-checkpoint,"), ("", None)],
)
def test_what_stays_is_told_of_checkpoints_that_there_are(job: Path, storage: str, kept: str | None) -> None:
    """By the claim that the job has made; a job without a volume for them keeps none."""
    job.write_text("name: digits\nimage: i\nscript: s\nelastic: {nnodes: '2:4'}\n" + storage)
    said = elastic_infra("migrate", str(job), "--to", "trainjob").err

    assert "kept:" not in said if kept is None else kept in said


def test_local_code_goes_along(job: Path) -> None:
    """The folder starts from the job file on both sides, and is no change."""
    Path("src").mkdir()
    Path("src/s").write_text("pass")
    job.write_text(f"{JOB}workdir: src\n")
    result = elastic_infra("migrate", str(job), "--to", "job")

    assert result.code == 0, result.err
    assert "restart  digits\n" in result.err
    assert "workdir" not in result.err


def test_the_file_is_written_where_it_is_asked_for(job: Path) -> None:
    """And there and back again is the way it came, but for the key."""
    assert elastic_infra("migrate", str(job), "--to", "job", "--write").code == 0
    assert job.read_text() == JOB + "target: job\n"

    assert elastic_infra("migrate", str(job), "--to", "pytorchjob", "--write").code == 0
    assert job.read_text() == JOB + "target: pytorchjob\n"


def test_a_job_that_is_there_already_stays(job: Path) -> None:
    """Nothing to change is no error."""
    result = elastic_infra("migrate", str(job), "--to", "pytorchjob")

    assert (result.code, result.out) == (0, "")
    assert "the job is a PyTorchJob already, so nothing has to change." in result.err
