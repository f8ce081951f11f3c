"""The main job on real input, step by step: what `make demo` runs once set-up is done.

Renders, explains and previews one job, then runs it here: with a node that comes and one that is lost, and once more
left alone. Both have to end with the same weights. A second job trains in place: the workers of its first two nodes
have to keep their processes while a third node comes and is lost.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from tools.run import ROOT

JOB: Final = "examples/quickstart/job.yaml"
FAULTS: Final = "1s scale 3; +1s kill node 1"
"""Seconds of training, so that they fall into it on slow machines and on fast ones."""

NEVER_STOPS: Final = "examples/never-stops"
STEPS_OF_NEVER_STOPS: Final = ('"10000"', '"1500", "--pause", "0.01"')
"""As the example has them, and as the demo does: fewer, and slow enough for all to come on a fast machine."""
NEWCOMER: Final = "1s scale 3; +1s kill node 2"
"""The third node comes, and is lost."""

FOLDER: Final = ".demo"
"""Folder of the runs, below the root; recreated each time, since a run in an old folder would resume."""
DISTURBED: Final = f"{FOLDER}/disturbed"
LEFT_ALONE: Final = f"{FOLDER}/left-alone"
SHORT: Final = f"{FOLDER}/never-stops"
"""A copy of the example with fewer steps."""
IN_PLACE: Final = f"{FOLDER}/in-place"
PICTURE: Final = f"{FOLDER}/timeline.svg"

STEPS: Final = (
    ("What the API server gets", ("elastic-infra", "render", JOB, "--short")),
    ("What it means", ("elastic-infra", "explain", JOB)),
    ("What `pulumi up` would do", ("pulumi", "preview")),
    (
        "Run it here; a node comes, another is lost",
        ("elastic-infra", "run", JOB, "--nodes", "2", "--faults", FAULTS, "--workdir", DISTURBED),
    ),
    ("Once more, left alone", ("elastic-infra", "run", JOB, "--nodes", "2", "--workdir", LEFT_ALONE)),
    ("A picture of the first run", ("elastic-infra", "timeline", f"{DISTURBED}/events", "-o", PICTURE)),
    (
        "Another job, whose processes stay",
        ("elastic-infra", "run", f"{SHORT}/job.yaml", "--nodes", "2", "--faults", NEWCOMER, "--workdir", IN_PLACE),
    ),
)
"""Title, and what a user types for it."""

NEXT: Final = f"""
Next, on a cluster of yours (kubectl reaches it, and the Kubeflow training operator runs there):

  docker build -t IMAGE examples/quickstart && docker push IMAGE
  sed -i 's|registry.example.com/digits:1|IMAGE|' examples/quickstart/__main__.py
  source .venv/bin/activate && pulumi up

A job of your own: copy {JOB}, then `elastic-infra validate`, `explain` and `run` it.
"""


@dataclasses.dataclass(frozen=True)
class Training:
    """What a run's logs say.

    Attributes:
        resumed: the steps at which training went on from a checkpoint, in order.
        result: accuracy and checksum of the weights; empty where there is none.
    """

    resumed: tuple[int, ...]
    result: str


@dataclasses.dataclass(frozen=True, order=True)
class Place:
    """What a worker says whenever its process group has changed: its first step there, and its rank."""

    step: int
    world: int
    rank: int
    process: int


def main() -> int:
    """Run the steps; the first failure ends the demo with its exit code."""
    shutil.rmtree(ROOT / FOLDER, ignore_errors=True)
    shorten(ROOT / NEVER_STOPS, ROOT / SHORT)
    for title, typed in STEPS:
        print(f"\n== {title}: {shlex.join(typed)}\n", flush=True)
        code = subprocess.run(command(typed), cwd=ROOT, check=False).returncode
        if code:
            print(f"\nThe demo ends here: `{shlex.join(typed)}` failed with exit code {code}.", file=sys.stderr)
            return code
    fault = compare(read(ROOT / DISTURBED / "logs"), read(ROOT / LEFT_ALONE / "logs"))
    fault = fault or follow(places(ROOT / IN_PLACE / "logs"))
    print(f"\nThe demo ends here: {fault}" if fault else NEXT, end="\n" if fault else "")
    return int(bool(fault))


def command(typed: tuple[str, ...]) -> tuple[str, ...]:
    """What runs here for what a user types: this environment's program, and a stand-in for the cluster of a preview."""
    program, *arguments = typed
    if program == "pulumi":
        return (sys.executable, "-m", "tools.preview_demo")
    return (str(Path(sys.executable).with_name(program)), *arguments)


def read(logs: Path) -> Training:
    """What the nodes of a run printed."""
    text = "\n".join(path.read_text(errors="replace") for path in sorted(logs.glob("node-*.log")))
    starts = sorted(int(step) for step in re.findall(r"^starting at step (\d+)", text, re.MULTILINE))
    results = re.findall(r"^accuracy .+", text, re.MULTILINE)
    return Training(tuple(step for step in starts if step), results[-1] if results else "")


def compare(disturbed: Training, left_alone: Training) -> str:
    """Print both results; why they do not show what they should, or nothing."""
    print("\n== What came out\n")
    print(f"  with a new and a lost node   {disturbed.result}")
    print(f"  left alone                   {left_alone.result}")
    if disturbed.result != left_alone.result or not disturbed.result:
        return f"the results differ. The logs are in {FOLDER}."
    if not disturbed.resumed:
        return f"training was over before the faults came. Give it more --epochs in {JOB}."
    steps = ", ".join(map(str, disturbed.resumed))
    print(f"\nThe same to the last bit; training went on from its checkpoints at step {steps}.")
    print(f"The picture: {PICTURE}")
    return ""


def shorten(example: Path, copy: Path) -> None:
    """Copy an example, with fewer steps."""
    shutil.copytree(example, copy)
    job = copy / "job.yaml"
    job.write_text(job.read_text().replace(*STEPS_OF_NEVER_STOPS))


def places(logs: Path) -> tuple[Place, ...]:
    """The places of all workers of a run, by their steps."""
    text = "\n".join(path.read_text(errors="replace") for path in logs.glob("node-*.log"))
    found = re.findall(r"^step (\d+): process (\d+) is rank (\d+) of (\d+)$", text, re.MULTILINE)
    return tuple(sorted(Place(int(step), int(world), int(rank), int(pid)) for step, pid, rank, world in found))


def follow(found: tuple[Place, ...]) -> str:
    """Print who was where; why the first workers did not stay while others came and went, or nothing."""
    print("\n== Who stayed\n")
    for place in found:
        print(f"  step {place.step:5d}: process {place.process} is rank {place.rank} of {place.world}")
    worlds = [place.world for place in found]
    if max(worlds) == worlds[0] or not any(after < before for before, after in itertools.pairwise(worlds)):
        return "training was over before the third node came and was lost. Give it more steps in tools/demo.py."
    first, last = ({place.process for place in found if place.step == end.step} for end in (found[0], found[-1]))
    if first - last:
        return f"process {min(first - last)} did not stay. The logs are in {IN_PLACE}."
    pids = " and ".join(map(str, sorted(first)))
    print(f"\nProcesses {pids} trained from the first step to the last, while another node came and was lost.")
    return ""


if __name__ == "__main__":
    sys.exit(main())
