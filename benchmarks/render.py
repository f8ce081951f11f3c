"""What rendering costs: `render` of one job in a warm process, the CLI and the imports against a bare peer.

    python -m benchmarks.render [ROUNDS]

Both sides of a ratio run in turn, with the same warm bytecode cache, and each ratio is the median of paired ratios: a
busy machine moves both. Times are CPU seconds of the child process, user and system.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
JOB: Final = ROOT / "examples/quickstart/job.yaml"
CLI: Final = Path(sys.executable).with_name("elastic-infra")

BARE: Final = [sys.executable, "-c", "pass"]
PEER: Final = [sys.executable, "-c", "import pydantic, yaml"]
RENDER: Final = [str(CLI), "render", str(JOB)]
IMPORT: Final = [sys.executable, "-c", "import elastic_infra"]
MODEL: Final = [
    sys.executable,
    "-c",
    "from pydantic import BaseModel\nimport yaml\nclass Job(BaseModel):\n  image: str",
]

MAX_RENDER_MILLISECONDS: Final = 5
MAX_CLI_RATIO: Final = 3


def main(arguments: Sequence[str]) -> int:
    """Print the figures; 1 when one is beyond its aim."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.render")
    parser.add_argument("rounds", type=int, nargs="?", default=21, metavar="ROUNDS", help="%(default)s by default")
    rounds = parser.parse_args(arguments).rounds
    with tempfile.TemporaryDirectory() as cache:
        environ = {**os.environ, "PYTHONPYCACHEPREFIX": cache}
        environ.pop("PYTHONDONTWRITEBYTECODE", None)
        cli = report("elastic-infra render", RENDER, "import pydantic, yaml", PEER, rounds, environ)
        report("elastic-infra render", RENDER, "the same with one model of one field", MODEL, rounds, environ)
        report("import elastic_infra", IMPORT, "python -c pass", BARE, rounds, environ)
    milliseconds = render_milliseconds(rounds)
    print(f"render of one job: median {milliseconds:.2f} ms of {rounds} (aim <= {MAX_RENDER_MILLISECONDS})")
    print(f"CLI ratio: {cli:.2f} (aim <= {MAX_CLI_RATIO})")
    return int(cli > MAX_CLI_RATIO or milliseconds > MAX_RENDER_MILLISECONDS)


def report(name: str, ours: list[str], peer_name: str, peer: list[str], rounds: int, environ: dict[str, str]) -> float:
    """Print both medians; the median of their paired ratios."""
    pairs = [(cpu_seconds(ours, environ), cpu_seconds(peer, environ)) for _ in range(rounds + 1)][1:]
    ratio = statistics.median(mine / other for mine, other in pairs)
    mine, other = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(
        f"{name}: {mine * 1000:.0f} ms; {peer_name}: {other * 1000:.0f} ms; ratio {ratio:.2f} (n={rounds})", flush=True
    )
    return ratio


def cpu_seconds(command: list[str], environ: dict[str, str]) -> float:
    """CPU time of one child, its imports and its end included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environ, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def render_milliseconds(rounds: int) -> float:
    """Median CPU time of one `render` after import and one warm-up, each of a fresh config."""
    from elastic_infra import JobConfig, render
    from elastic_infra.config.load import read_mapping

    data = read_mapping(JOB)
    configs = [JobConfig.from_mapping(data) for _ in range(rounds + 1)]
    times = []
    for config in configs:
        start = time.process_time()
        render("quickstart", config)
        times.append(time.process_time() - start)
    return statistics.median(times[1:]) * 1000


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
