"""Counts to its argument, one step at a time, and goes on where its checkpoint stands. Needs no torch."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from elastic_infra.training import Progress


def main() -> None:
    """Count up, and go on where the last run stopped."""
    saved = Path(os.environ["ELASTIC_INFRA_CHECKPOINT_DIR"]) / "step"
    last, step = int(sys.argv[1]), int(saved.read_text()) if saved.exists() else 0
    progress = Progress()
    while step < last and not saved.with_name("finish").exists():
        step += 1
        time.sleep(0.05)
        if os.environ["RANK"] == "0":
            saved.with_name("draft").write_text(str(step))
            saved.with_name("draft").replace(saved)
        progress.checkpoint(step)
        if progress.step(step):
            break


if __name__ == "__main__":
    main()
