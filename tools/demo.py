"""The main job on real input, step by step: what `make demo` runs once set-up is done."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from tools.run import ROOT

JOB: Final = "examples/quickstart/job.yaml"
OURS: Final = str(Path(sys.executable).with_name("elastic-infra"))

STEPS: Final = (
    ("What the API server gets", f"elastic-infra render {JOB} --short", (OURS, "render", JOB, "--short")),
    ("What it means", f"elastic-infra explain {JOB}", (OURS, "explain", JOB)),
    ("What `pulumi up` would do", "pulumi preview", (sys.executable, "-m", "tools.preview_demo")),
)
"""Title, what a user types for it, what runs here."""

NEXT: Final = f"""
Next, on a cluster of yours (kubectl reaches it, and the Kubeflow training operator runs there):

  docker build -t IMAGE examples/quickstart && docker push IMAGE
  sed -i 's|registry.example.com/digits:1|IMAGE|' examples/quickstart/__main__.py
  source .venv/bin/activate && pulumi up

A job of your own: copy {JOB}, then `elastic-infra validate` and `elastic-infra explain` it.
"""


def main() -> int:
    """Run the steps; the first failure ends the demo with its exit code."""
    for title, typed, command in STEPS:
        print(f"\n== {title}: {typed}\n", flush=True)
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
        if code:
            print(f"\nThe demo ends here: `{typed}` failed with exit code {code}.", file=sys.stderr)
            return code
    print(NEXT, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
