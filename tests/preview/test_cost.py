"""What a comparison of two large folders costs."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.preview.repositories import write

JOBS = 200
JOB = """
image: registry.example.com/team/train:{tag}
namespace: research
script: train.py
args: ["--config", "configs/{index}.yaml", "--epochs", "3"]
env:
  DATASET: /data
  SEED: "{index}"
  HF_TOKEN: {{secret: hf, key: token}}
elastic: {{nnodes: "2:{most}", nproc_per_node: 8, max_restarts: 5, rdzv_configs: {{timeout: 900, join_timeout: 900}}}}
resources: {{cpu: "64", memory: 512Gi, gpu: {{vendor: nvidia, count: 8}}}}
shared_memory: {{size: 64Gi}}
storage:
  checkpoint: {{claim: checkpoints}}
  volumes: [{{name: data, claim: data}}]
  mounts: [{{volume: data, mount_path: /data, read_only: true}}]
placement: {{priority_class: batch, node_selector: {{gpu: h100}}}}
autoscaling: {{metrics: [{{type: cpu, target: {target}}}]}}
run_policy: {{clean_pod_policy: Running, backoff_limit: 18}}
"""
MEASURE = """
import resource, runpy, sys
sys.argv = ["elastic-infra", "diff", "base", "head", "--format", "markdown"]
try:
    from elastic_infra.cli import main
    main()
finally:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
"""


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """Two folders; every job differs in three places."""
    for side, tag, most, target in (("base", 1, 6, 80), ("head", 2, 8, 70)):
        texts = {
            f"{side}/team-{i % 8}/job-{i}.yaml": JOB.format(index=i, tag=tag, most=most, target=target)
            for i in range(JOBS)
        }
        write(tmp_path, texts)
    return tmp_path


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_two_hundred_jobs_take_a_moment(folders: Path) -> None:
    """Processor time, which others on the machine do not lengthen: 2 s are asked for, thrice that fails here."""
    before, start = _processor_seconds(), time.monotonic()
    done = subprocess.run([sys.executable, "-c", MEASURE], cwd=folders, capture_output=True, text=True, check=False)
    seconds, wall = _processor_seconds() - before, time.monotonic() - start
    memory = int(done.stderr.splitlines()[-1]) / 1024

    assert "**200 restarts**" in done.stdout, done.stderr[-2000:]
    assert len(done.stdout) <= 65_536
    assert seconds <= 6, f"{seconds:.2f} s of processor time ({wall:.2f} s in all)"
    assert memory <= 200, f"{memory:.0f} MiB"
