"""`elastic-infra import FILE`: the job file on stdout, everything else on stderr."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import yaml

from tests.cli import elastic_infra

CORPUS = Path(__file__).parent / "corpus"


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.yaml")), ids=lambda path: path.stem)
def test_what_is_printed_is_a_valid_job_file(path: Path, tmp_path: Path) -> None:
    """It goes into a file as it stands; every note names the file."""
    result = elastic_infra("import", path)
    (tmp_path / "job.yaml").write_text(result.out)
    checked = elastic_infra("validate", tmp_path / "job.yaml")

    assert (result.code, checked.code) == (0, 0), result.err + checked.err
    assert all(line.startswith(f"{path}: ") for line in result.err.splitlines())


def test_a_command_line_in_a_file(tmp_path: Path) -> None:
    """Named after its file, as a job file is."""
    (tmp_path / "llm.sh").write_text("# on every node\ntorchrun --nnodes=2 train.py\n")
    result = elastic_infra("import", tmp_path / "llm.sh")

    assert (result.code, yaml.safe_load(result.out)["name"]) == (0, "llm")


@pytest.mark.parametrize(("content", "code"), [((CORPUS / "batch_job.yaml").read_bytes(), 0), (b"\xff", 2)])
def test_standard_input(content: bytes, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As from `kubectl get -o yaml`, in a pipe; a line names where the text came from."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
    result = elastic_infra("import", "-")

    assert result.code == code
    assert ("name: finetune" in result.out) is (code == 0)
    assert {line.partition(": ")[0] for line in result.err.splitlines()} == {"standard input"}


@pytest.mark.parametrize(
    ("script", "is_one"),
    [
        ("#!/bin/bash\n# a; b\ntorchrun train.py --note 'a; b' \"c | d\"  # e && f\n\n", True),
        ("# don't stop\nexec torchrun train.py --note '$(date)' it\\'s\n", True),
        ("torchrun \\\n  --nnodes 2 \\\n  train.py\n", True),
        ("cd /src && torchrun train.py\n", False),
        ("torchrun train.py | tee log\n", False),
        ("export NCCL_DEBUG=INFO\ntorchrun train.py\n", False),
        ("torchrun train.py > log\n", False),
        ("torchrun train.py --name $(date +%F)\n", False),
        ('torchrun train.py --data "$DATA"\n', False),
        ("torchrun train.py data/*.tar\n", False),
        ("# don't stop\ncd /src; torchrun train.py 'a'\n", False),
    ],
)
def test_a_file_has_one_plain_command(tmp_path: Path, script: str, is_one: bool) -> None:  # noqa: FBT001 - a case
    """What a shell would do beside it is no argument of the script."""
    (tmp_path / "llm.sh").write_text(script)
    result = elastic_infra("import", tmp_path / "llm.sh")

    assert result.code == (0 if is_one else 2), result.out
    assert ("Move the rest into the image or the script" in result.err) is not is_one


def test_one_of_several_workloads(tmp_path: Path) -> None:
    """Beside other objects, in a stream or a List."""
    one = (CORPUS / "batch_job.yaml").read_text()
    two = one.replace("name: finetune", "name: other")
    file = tmp_path / "all.yaml"
    file.write_text(f"{one}\n---\n{two}\n---\napiVersion: v1\nkind: Service\nmetadata: {{name: other}}\n")
    refused, chosen = elastic_infra("import", file), elastic_infra("import", file, "--name", "other")

    assert refused.code == 2
    assert "found: finetune, other" in refused.err
    assert yaml.safe_load(chosen.out)["name"] == "other"


def test_values_are_those_that_kubernetes_reads(tmp_path: Path) -> None:
    """It knows no numbers to the base 60 and no dates; a List may have null in place of an object."""
    file = tmp_path / "job.yaml"
    args = "[--ratio, 1:4, --at, 12:30:00, --day, 2024-01-02]"
    text = (CORPUS / "batch_job.yaml").read_text()
    listed = yaml.safe_dump({"kind": "List", "items": [None, yaml.safe_load(text) | {"spec": {"template": "ARGS"}}]})
    container = f"{{name: c, image: i, command: [python, t.py], args: {args}}}"
    file.write_text(listed.replace("ARGS", f"{{spec: {{containers: [{container}]}}}}"))
    result = elastic_infra("import", file)

    assert result.code == 0, result.err
    assert yaml.safe_load(result.out)["args"] == ["--ratio", "1:4", "--at", "12:30:00", "--day", "2024-01-02"]


def test_a_file_of_windows_is_read(tmp_path: Path) -> None:
    """Its lines end in another way."""
    (tmp_path / "llm.sh").write_bytes(b"OMP_NUM_THREADS=1 torchrun \\\r\n  --nnodes 2 \\\r\n  train.py\r\n")
    job = yaml.safe_load(elastic_infra("import", tmp_path / "llm.sh").out)

    assert (job["script"], job["elastic"]["nnodes"]) == ("train.py", "2")
    assert job["env"] == {"OMP_NUM_THREADS": {"value": "1"}}


ALIASES = b"".join(b"%c: &%c [%s]\n" % (name, name, b", ".join([b"*%c" % (name - 1)] * 9)) for name in b"bcdefgh")
"""Each line stands for nine times the one before it."""


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"kind: List\nitems: [null]\n", "holds not exactly one PyTorchJob"),
        (b"kind: List\nitems: 5\n", "holds not exactly one PyTorchJob"),
        (b"kind: Job\nkind: Job\n", "a key is given twice"),
        (b"kind: Job\n---\na: &a [1]\n" + ALIASES, "stands for more than"),
        (b"kind: Job\nspec: [", "is not valid YAML at line"),
        (b"\xff", "is not UTF-8 text"),
        (b"apiVersion: v1\nkind: Service\n", "holds not exactly one PyTorchJob, Job or TrainJob (found: none)"),
        (b"", "is empty"),
        (None, "cannot be read"),
        (b" " * 1024 * 1025, "is larger than"),
    ],
)
def test_bad_input(tmp_path: Path, content: bytes | None, said: str) -> None:
    """Exit code 2, the reason, and nothing on stdout."""
    file = tmp_path / "job.yaml"
    if content is not None:
        file.write_bytes(content)
    result = elastic_infra("import", file)

    assert (result.code, result.out) == (2, "")
    assert said in result.err
