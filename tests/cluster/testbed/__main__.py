"""`python -m tests.cluster.testbed up|down|status [--dir DIR]`: a real Kubernetes on this machine, for tests."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.cluster.testbed import lifecycle

DEFAULT_DIR = Path("/tmp/elastic-infra-cluster")  # fixed, so that `down` finds what `up` made


def main(arguments: list[str]) -> int:
    """Returns the exit status: 0 for done (`status`: the cluster is whole), 1 otherwise."""
    parser = argparse.ArgumentParser(prog="tests.cluster.testbed", description=__doc__)
    parser.add_argument("verb", choices=("up", "down", "status"))
    parser.add_argument("--dir", type=Path, default=DEFAULT_DIR, help="the cluster's folder (%(default)s)")
    options = parser.parse_args(arguments)
    root = options.dir.resolve()
    try:
        if options.verb == "status":
            text, whole = lifecycle.status(root)
            _say(text)
            return 0 if whole else 1
        if options.verb == "down":
            for each in lifecycle.folders(root):
                lifecycle.down(each, _say)
        else:
            testbed = lifecycle.up(root, _say)
            _say(f"export KUBECONFIG={testbed.kubeconfig}")
    except lifecycle.BedError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
