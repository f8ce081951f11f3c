"""Explores the membership protocol's scenarios one by one, and tells how large each is.

    python -m tests.launcher.protocol --out benchmarks/launcher/CHECKER.json

Each scenario has a process of its own, so that the memory of one is free for the next. The file and its page are
written after each: a run that is stopped has what it has found.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Final

from benchmarks.common import results
from tests.launcher.protocol import checker
from tests.launcher.protocol.page import document
from tests.launcher.protocol.test_model import BEYOND, DEEP, FIRST, LIMIT, MOVES, SCENARIOS, explore

PARTS: Final = {"test": SCENARIOS | MOVES, "deep": DEEP, "beyond": BEYOND}


def main(arguments: Sequence[str]) -> int:
    """Explore, and print or write what was found."""
    options = _parser().parse_args(arguments)
    machine = results.machine(results.command("tests.launcher.protocol", arguments))
    chosen = [(part, name) for part, every in PARTS.items() for name in every if options.only in name]
    scenarios: list[dict[str, Any]] = []
    for part, name in chosen:
        scenarios.append(_explored(part, name, FIRST if part == "beyond" else options.limit))
        print(scenarios[-1], flush=True)
        if options.out:
            results.save(options.out, {"machine": machine, "chosen": len(chosen), "scenarios": scenarios}, document)
    return 0


def _explored(part: str, name: str, limit: int) -> dict[str, Any]:
    begin = time.monotonic()
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as process:
        states, transitions = process.submit(_explore, part, name, limit).result()
    seconds = round(time.monotonic() - begin, 1)
    return {"part": part, "name": name, "states": states, "transitions": transitions, "seconds": seconds}


def _explore(part: str, name: str, limit: int) -> tuple[int, int | None]:
    """The numbers of states and transitions; of a scenario beyond the limit this and None.

    Raises:
        BrokenError: a state breaks a law, or has no way out.
    """
    try:
        explored = explore(PARTS[part][name], limit)
    except checker.TooManyError:
        return limit, None
    return explored.states, explored.transitions


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m tests.launcher.protocol", description=__doc__)
    parser.add_argument("--only", default="", help="scenarios whose name holds this text")
    parser.add_argument("--limit", type=int, default=LIMIT, help="of states, which a scenario may have")
    parser.add_argument("--out", type=Path, help="JSON of the figures, with the page beside it")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
