"""Whatever a file holds: 0 or 2, every fault on a line of its own, no traceback, no leaked value, nothing written."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from elastic_infra import ConfigError, render
from elastic_infra.cli.files import named_config
from elastic_infra.config import warnings
from elastic_infra.config.load import MAX_FILE_BYTES
from elastic_infra.config.yaml_text import read_yaml
from tests.cli import elastic_infra

JOB: Final = "image: i\nscript: s\n"

LAUGHS: Final = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{last}'] * 9)}]\n" for last, name in zip("abcdefghij", "bcdefghijk", strict=True)
)
MERGED_LAUGHS: Final = "a: &a {x: x}\n" + "".join(
    f"{name}: &{name} {{<<: [{','.join([f'*{last}'] * 9)}]}}\n"
    for last, name in zip("abcdefghij", "bcdefghijk", strict=True)
)

TEXTS: Final[Mapping[str, tuple[str | bytes, str]]] = {
    "empty": ("", "is empty"),
    "a list": ("- a\n", "is not a mapping"),
    "a text": ("hello\n", "is not a mapping"),
    "binary": (b"\x7fELF\x02\x01\x01\x00\xff\xfe", "is not"),
    "utf-16": (JOB.encode("utf-16"), "is not UTF-8 text (byte 0)"),
    "a control character": (JOB + "namespace: \x07\n", "a character that YAML does not allow"),
    "a tab as indentation": (JOB + "elastic:\n\tnnodes: 2\n", "at line 4, column 1"),
    "an open bracket": (JOB + "args: [a, b\n", "at line 4, column 1: did not find expected ',' or ']'"),
    "an open quote": (JOB + 'namespace: "a\n', "at line 4, column 1"),
    "two documents": (JOB + "---\n" + JOB, "at line 3, column 1"),
    "a tag": (JOB + "namespace: !secret hunter2\n", "at line 3, column 12: a tag"),
    "a Python object": (JOB + "args: !!python/object/apply:os.system [id]\n", "at line 3, column 7: a tag"),
    "an unknown alias": (JOB + "namespace: *hunter2\n", "at line 3, column 12: found undefined alias"),
    "an alias to itself": (JOB + "env: &a {b: *a}\n", "or for itself"),
    "aliases to aliases": (JOB + LAUGHS, "stands for more than"),
    "merged aliases": (JOB + MERGED_LAUGHS, "stands for more than"),
    "deep lists": ("[" * 200_000, "nested deeper than"),
    "deep mappings": ("{a: " * 100_000, "nested deeper than"),
    "deep blocks": ("- " * 200_000, "nested deeper than"),
    "a key twice": (JOB + "image: j\n", "a key is given twice"),
    "a key that is a list": ("? [a]\n: b\n", "at line 1, column 3: a key must be plain text"),
    "a huge number": (JOB + "wait_timeout_seconds: " + "9" * 10_000, "wait_timeout_seconds: "),
    "no number": (JOB + "wait_timeout_seconds: .nan\n", "wait_timeout_seconds: "),
    "infinity": (JOB + "elastic: {monitor_interval: .inf}\n", "elastic.monitor_interval: "),
    "a number for a mapping": (JOB + "elastic: 3\n", "elastic: must be a mapping"),
    "a mapping for a list": (JOB + "args: {a: b}\n", "args: must be a list"),
    "a list for a text": (JOB + "namespace: [a]\n", "namespace: must be a string"),
    "true for a number": (JOB + "elastic: {max_restarts: true}\n", "elastic.max_restarts: "),
    "null for an image": ("image: null\nscript: s\n", "image: "),
    "an unknown key": (JOB + "elastik: {}\n", "elastik: is not a known key. Did you mean 'elastic'?"),
    "an unknown key inside": (JOB + "storage: {volumes: [{nam: x}]}\n", "storage.volumes[0].nam: is not a known key."),
    "a missing key": ("script: s\n", "image: is required"),
    "nothing to run": ("image: i\n", "script: exactly one of"),
}


@pytest.mark.parametrize("case", TEXTS)
@pytest.mark.parametrize("command", ["render", "validate", "explain"])
def test_bad_text_is_a_fault_with_its_place(tmp_path: Path, command: str, case: str) -> None:
    """Each says where and what, quickly, and quotes no value."""
    content, said = TEXTS[case]
    file = tmp_path / "train.yaml"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    result = elastic_infra(command, file)

    assert (result.code, result.out) == (2, "")
    assert said in result.err
    assert all(line.startswith(f"{file}: ") for line in result.err.splitlines())
    assert "hunter2" not in result.err
    assert len(result.err) < 2000
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("command", ["render", "validate", "explain"])
@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("missing.yaml", "cannot be read: No such file or directory."),
        (".", ""),
        ("/proc/self/mem", "cannot be read: Input/output error."),
        ("x" * 300, "cannot be read: File name too long."),
    ],
)
def test_what_cannot_be_read_is_said(tmp_path: Path, command: str, path: str, said: str) -> None:
    """The system's own reason, beside the file's name."""
    result = elastic_infra(command, tmp_path / path)

    if path == ".":  # `render` takes folders
        said = "holds no job file." if command == "render" else "cannot be read: Is a directory."

    assert (result.code, result.out) == (2, "")
    assert said in result.err
    assert list(tmp_path.iterdir()) == []


def test_a_huge_file_is_not_read_whole(tmp_path: Path) -> None:
    """A job is a page or two; a terabyte by mistake costs neither memory nor time."""
    file = tmp_path / "train.yaml"
    with file.open("wb") as sparse:
        sparse.truncate(2**40)
    result = elastic_infra("validate", file)

    assert result.code == 2
    assert f"is larger than {MAX_FILE_BYTES} bytes" in result.err


SECRET: Final = "s3cr3t-hunter2-t0ken"
MARK: Final = "hunter2"

VICTIM: Final = f"""\
image: registry.example.com/llm:1
namespace: research
script: train.py
args: ["--epochs", "3", "--token={SECRET}"]
env:
  DATASET: /data
  PASSWORD: {SECRET}
  TOKEN: {{value: "{SECRET}"}}
  HF_TOKEN: {{secret: hf, key: token}}
annotations: {{example.com/note: "{SECRET}"}}
elastic: {{nnodes: "2:6", nproc_per_node: 8, max_restarts: 5, rdzv_configs: {{timeout: 900}}}}
runtime: {{nccl_heartbeat_timeout_sec: 300, hang_timeout_seconds: auto}}
resources: {{cpu: "64", memory: 512Gi, gpu: {{vendor: nvidia, count: 8}}}}
shared_memory: {{size: 64Gi}}
autoscaling:
  metrics: &metrics
    - {{type: cpu, target: 80}}
    - {{type: external, name: queue, target: 3, selector: {{team: a}}}}
run_policy: {{clean_pod_policy: Running, backoff_limit: 18, on_restart: refuse}}
placement:
  node_selector: {{pool: training}}
  tolerations: [{{key: gpu, operator: Equal, value: "yes", effect: NoSchedule}}]
  affinity: {{podAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: []}}}}
storage:
  checkpoint: {{size: 1Ti, storage_class: fast}}
  volumes: [{{name: data, claim: data}}]
  mounts: [{{volume: data, mount_path: /data, read_only: true}}]
"""

Mutation = Callable[[random.Random], bytes]


def mutated_bytes(draw: random.Random) -> bytes:
    """The text with one to four small injuries."""
    text = VICTIM
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(text))
        end = min(len(text), at + draw.choice((1, 1, 2, 5, 20, 100)))
        piece = draw.choice(
            ["", "", *"{}[]:,#&*!|>'\"%@`-? \t\n\0", "\n  ", ": ", "<<: ", "é", "\ud83d", text[at:end] * 2, SECRET]
        )
        text = text[:at] + piece + text[end if draw.random() < 0.7 else at :]
    damaged = text.encode("utf-8", "surrogatepass")
    return damaged if draw.random() < 0.95 else damaged + bytes([draw.randrange(256)])


VALUES: Final[tuple[Any, ...]] = (
    *(
        None,
        True,
        False,
        0,
        -1,
        1,
        3,
        7.5,
        2**31,
        2**64,
        10**40,
        1e308,
        float("inf"),
        float("nan"),
        "",
        " ",
        "x" * 40_000,
    ),
    *(
        "1:2",
        "0",
        "-1",
        "9" * 30,
        "1e3",
        "auto",
        "off",
        "é",
        "a\nb",
        "/",
        "..",
        "{}",
        SECRET,
        [],
        {},
        [[]],
        [None],
        [SECRET],
    ),
    *({"a": {"b": {"c": [1, 2, {"d": SECRET}]}}}, {SECRET + "x": 1}, {"value": SECRET}, {"size": "1Gi"}, {"count": 2}),
)


def mutated_structure(draw: random.Random) -> bytes:
    """The document with one to three keys or values exchanged."""
    data = copy.deepcopy(STRUCTURE)
    for _ in range(draw.randint(1, 3)):
        holder, key = draw.choice(list(places(data)))
        action = draw.randrange(5)
        if action == 0:
            del holder[key]
        elif action == 1 and isinstance(holder, dict):
            holder[draw.choice(("", "x", "imag", "nnode", "Value", "é", "a b", "type"))] = holder.pop(key)
        elif action == 2:
            holder[key] = copy.deepcopy(draw.choice(list(places(data)))[0])
        else:
            holder[key] = copy.deepcopy(draw.choice(VALUES))
    return yaml.dump(data, Dumper=yaml.CSafeDumper).encode()


STRUCTURE: Final[dict[str, Any]] = json.loads(json.dumps(yaml.safe_load(VICTIM)))


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every holder and key of a document."""
    items: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    for key, inner in items:
        yield value, key
        yield from places(inner)


@pytest.mark.parametrize("mutated", [mutated_bytes, mutated_structure])
@pytest.mark.parametrize("seed", range(5))
def test_mutated_files_give_manifests_or_faults(tmp_path: Path, mutated: Mutation, seed: int) -> None:
    """Ten thousand damaged files: each becomes manifests or a ConfigError, and no message quotes a value."""
    draw = random.Random(seed)
    file = tmp_path / "train.yaml"
    refused = 0
    for _ in range(1000):
        content = mutated(draw)
        file.write_bytes(content)
        said = messages(file)
        refused += said.startswith("refused")
        if MARK in said:
            assert MARK in " ".join(keys(content)), said
    assert 100 < refused < 1000
    assert list(tmp_path.iterdir()) == [file]


def messages(file: Path) -> str:
    """All that a command would say about a file."""
    try:
        name, config = named_config(file, None, None)
        render(name, config)
    except ConfigError as error:
        return f"refused\n{error}"
    return "\n".join(map(str, warnings(config)))


def keys(content: bytes) -> Iterator[str]:
    """Every key of a document: a message names keys, and damage can make a key of what was a value."""
    try:
        found = list(places(read_yaml(content.decode("utf-8-sig"))))
    except (ConfigError, UnicodeDecodeError):
        return
    yield from (str(key) for _, key in found)


def test_the_undamaged_file_is_valid(tmp_path: Path) -> None:
    """The victim itself has no fault, or the damage would prove nothing."""
    file = tmp_path / "train.yaml"
    file.write_text(VICTIM)

    assert elastic_infra("validate", file).code == 0
