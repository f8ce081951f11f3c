"""Takes far more memory than its node has, once; the worker that follows finds the mark and does not."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    """Take a gigabyte of memory at the first start only."""
    mark = Path(os.environ["ELASTIC_INFRA_CHECKPOINT_DIR"]) / "hogged"
    if mark.exists():
        return
    mark.touch()
    taken = [b"x" * (1 << 24) for _ in range(64)]
    sys.exit(f"{len(taken)} blocks were had")


if __name__ == "__main__":
    main()
