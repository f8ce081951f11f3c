"""The samples of each worker from a stream without indices, so that a change of the number of workers changes nothing.

Every worker reads the same stream and takes its part of each global batch as ``ElasticSampler`` cuts it, so the
position is the same for all workers and for any number of them. A stream with a ``state_dict`` of its own (torchdata's
``StatefulDataLoader``, Hugging Face's ``IterableDataset``) goes on from there; any other one is read from its beginning
and what is done is skipped.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from torch.utils.data import IterableDataset, default_collate, get_worker_info

from . import generators
from .sampler import micro_batches, place

_LOADER: Final = "Elastic(state, DataLoader(data, batch_size=None))"


@dataclasses.dataclass(frozen=True)
class Position:
    """How much of the stream is done."""

    epoch: int = 0
    offset: int = 0
    """Number of samples of this epoch that are done."""
    samples: int = 0
    """The same of all epochs."""
    source: Any = None
    """The stream's own state after these samples; None where it has none."""

    def next_epoch(self) -> Position:
        """The beginning of the next epoch."""
        return Position(self.epoch + 1, 0, self.samples)


class Share(NamedTuple):
    """A micro-batch of one worker. Not a dataclass, so that a ``DataLoader`` converts and pins the batch in it."""

    batch: Any
    weight: float
    """As of ``sampler.MicroBatch``."""
    is_last: bool
    """Whether it is the last one of its step."""
    after: Position
    """The position after the step."""


class ElasticIterable(IterableDataset):  # type: ignore[misc]  # torch's types are not read
    """This worker's micro-batches of a stream, from the training's position on and through epochs without end.

    Usage::

        data = ElasticIterable(stream, global_batch=512, micro_batch=32)
        state = ElasticState("/checkpoints", model=model, optimizer=optimizer, data=data)
        elastic = Elastic(state, DataLoader(data, batch_size=None))

    Args:
        dataset: an ``IterableDataset``, a ``DataLoader`` with ``batch_size=None`` around one, or anything else that can
            be iterated once an epoch. In every process it must yield the same samples in the same order, whatever the
            rank. Its ``set_epoch(epoch)`` is called before each epoch, where it or its ``dataset`` has one; with
            ``state_dict`` and ``load_state_dict`` it goes on from its own state.
        global_batch: number of samples of one step, over all workers; the last step of an epoch may have fewer.
        micro_batch: the most samples that a worker computes at once. None: the worker's whole part of the global batch.
        collate: makes a batch of a list of samples; torch's ``default_collate`` by default.

    Raises:
        TypeError: the stream is an iterator without a state of its own, so that it can be read only once.
        ValueError: a batch size is less than 1.
    """

    def __init__(
        self,
        dataset: Iterable[Any],
        *,
        global_batch: int,
        micro_batch: int | None = None,
        collate: Callable[[list[Any]], Any] = default_collate,
    ) -> None:
        if global_batch < 1 or (micro_batch is not None and micro_batch < 1):
            message = f"global_batch ({global_batch}) and micro_batch ({micro_batch}) must be 1 or more."
            raise ValueError(message)
        if isinstance(dataset, Iterator) and not _has_state(dataset):
            message = (
                f"The stream ({type(dataset).__name__}) is an iterator, which can be read only once, so that samples "
                "would be lost when nodes come or go. Give an object whose __iter__ begins anew, such as an "
                "IterableDataset, or an iterator with state_dict and load_state_dict."
            )
            raise TypeError(message)
        self.dataset: Any = dataset
        self.global_batch = global_batch
        self.micro_batch = micro_batch
        self.collate = collate
        self.position = Position()
        self._taken: Position | None = None
        """The position after the step whose batches are being taken."""
        self._initial: Any = None
        """The stream's own state before it was read; None where it has none."""

    @property
    def samples(self) -> int:
        """Number of samples that are done, over all epochs."""
        return self.position.samples

    def advance(self) -> None:
        """Move the position past the step whose batches were taken.

        Raises:
            RuntimeError: not all of them were taken.
        """
        if self._taken is None:
            message = f"The step did not take its batches. Read them in the step, from the loop of {_LOADER}."
            raise RuntimeError(message)
        self.position, self._taken = self._taken, None

    def parts(self, batches: Iterator[Any]) -> Iterator[tuple[Any, float, bool]]:
        """The batches of one step, each with its weight and whether it is the last one.

        Args:
            batches: what a loader makes of this dataset.

        Raises:
            TypeError: the loader gives something else.
        """
        self._taken = None
        while self._taken is None:
            share = next(batches, None)
            if not isinstance(share, Share):
                message = f"An ElasticIterable makes the batches itself, so it needs {_LOADER}."
                raise TypeError(message)
            self._taken = share.after if share.is_last else None
            yield share.batch, share.weight, share.is_last

    def __iter__(self) -> Iterator[Share]:
        """Each micro-batch of this worker, from the position on.

        Raises:
            RuntimeError: the loader has worker processes, each of which would read the stream for itself.
            ValueError: the stream is empty, or ends before the position.
        """
        if get_worker_info() is not None:
            message = (
                "An ElasticIterable is read in the training's process. Give the workers to the stream instead: "
                "ElasticIterable(DataLoader(stream, batch_size=None, num_workers=1), ...)."
            )
            raise RuntimeError(message)
        rank, world = place(None, None)
        position = self.position
        stream = self._stream(position)
        while True:
            batch = list(itertools.islice(stream, self.global_batch))
            if batch:
                position = self._after(position, len(batch))
                yield from self._shares(batch, rank, world, position)
            elif position.offset:
                position = position.next_epoch()
            else:
                message = f"The stream has no samples in epoch {position.epoch}. Give one that can be iterated anew."
                raise ValueError(message)
            if not position.offset:
                stream = self._stream(position)

    def state_dict(self) -> dict[str, Any]:
        """The position, which is the same on all ranks."""
        return dataclasses.asdict(self.position)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Set the position.

        Raises:
            KeyError: the state is that of another class.
        """
        numbers = {name: int(state[name]) for name in ("epoch", "offset", "samples")}
        self.position = Position(**numbers, source=state["source"])

    def _shares(self, batch: Sequence[Any], rank: int, world: int, after: Position) -> Iterator[Share]:
        plan = micro_batches(range(len(batch)), rank, world, self.micro_batch)
        for number, micro in enumerate(plan, 1):
            samples = self.collate([batch[index] for index in micro.indices])
            yield Share(samples, micro.weight, number == len(plan), after)

    def _after(self, position: Position, number: int) -> Position:
        offset, samples = position.offset + number, position.samples + number
        after = Position(position.epoch, offset, samples, self._source_state())
        # A stream that has ended may say the same of itself as one that has not begun.
        return after if number == self.global_batch else after.next_epoch()

    def _stream(self, position: Position) -> Iterator[Any]:
        """The rest of an epoch's stream."""
        with generators.aside(position.epoch):
            for each in _within(self.dataset):
                if hasattr(each, "set_epoch"):
                    each.set_epoch(position.epoch)
            source = position.source if position.offset else None
            if _has_state(self.dataset):
                if self._initial is None:
                    self._initial = self._source_state()
                if (state := self._initial if source is None else source) is not None:
                    self.dataset.load_state_dict(copy.deepcopy(state))
            stream: Iterator[Any] = iter(self.dataset)
            left = 0 if source is not None else position.offset
            skipped = sum(1 for _ in itertools.islice(stream, left))
        if skipped < left:
            where = f"{left} samples in epoch {position.epoch}"
            message = f"The stream ends before the position, {where}: it is another one."
            raise ValueError(message)
        return stream

    def _source_state(self) -> Any:  # noqa: ANN401  the stream's own
        return copy.deepcopy(self.dataset.state_dict()) if _has_state(self.dataset) else None


def _within(dataset: Any) -> Iterator[Any]:  # noqa: ANN401  the script's
    """A stream, and those that it is made of: a ``DataLoader`` has a dataset, and hands nothing on to it."""
    yield dataset
    if (inner := getattr(dataset, "dataset", None)) is not None:
        yield from _within(inner)


def _has_state(dataset: object) -> bool:
    return hasattr(dataset, "state_dict") and hasattr(dataset, "load_state_dict")
