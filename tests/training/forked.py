"""Runs scripts in processes forked from one that has imported torch: importing it takes seconds each time."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess

LOADED = (
    "torch",
    "torch.distributed",
    "torch.distributed.fsdp",
    "torch.nn.parallel",
    "torch.utils.data",
    "torch._dynamo",
    "tests.training.forked",
)


def context() -> ForkServerContext:
    """The server starts with the first process, in the environment that there is then."""
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload(list(LOADED))
    return forks


def start(
    forks: ForkServerContext, argv: Sequence[str], environ: Mapping[str, str], log: str | os.PathLike[str]
) -> BaseProcess:
    """Run a script with its arguments."""
    process = forks.Process(target=_run, args=(list(argv), dict(environ), str(log)))
    process.start()
    return process


def _run(argv: list[str], environ: dict[str, str], log: str) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.environ.update(environ)
    sys.argv = argv
    runpy.run_path(argv[0], run_name="__main__")
