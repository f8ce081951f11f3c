"""Where the process of a test script ends itself by SIGKILL, as if a fault had struck it there.

A fault is ``WHEN:POINT`` or ``WHEN:POINT:NUMBER``. In a step WHEN: ``forward``, ``backward`` (in front of the last
gradient, with others under way), ``bucket`` (in front of the exchange of DDP's bucket NUMBER, from 0), ``optimizer``,
``metric`` (in front of an exchange after the optimizer's step, which the script must make).
While the process enters generation WHEN: ``meeting`` (in front of the store), ``making`` (its address is in the store,
and its peers connect to it), ``settling`` and ``settled`` (before and after all say what they hold), ``receiving`` (it
has NUMBER of the tensors in which the state comes), ``sending`` (a part of the NUMBERth is on its way).
"""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from elastic_infra.training import regroup

Function = Callable[..., Any]


@dataclass(frozen=True)
class Fault:
    """One fault of this process; without a point there is none."""

    when: int = -1
    point: str = ""
    number: int = 1

    @classmethod
    def parse(cls, text: str) -> Fault:
        """From a command line."""
        when, point, *number = text.split(":")
        return cls(int(when), point, *map(int, number))

    def strike_at_bucket(self, model: DistributedDataParallel, step: Callable[[], int]) -> None:
        """Exchange gradients as DDP does, until the bucket of the step."""

        def exchange(bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
            if bucket.index() == self.number and step() == self.when:
                end()
            return allreduce_hook(None, bucket)

        if self.point == "bucket":
            model.register_comm_hook(None, lambda _, bucket: exchange(bucket))  # DDP refuses annotations that are text

    def strike_on_entry(self, generation: Callable[[], int]) -> None:
        """Watch those functions of torch that a process calls at the point."""
        owner, name, watch = {
            "meeting": (dist, "TCPStore", _before),
            "making": (dist, "PrefixStore", _after_writing),
            "settling": (dist, "all_gather_object", _before),
            "settled": (dist, "all_gather_object", _after),
            "receiving": (dist, "recv", _after),
            "sending": (dist, "send", _amid_sending),
        }.get(self.point, (None, "", _before))
        calls = itertools.count(1)

        def is_due() -> bool:
            return generation() == self.when and next(calls) == self.number

        if owner is not None:
            setattr(owner, name, watch(getattr(owner, name), is_due))


def end() -> None:
    """End this process, here and now."""
    os.kill(os.getpid(), signal.SIGKILL)


def _before(function: Function, is_due: Callable[[], bool]) -> Function:
    def watched(*arguments: Any, **options: Any) -> Any:
        if is_due():
            end()
        return function(*arguments, **options)

    return watched


def _after(function: Function, is_due: Callable[[], bool]) -> Function:
    def watched(*arguments: Any, **options: Any) -> Any:
        result = function(*arguments, **options)
        if is_due():
            end()
        return result

    return watched


def _amid_sending(send: Function, is_due: Callable[[], bool]) -> Function:
    def watched(*arguments: Any, **options: Any) -> None:
        if is_due():
            dist.isend(*arguments, **options)
            end()
        send(*arguments, **options)

    return watched


def _after_writing(prefixed: Function, is_due: Callable[[], bool]) -> Function:
    return lambda prefix, store: _Watched(prefixed(prefix, store), is_due)


class _Watched(regroup._Pointed):
    """A store into which a process writes its address for its peers."""

    def __init__(self, target: dist.Store, is_due: Callable[[], bool]) -> None:
        super().__init__()
        self.target = target
        self._set = _after(target.set, is_due)

    def set(self, key: str, value: str) -> None:
        self._set(key, value)
