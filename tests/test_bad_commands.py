"""Bad input for each command: a sentence with the cure, exit code 2, and no change to a file or the cluster.

The details of each command's faults are tested beside the command; here each one is tried as a user would get it wrong.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from elastic_infra import plugin
from tests.cli import elastic_infra
from tests.operations import kube
from tests.test_operations_commands import Cluster, found

JOB: Final = "image: i\nscript: s\n"
MANIFEST: Final = "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {{name: {}}}\n---\n"
FILES: Final = {
    "job.yaml": JOB,
    "bad.yaml": JOB + "elastic: {nnodes: '4:2'}\n",
    "twins/a.job.yaml": "name: a\n" + JOB,
    "twins/b.job.yaml": "name: a\n" + JOB,
    "none/README.md": "No job.\n",
    "blank.yaml": "",
    "piped.sh": "cd /src && torchrun --nnodes 2 train.py | tee log\n",
    "two.yaml": MANIFEST.format("a") + MANIFEST.format("b"),
    "trace.csv": "when,what\n1,loss\n",
    "events.jsonl": "no event\n",
    "policy.yaml": "gpu_budgets: mandatory\n",
}

BAD: Final[list[tuple[str, str]]] = [
    ("import missing.yaml", "missing.yaml: cannot be read: No such file or directory."),
    ("import blank.yaml", "Give a manifest, or a command line of torchrun."),
    ("import piped.sh", "Move the rest into the image or the script, and leave one."),
    ("import two.yaml", "Choose one with --name."),
    ("import two.yaml --name c", "Choose one with --name."),
    ("import", "Missing argument 'FILE'."),
    ("cleanup -n team -A", "Give one of them."),
    ("cleanup --min-age -1", "Invalid value for '--min-age'"),
    ("cleanup --min-age 99999999999", "Invalid value for '--min-age'"),
    ("cleanup train", "(train)"),
    ("status team/train", "give the name alone, as `elastic-infra render` has it."),
    ("status", "Missing argument 'NAME'."),
    ("logs Train", "give the name alone, as `elastic-infra render` has it."),
    ("logs job --rank -1", "Invalid value for '--rank'"),
    ("logs job --tail all", "Invalid value for '--tail'"),
    ("watch -x", "No such option: -x"),
    ("watch job --interval 0", "Invalid value for '--interval'"),
    ("watch job --interval inf", "Invalid value for '--interval'"),
    ("scale job", "Missing argument 'NODES'."),
    ("scale job 0", "Invalid value for 'NODES'"),
    ("scale job 2.5", "Invalid value for 'NODES'"),
    ("scale ../job 3", "give the name alone, as `elastic-infra render` has it."),
    ("cancel job now", "(now)"),
    ("cancel job/1", "give the name alone, as `elastic-infra render` has it."),
    ("simulate bad.yaml", "bad.yaml: elastic.nnodes: "),
    ("simulate job.yaml --budget 5", "--budget: needs --price, which says what a node costs."),
    ("simulate job.yaml --trace trace.csv", "must name the columns hours,event,nodes, in this order."),
    ("simulate job.yaml -o picture.pdf", "Name a file that ends in .svg."),
    ("simulate job.yaml --format xml", "'xml' is not one of 'text', 'json'"),
    ("diff", "Give BASE and HEAD, BASE...HEAD, or --from-pulumi FILE."),
    ("diff job.yaml", "Give BASE and HEAD, BASE...HEAD, or --from-pulumi FILE."),
    ("diff job.yaml job.yaml --from-pulumi job.yaml", "--run-programs and --stack. Drop these."),
    ("diff --from-pulumi job.yaml", "Make it with: pulumi preview --json > preview.json"),
    ("diff job.yaml bad.yaml", "head bad.yaml: elastic.nnodes: "),
    ("diff main HEAD", "there is no git repository here that could have such a revision."),
    ("diff job.yaml job.yaml --fail-on doubt", "'none', 'change', 'restart', 'checkpoint-loss'"),
    ("render job.yaml --keep-launcher", "--keep-launcher needs --into"),
    ("render none --into out", "none: holds no job file. A job has image: and script:."),
    ("render twins --into out", "Give each job a `name` of its own."),
    ("render job.yaml bad.yaml --into out", "bad.yaml: elastic.nnodes: "),
    ("render job.yaml --into job.yaml", "cannot be written: "),
    ("timeline events.jsonl", "events.jsonl"),
    ("validate job.yaml --policy policy.yaml", "gpu_budgets: is not a known key. Did you mean 'gpu_budget'?"),
    ("explain bad.yaml", "bad.yaml: elastic.nnodes: "),
    ("run bad.yaml", "bad.yaml: elastic.nnodes: "),
    ("check bad.yaml", "bad.yaml: elastic.nnodes: "),
    ("schema job.yaml", "(job.yaml)"),
    ("migrate bad.yaml --to job", "bad.yaml: elastic.nnodes: "),
    ("migrate job.yaml", "Missing option '--to'"),
    ("migrate job.yaml --to slurm", "'slurm' is not one of 'auto', 'pytorchjob', 'job'"),
    ("submit job.yaml", "No such command 'submit'."),
]
"""A command line, and what it says on stderr."""

OWNED: Final = {"elastic": {"initial_nodes": 2}}
REFUSED: Final[list[tuple[str, dict[str, Any] | None, str]]] = [
    ("status job", None, "lists the jobs of every namespace; choose one with --namespace or --context."),
    ("logs job", kube.workload("Running"), "`elastic-infra status job` says why."),
    ("logs job --rank 9", kube.workload("Running"), "`elastic-infra status job` says why."),
    ("watch job", None, "lists the jobs of every namespace; choose one with --namespace or --context."),
    ("scale job 9", kube.workload("Running"), "Choose a number of that range, or change elastic.nnodes"),
    ("scale job 3", kube.workload("Running", **OWNED), "Set elastic.initial_nodes: 3 there"),
    ("scale job 3", kube.workload("Succeeded"), "Change run_policy.rerun in its config to run it again."),
    ("cancel job", kube.workload("Failed"), "Change run_policy.rerun in its config to run it again."),
    ("cancel job", {**kube.workload("Running"), "metadata": {"name": "job"}}, "import it with `elastic-infra import`."),
]
"""A command line, the workload in the cluster, and what is said on stderr."""


def _digests(folder: Path) -> dict[Path, str]:
    """Every file below a folder, by its content."""
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "" for path in folder.rglob("*")}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """An empty cluster, and the files in the working folder."""
    work, programs = tmp_path / "work", tmp_path / "bin"
    programs.mkdir()
    for name, content in FILES.items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(content)
    monkeypatch.chdir(work)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    own = Cluster(programs)
    own.answers(pods=(0, '{"items": []}', ""))
    return own


def _is_refused(line: str, said: str) -> None:
    before = _digests(Path())
    result = elastic_infra(*line.split())
    err = " ".join(result.err.split())

    assert said in err
    assert (result.code, result.out if not line.startswith("diff") else "") == (2, "")
    assert "Traceback" not in err
    assert _digests(Path()) == before


@pytest.mark.parametrize(("line", "said"), BAD, ids=[line for line, _ in BAD])
def test_bad_input_is_said_with_its_cure(cluster: Cluster, line: str, said: str) -> None:
    """Nothing is written, and the cluster is not even asked. `diff` still shows what it can."""
    _is_refused(line, said)

    assert cluster.asked == []


@pytest.mark.parametrize(("line", "workload", "said"), REFUSED, ids=[f"{line}: {said}" for line, _, said in REFUSED])
def test_what_a_job_does_not_allow_is_said_with_its_cure(
    cluster: Cluster, line: str, workload: dict[str, Any] | None, said: str
) -> None:
    """The cluster was asked, and nothing in it changed."""
    there = {} if workload is None else {"pytorchjobs_kubeflow_org": found(workload)}
    cluster.answers(pods=(0, '{"items": []}', ""), **there)
    _is_refused(line, said)

    assert {question.split()[0] for question in cluster.asked} == {"get"}


def test_every_command_is_tried() -> None:
    """A command that is new comes with what it says of bad input."""
    from elastic_infra.cli.app import COMMANDS

    assert {line.split()[0] for line, _ in BAD} == {*COMMANDS, "submit"}


def test_the_plugin_is_not_the_command_line() -> None:
    """`python -m elastic_infra` waits for the Pulumi engine, which is not meant where a command is named."""
    done = subprocess.run(
        [sys.executable, "-m", "elastic_infra", "diff", "main", "HEAD"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stdout) == (2, "")
    assert "The command line is `elastic-infra`" in done.stderr


@pytest.mark.parametrize(
    ("line", "command"), [("", "--help"), ("render x", "render --help"), ("job.yaml", "--help"), ("--help", "--help")]
)
def test_a_plugin_without_an_engine_ends(
    line: str, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A person who starts `pulumi-resource-elastic-infra` is told what it is, and it does not wait."""
    monkeypatch.setattr(sys, "argv", ["pulumi-resource-elastic-infra", *line.split()])
    with pytest.raises(SystemExit) as end:
        plugin.serve()

    assert end.value.code == 2
    assert capsys.readouterr().err.endswith(f"`python -m elastic_infra.cli`: elastic-infra {command}\n")
