"""The sums of ``sums.py``, by workers that keep their processes when nodes come and go. Needs torch."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from sums import summed  # type: ignore[import-not-found]  # beside this file, where the job runs

from elastic_infra.training import Elastic, ElasticGroup, ElasticState


def main() -> None:
    """Sum step by step; a step that a lost node breaks is done again."""
    folder = Path(os.environ["ELASTIC_INFRA_CHECKPOINT_DIR"])
    group = ElasticGroup.start()
    state = ElasticState(folder / "steps", total=1)
    elastic = Elastic(state, group=group)
    is_told = False
    for step, _ in elastic.steps(until=int(sys.argv[1])):
        with elastic.step():
            state.total, is_told = summed(step, state.total, folder / "finish")
        if is_told:
            break


if __name__ == "__main__":
    main()
