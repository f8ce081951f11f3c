"""The part of a training loop that all scripts share: restore, report, snapshot, leave at the agreed step.

``Elastic`` keeps the global batch while nodes come and go (accumulation adapts to the number of workers), takes
snapshots to memory and disk, and reports every step to the launcher. Outside the launcher it is a plain loop.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Final, Literal

import torch
from torch.nn.parallel import DistributedDataParallel

from ..launcher.workers import channel
from . import generators, preemption, schedule, transfer
from .console import warn_for_job
from .iterable import ElasticIterable
from .neighbour import SHARE
from .outside import Outside
from .process_group import ElasticGroup, rebind
from .progress import Progress
from .sampler import ElasticSampler
from .state import ElasticState, Restored
from .undo import StepUndo

BUSY_SECONDS: Final = 1.0
"""Seconds until rank 0 looks again whether a slow volume has taken the snapshot before."""
MEMORY_SHARE: Final = 0.01
"""Share of the training time for copies to memory, where the script names no interval."""


@dataclasses.dataclass(frozen=True)
class Snapshots:
    """How often ``Elastic`` takes snapshots."""

    memory_steps: int | None = None
    """Steps between two snapshots in the node's memory: the loss of a worker repeats at most so many steps. None: as
    many steps as keep the time of copying below a hundredth of the training, which is every step where the state is
    small, and the sending of shards to other nodes below a fiftieth of one processor of a worker."""
    durable_seconds: float = 600.0
    """Seconds between two snapshots on disk: the loss of all nodes repeats at most this time of training. 600 s by
    default, a common interval."""
    durable_steps: int | None = None
    """Steps between two snapshots on disk, which then replace ``durable_seconds``. None: the time decides."""
    overlap: bool = False
    """Whether snapshots in memory are copied by a thread while the next step computes, so that training does not wait.
    The script then promises that nothing but the ``step`` of an optimizer changes the weights and moments of its
    optimizers between the end of one step and the first ``optimizer.step`` of the next: no clipping of weights, no
    weights that are exchanged for an evaluation. Where the promise is seen to be broken, the snapshot is thrown away
    with a warning, and training waits for the copies from then on; a change by ``.data`` of few numbers is not seen.
    False by default, because only the script's author knows."""


class Elastic:
    """Runs the steps of a training loop.

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
        state: the state from which training goes on; its ``data`` is the sampler, where there is one.
        loader: gives the micro-batches in the sampler's order: a ``DataLoader`` with ``batch_sampler=sampler``, or with
            ``batch_size=None`` around an ``ElasticIterable``. None: the script reads its data itself, and ``micro`` is
            empty.
        snapshots: how often the state is kept.
        group: this process's place in the job, from ``ElasticGroup.start``, where the process is to live on while nodes
        come and go. None: the script made its own process group, and each change starts the workers again.
    """

    _weight = 1.0
    """Of the current micro-batch."""
    _unread: Iterator[Any] | None = None
    """The step's micro-batches after the current one; None before the first one."""

    def __init__(
        self,
        state: ElasticState,
        loader: Iterable[Any] | None = None,
        snapshots: Snapshots | None = None,
        *,
        group: ElasticGroup | None = None,
    ) -> None:
        self.state = state
        self.progress = Progress()
        self.restored: Restored | None = None
        """The snapshot from which training went on; None before ``steps`` began."""
        self.stopped = False
        """Whether the launcher asked all ranks to stop at this step, because nodes come or go and training goes on
        without this process."""
        self.finished = False
        """Whether all steps are done, so that the script evaluates and exports."""
        self._loader = loader
        self._snapshots = snapshots or Snapshots()
        self._durable_at = time.monotonic()
        self._slow_is_told = False
        self._copy_seconds = 0.0
        """Time of the last copy to memory."""
        self._plan = schedule.Plan(0)
        self._begun = (0, 0.0)
        """The step with which this generation began, and CLOCK_MONOTONIC then."""
        self._looked = (0, 0.0)
        """The same of the last look at the clock."""
        self._group = group or ElasticGroup()
        self._group.on_break(functools.partial(state.end_generation, broken=True))
        is_undone = self._group.is_movable and not state.is_rebuilt
        self._undo = StepUndo(state, self._group.confirm) if is_undone else None
        self._outside = Outside(state)
        self._holds = False
        """Whether the members are the state after ``state.step`` whole steps, and not this process's initial state."""
        self._preempted: Callable[[], None] = lambda: None
        self._step: Literal["", "done", "stop", "broken"] = ""
        """How the last step ended: done, done with an agreed stop, or broken so that it is repeated."""

    def steps(self, until: int) -> Iterator[tuple[int, Iterator[tuple[Any, AbstractContextManager[None]]]]]:
        """Restore the state, then yield every remaining step with its micro-batches.

        Args:
            until: number of steps of the whole training.

        Yields:
            The number of the step, from 1, and its micro-batches: each the loader's batch with the context for its
            forward and backward pass; none without a loader.

        Raises:
            RuntimeError: the loop went on without ``with elastic.step()`` around the step's work; the model is sharded
                and neither is there a function that builds it nor was the group made for that; or, in place, a
                DistributedDataParallel trains weights that no member of the state has.
            StateError: the restored snapshot does not fit the state.
            TypeError: the state's ``build`` does not return members by name.
        """
        self._begin()
        batches = self._batches()
        with self._outside.watched():
            while self.state.step < until and not self.stopped:
                self._step, self._unread = "", None
                yield self.state.step + 1, self._micro_batches(batches)
                if not self._step:
                    message = "A step ended outside of `with elastic.step():`. Put the whole step into it."
                    raise RuntimeError(message)
                if self._step in {"stop", "broken"} or self._group.is_broken:
                    self._end_generation()
                    batches = self._batches()
        self._group.leave()
        self.state.wait()
        self.finished = self.state.step >= until
        if self._step and self.stopped and self.progress.leaving:
            self._preempted()

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """One step: the block must hold the whole step, the optimizer's included.

        Where the step breaks because a peer is gone, the error ends here, and the loop repeats the step with the
        members of the next generation. Micro-batches that the block leaves unread are skipped: they count as done.

        Raises:
            RuntimeError: there is a loader, and the block read none of its micro-batches.
        """
        if self._undo is not None:
            self._undo.begin()
        try:
            with self._outside.step():
                try:
                    yield
                finally:
                    self.state.end_copy()
            (self._undo or self._group).confirm()
        except Exception as error:
            if not self._group.takes(error):
                raise
            self._holds = self._undo is not None and self._undo.undo()
            self._step = "broken"
            return
        data = self._data()
        if data is not None:
            self._skip_unread()
            data.advance()
        self.state.step += 1
        samples = data.samples if data is not None else None
        self._step = "stop" if self.progress.step(self.state.step, samples) else "done"
        self.stopped = self._step == "stop" and not self._group.is_movable
        self._agree()
        if self._step == "stop" and self.state.is_rebuilt and self._group.is_movable:
            self._hand_over()
        else:
            self._keep(durable=self.stopped or self._durable_is_due())

    def backward(self, loss: torch.Tensor) -> None:
        """Backward of a micro-batch's **mean** loss, weighted so that the gradients are the global batch's.

        Args:
            loss: a scalar: the mean over the samples of the current micro-batch.
        """
        (loss * self._weight).backward()

    def phase(self, name: str, timeout: float | None = None) -> AbstractContextManager[None]:
        """Suspend the rule about steps during work without steps (loading, evaluating).

        Args:
            name: name of the work, for readers of the script.
            timeout: seconds after which the phase itself counts as a hang; None, the default, means never.
        """
        return self.progress.phase(name, timeout)

    def on_preemption(self, function: Callable[[], object], deadline: float = 10.0) -> None:
        """Have a function called on each rank of a node that was told to leave, such as a preempted one.

        ``steps`` calls it after its last step, once the state is saved where this process saves one. Ranks of other
        nodes do not call it, so it must not use a process group. An error in it is a warning. A worker that is killed,
        or has made no step yet, does not call it, and outside the launcher nobody does.

        Args:
            function: for example uploads a file or writes a line. A later call of this method replaces it.
            deadline: seconds after which the process ends without waiting for the function. 10 by default: a third of
                the usual ``runtime.shutdown_grace_seconds``, from which the last snapshot takes its time too.

        Raises:
            ValueError: the deadline is not positive, or longer than a thread can be waited for.
        """
        if not 0 < deadline <= threading.TIMEOUT_MAX:
            message = f"deadline ({deadline}) must be more than 0 and at most {threading.TIMEOUT_MAX:.0f} seconds."
            raise ValueError(message)
        self._preempted = functools.partial(preemption.call, function, deadline)

    def run(self, train_step: Callable[[ElasticState], None], until: int) -> bool:
        """Run the loop for a step that reads its own data.

        Args:
            train_step: does one whole step, the optimizer's included, on the state's members.
            until: number of steps of the whole training.

        Returns:
            Whether all steps are done, so that the script evaluates and exports.

        Raises:
            StateError: the restored snapshot does not fit the state.
        """
        for _ in self.steps(until):
            with self.step():
                train_step(self.state)
        return self.finished

    def _begin(self) -> None:
        if self._group.is_movable and not self.state.is_rebuilt and self.state.is_sharded:
            message = (
                "The model is sharded over a group of this process alone. Give ElasticState a function that builds it "
                "for each group (build=...), or make the group with ElasticGroup.start(sharded=True): workers then "
                "restart when nodes come or go."
            )
            raise RuntimeError(message)
        if self._group.is_movable:
            self._check_wrappers()
            self._dismissed_by(self._group.begin(self._settle))
        else:
            self._tell(self.state.restore())

    def _end_generation(self) -> None:
        """Follow the launcher: enter the next generation in this process, or leave the loop."""
        if self._group.is_movable:
            if not (self.state.is_rebuilt and self._step == "stop"):  # the parts of what is handed over still come
                self.state.end_generation()
            self._dismissed_by(self._group.move(self.state.step, self._settle))
        else:
            self.stopped = True

    def _dismissed_by(self, dismissed: channel.Dismiss | None) -> None:
        if dismissed is None:
            return
        self.stopped = True
        if dismissed.saves == "part" and self._holds:
            saved, failed = self._reports()
            self.state.snapshot(durable=True, alone=True, saved=saved, failed=failed)
        elif dismissed.saves == "whole" and self._holds:
            self.state.save_alone(*self._reports())

    def _settle(self) -> None:
        """Make the wrappers use the new group, or build the model for it, and bring all ranks to the newest state."""
        if self.state.is_rebuilt:
            self._holds = False
            with self._group.remade():
                self.state.rebuild()
                restored = self.state.restore()
            self._group.confirm()
            self._tell(restored)
            self._holds = True
            return
        for wrapper in self._wrappers():
            rebind(wrapper)
        holds = self._holds and not self._group.is_behind
        restored = self.state.share(holds=holds, confirm=self._group.confirm)
        self._group.confirm()
        self._tell(restored)
        self._holds = True

    def _wrappers(self) -> set[DistributedDataParallel]:
        """The wrappers around members, inside of them and beside them: the model's forward pass may be any one's."""
        modules = [member for member in self.state.members.values() if isinstance(member, torch.nn.Module)]
        inside = {part for module in modules for part in module.modules() if isinstance(part, DistributedDataParallel)}
        return inside | set(self._group.wrappers)

    def _check_wrappers(self) -> None:
        """Refuse a wrapper that would train other weights on each rank.

        Raises:
            RuntimeError: there is one; the message names it.
        """
        if any(map(self._fault_of, self._wrappers())):
            gc.collect()  # the script may have thrown it away
        for fault in filter(None, map(self._fault_of, self._wrappers())):
            raise RuntimeError(fault)

    def _fault_of(self, wrapper: DistributedDataParallel) -> str:
        """Why a wrapper cannot follow this process from group to group; empty where it can."""
        name = f"DistributedDataParallel({type(wrapper.module).__name__})"
        if self.state.is_rebuilt:
            return f"{name} was made before the loop, and would stay in the group of this process: make it in build=..."
        missed = self.state.missed(wrapper.module)
        advice = "so that new workers would have other weights. Give the model to ElasticState, under any name."
        return f"{name} trains {missed}, which is in no member of the state, {advice}" if missed else ""

    def _tell(self, restored: Restored) -> None:
        self.restored = restored
        self._outside.forget()
        self.progress.restored(restored.step, restored.source)
        self._tell_memory_step()
        self._begun = self._looked = (restored.step, time.monotonic())
        self._plan = schedule.Plan(restored.step + 1)

    def _batches(self) -> Iterator[Any]:
        """The loader's micro-batches from the sampler's position on, for this worker's current rank and world size."""
        if self._loader is None or self.stopped:
            return iter(())
        with generators.aside(self.state.step):
            return iter(self._loader)

    def _hand_over(self) -> None:
        """Keep a rebuilt state for the next generation."""
        saved, failed = self._reports()
        with self._after_step():
            self.state.hand_over(durable=self._durable_is_due(), saved=saved, failed=failed)

    @contextlib.contextmanager
    def _after_step(self) -> Iterator[None]:
        """Collectives after a step, which is done: where they break, the generation ends after it."""
        try:
            yield
        except Exception as error:
            if not self._group.takes(error):
                raise

    def _keep(self, *, durable: bool) -> None:
        self._group.look()
        if durable or self.state.step % (self._snapshots.memory_steps or self._plan.memory_steps) == 0:
            begin = time.monotonic()
            saved, failed = self._reports()
            overlap = self._snapshots.overlap
            with self._after_step():
                copied = self.state.snapshot(durable=durable, overlap=overlap, saved=saved, failed=failed)
                if copied and not durable:
                    self._copy_seconds = time.monotonic() - begin
        self._tell_memory_step()
        if durable:
            self._durable_at = time.monotonic()

    def _tell_memory_step(self) -> None:
        if self.state.memory_step is not None:
            self.progress.snapshot(self.state.memory_step)

    def _reports(self) -> tuple[Callable[[int], None], Callable[[int], None]]:
        """What tells the launcher how a save that begins now has ended: in a snapshot, or in none."""
        begin = time.monotonic()

        def saved(step: int) -> None:
            self.progress.checkpoint(step, time.monotonic() - begin)

        def failed(step: int) -> None:
            del step
            self.progress.checkpoint_failed()

        return saved, failed

    def _durable_is_due(self) -> bool:
        if self._snapshots.durable_steps is not None:
            return self.state.step % self._snapshots.durable_steps == 0
        return self._plan.durable

    def _agree(self) -> None:
        """Take rank 0's plan for this step and those until its next look, where it looks at this step."""
        self._plan = dataclasses.replace(self._plan, durable=False)
        by_steps = self._snapshots.memory_steps is not None and self._snapshots.durable_steps is not None
        if by_steps or self.state.step < self._plan.look_at:
            return
        with self._after_step():
            self._plan = transfer.said_by_first(self._planned())

    def _planned(self) -> schedule.Plan:
        now, step = time.monotonic(), self.state.step
        step_seconds = (now - self._looked[1]) / max(1, step - self._looked[0])
        self._looked = (step, now)
        until_durable = self._durable_at + self._snapshots.durable_seconds - now
        if until_durable <= 0 and self.state.is_saving:
            self._tell_slow(now - self._durable_at)
            until_durable = BUSY_SECONDS
        copy_seconds = self._copy_seconds + self.state.copying_seconds
        made, sending_seconds = step - self._begun[0], self.state.sending_seconds
        seen = schedule.Seen(step, made, step_seconds, copy_seconds, until_durable, sending_seconds)
        return schedule.plan(seen, self._snapshots.durable_seconds, MEMORY_SHARE, SHARE)

    def _tell_slow(self, seconds: float) -> None:
        if not self._slow_is_told:
            warn_for_job(
                f"A snapshot is still being saved in {self.state.folder} after {seconds:.0f} s, so the next one comes "
                "later than durable_seconds says. Use a faster volume, or a longer durable_seconds."
            )
        self._slow_is_told = True

    def _micro_batches(self, batches: Iterator[Any]) -> Iterator[tuple[Any, AbstractContextManager[None]]]:
        data = self._data()
        if data is not None and self._loader is not None:
            self._unread = parts = data.parts(batches)
            for batch, self._weight, is_last in parts:
                if self._outside.is_in_step:  # else the error would leave the script
                    self._group.look_for_break()
                yield batch, self._sync(last=is_last)

    def _skip_unread(self) -> None:
        """Have the next step begin with its own micro-batches, and not with what this one left."""
        if self._loader is None:
            return
        if self._unread is None:
            message = (
                f"Step {self.state.step + 1} read none of its micro-batches, so that its samples would be lost. Read "
                "`micro` inside of `with elastic.step():`, or give Elastic no loader where the script reads its data "
                "itself."
            )
            raise RuntimeError(message)
        for _ in self._unread:
            pass

    def _sync(self, *, last: bool) -> AbstractContextManager[None]:
        """The context of a micro-batch: gradients are exchanged once a step, with the last micro-batch."""
        model = self.state.members.get("model")
        if last or not hasattr(model, "no_sync"):
            return contextlib.nullcontext()
        context: AbstractContextManager[None] = model.no_sync()
        return context

    def _data(self) -> ElasticSampler | ElasticIterable | None:
        data = self.state.members.get("data")
        return data if isinstance(data, ElasticSampler | ElasticIterable) else None
