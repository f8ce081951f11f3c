"""The part of a training loop that every script repeats: restore, report, snapshot, leave at the agreed step.

``Elastic`` keeps the global batch while nodes come and go (accumulation adapts to the number of workers), takes
snapshots to memory and disk, and tells the launcher of every step. Outside the launcher it behaves as a plain loop.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Final

import torch

from .progress import Progress
from .sampler import ElasticSampler, MicroBatch
from .state import ElasticState, Restored

MEMORY_SHARE: Final = 0.01
"""Of the training time, for copies to memory where the script names no interval."""


@dataclasses.dataclass(frozen=True)
class Snapshots:
    """How often the state is kept."""

    memory_steps: int | None = None
    """Steps between two snapshots in the node's memory: what a lost worker costs. None: as many as keep the time of
    copying below a hundredth of the training, which is every step where the state is small."""
    durable_seconds: float = 600.0
    """Seconds between two snapshots on disk: what the loss of all nodes costs. 600 s, a common interval."""
    durable_steps: int | None = None
    """Steps between two snapshots on disk instead, where the script wants them at fixed steps."""


class Elastic:
    """Runs a training loop's steps.

    Usage::

        sampler = ElasticSampler(dataset, global_batch=512)
        state = ElasticState("/checkpoints", model=model, optimizer=optimizer, data=sampler)
        elastic = Elastic(state, DataLoader(dataset, batch_sampler=sampler))
        for step, micro in elastic.steps(until=10_000):
            with elastic.step():
                for (images, labels), sync in micro:
                    with sync:
                        elastic.backward(loss(model(images), labels))
                optimizer.step()
                optimizer.zero_grad()
        if elastic.finished:
            export(model)

    Args:
        state: what training goes on from; its ``data`` is the sampler, where there is one.
        loader: gives the micro-batches in the sampler's order: a ``DataLoader`` with ``batch_sampler=sampler``. None:
            the script reads its data itself, and ``micro`` is empty.
        snapshots: how often the state is kept.
    """

    def __init__(
        self, state: ElasticState, loader: Iterable[Any] | None = None, snapshots: Snapshots | None = None
    ) -> None:
        self.state = state
        self.progress = Progress()
        self.restored: Restored | None = None
        """Where training went on from; None before ``steps`` began."""
        self.stopped = False
        """The launcher asked all ranks to stop at this step: nodes come or go, and training goes on with them."""
        self.finished = False
        """All steps are done: time to evaluate and export."""
        self._loader = loader
        self._snapshots = snapshots or Snapshots()
        self._durable_at = time.monotonic()
        self._memory_due = 0.0
        """CLOCK_MONOTONIC from which a snapshot in memory costs less than its share."""
        self._micro: MicroBatch | None = None
        self._done = False

    def steps(self, until: int) -> Iterator[tuple[int, Iterator[tuple[Any, AbstractContextManager[None]]]]]:
        """Restore the state, then give every step that is left with its micro-batches.

        Args:
            until: steps of the whole training.

        Raises:
            RuntimeError: the loop went on without ``with elastic.step()`` around the step's work.
        """
        self.restored = self.state.restore()
        batches = iter(self._loader) if self._loader is not None else iter(())
        while self.state.step < until and not self.stopped:
            self._done = False
            yield self.state.step + 1, self._micro_batches(batches)
            if not self._done:
                message = "A step ended outside of `with elastic.step():`. Put the whole step into it."
                raise RuntimeError(message)
        self.state.wait()
        self.finished = self.state.step >= until

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """One step: what happens inside belongs to the step as a whole, optimizer and all."""
        yield
        self.state.step += 1
        sampler = self._sampler()
        if sampler is not None:
            sampler.advance()
        self._done = True
        self.stopped = self.progress.step(self.state.step)
        self._keep()

    def backward(self, loss: torch.Tensor) -> None:
        """Backward of a micro-batch's **mean** loss, weighted so that the gradients are the global batch's."""
        weight = self._micro.weight if self._micro is not None else 1.0
        (loss * weight).backward()

    def phase(self, name: str, timeout: float | None = None) -> AbstractContextManager[None]:
        """Work without steps (loading, evaluating): see ``Progress.phase``."""
        return self.progress.phase(name, timeout)

    def run(self, train_step: Callable[[ElasticState], None], until: int) -> bool:
        """The loop for a step that reads its own data; returns whether all steps are done."""
        for _ in self.steps(until):
            with self.step():
                train_step(self.state)
        return self.finished

    def _keep(self) -> None:
        step = self.state.step
        durable = self.stopped or self._durable_is_due(step)
        if durable or self._memory_is_due(step):
            begin = time.monotonic()
            self.state.snapshot(durable=durable, saved=self.progress.checkpoint)
            end = time.monotonic()
            self._memory_due = end + (end - begin) / MEMORY_SHARE
        if durable:
            self._durable_at = time.monotonic()

    def _memory_is_due(self, step: int) -> bool:
        if self._snapshots.memory_steps is not None:
            return step % self._snapshots.memory_steps == 0
        return time.monotonic() >= self._memory_due

    def _durable_is_due(self, step: int) -> bool:
        if self._snapshots.durable_steps is not None:
            return step % self._snapshots.durable_steps == 0
        return time.monotonic() - self._durable_at >= self._snapshots.durable_seconds

    def _micro_batches(self, batches: Iterator[Any]) -> Iterator[tuple[Any, AbstractContextManager[None]]]:
        sampler = self._sampler()
        if sampler is None:
            return
        plan = sampler.step()
        for number, micro in enumerate(plan, 1):
            self._micro = micro
            yield next(batches), self._sync(last=number == len(plan))

    def _sync(self, *, last: bool) -> AbstractContextManager[None]:
        """Gradients are exchanged once a step, with the last micro-batch."""
        model = self.state.members.get("model")
        if last or not hasattr(model, "no_sync"):
            return contextlib.nullcontext()
        context: AbstractContextManager[None] = model.no_sync()
        return context

    def _sampler(self) -> ElasticSampler | None:
        data = self.state.members.get("data")
        return data if isinstance(data, ElasticSampler) else None
