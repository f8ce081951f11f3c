"""What the adapters of both Lightning packages do; each adapter adds the base classes of its own package.

``lightning`` and ``pytorch_lightning`` are the same code under two names, and each accepts only its own classes.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from .adapted import damage_of_torch_file
from .console import warn_for_job
from .progress import Progress

Trainer: TypeAlias = Any
"""A ``Trainer`` of either package."""

_ACCUMULATION: Final = "elastic_infra_accumulate_grad_batches"
"""Key in a checkpoint: the number of micro-batches of a step with which the checkpoint's batches were counted."""


def latest(folder: str | os.PathLike[str]) -> str | None:
    """The newest whole checkpoint in a folder, for ``ckpt_path``.

    Lightning moves a checkpoint from the temporary folder to its place, which is a copy where the folders are on two
    volumes; so a killed worker can leave a file that ends too early. Such a file is skipped with a warning.

    Args:
        folder: folder of ``*.ckpt``, on a volume that all nodes share; it need not exist.

    Returns:
        The path of the checkpoint; None without one, so that training begins at step 0.
    """
    written = sorted(((path.stat().st_mtime_ns, path) for path in Path(folder).glob("*.ckpt")), reverse=True)
    for _, path in written:
        damage = _damage(path)
        if damage is None:
            return str(path)
        warn_for_job(f"The checkpoint {path} is skipped: {damage}.")
    return None


def _damage(path: Path) -> str | None:
    """What is wrong with a checkpoint; None where the checkpoint is whole."""
    try:
        if (
            path.is_dir()
        ):  # of a sharded strategy; https://lightning.ai/docs/pytorch/stable/common/checkpoint_expert.html
            last = path / "meta.pt"
            return damage_of_torch_file(last) if last.exists() else "meta.pt, which is written last, is missing"
        return damage_of_torch_file(path)
    except OSError as error:
        return f"{error.filename} cannot be read: {error.strerror}"


class LauncherEnvironment:
    """Ranks and addresses of this worker, as the launcher gave them; a cluster environment of Lightning.

    The number of nodes is the launcher's, whatever ``num_nodes`` says; ``devices`` must be the number of workers on
    this node, because Lightning chooses this worker's device by it. Outside the launcher this is a group of one.
    """

    creates_processes_externally = True

    @property
    def main_address(self) -> str:
        """The address of rank 0."""
        return os.environ.get("MASTER_ADDR", "127.0.0.1")

    @property
    def main_port(self) -> int:
        """The port of rank 0; 0 for a group of one, which takes any free port."""
        return _number("MASTER_PORT", 0)

    @staticmethod
    def detect() -> bool:
        """Whether a launcher started this process."""
        return "GROUP_WORLD_SIZE" in os.environ

    def world_size(self) -> int:
        """Number of workers of the job."""
        return _number("WORLD_SIZE", 1)

    def set_world_size(self, size: int) -> None:
        """Keep the launcher's number; Lightning multiplies ``devices`` by ``num_nodes``."""

    def global_rank(self) -> int:
        """Rank of this worker in the job."""
        return _number("RANK", 0)

    def set_global_rank(self, rank: int) -> None:
        """Keep the launcher's rank."""

    def local_rank(self) -> int:
        """Rank of this worker on its node."""
        return _number("LOCAL_RANK", 0)

    def node_rank(self) -> int:
        """Rank of this node."""
        return _number("GROUP_RANK", 0)

    def validate_settings(self, num_devices: int, num_nodes: int) -> None:
        """Take any number of nodes.

        Raises:
            ValueError: ``devices`` is not the number of workers on this node.
        """
        workers = _number("LOCAL_WORLD_SIZE", 1)
        if num_devices != workers:
            message = (
                f"The Trainer has {num_devices} devices on a node, but {workers} workers were started here. "
                f"Give Trainer devices={workers}, or start {num_devices} workers on a node (nproc_per_node)."
            )
            raise ValueError(message)


class StepReports:
    """Reports every step of a ``Trainer`` to the launcher; at an agreed stop the state is saved and ``fit`` ends.

    Loading before the first step, validating, saving, and the work after the last step count as phases without steps,
    so that the launcher takes none of them for a hang. A restored checkpoint counts its batches anew where
    ``accumulate_grad_batches`` is another, so that the global batch stays what it is from the first step on. Outside
    the launcher the callback changes nothing.

    Args:
        folder: folder for the checkpoint at a stop, ``last.ckpt``; the one that is given to ``latest``.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        super().__init__()
        self.folder = os.fspath(folder)
        self.progress = Progress()
        self.finished = False
        """Whether training is over, so that the script evaluates and exports. False after a planned stop, from which
        other workers go on."""
        self._reported = -1
        self._saved: int | None = None
        """Step of a checkpoint that was begun, and is written once the next batch begins."""
        self._phase = contextlib.ExitStack()

    def setup(self, trainer: Trainer, pl_module: object, stage: str) -> None:
        """Correct the number of nodes, by which Lightning divides the data.

        Raises:
            ValueError: the strategy is for one process, and there are several.
        """
        if LauncherEnvironment.detect():
            self._follow_launcher(trainer)
        self._begin_phase("start")

    def on_train_start(self, trainer: Trainer, pl_module: object) -> None:
        """Report the checkpoint from which training goes on; its step is no news."""
        self.progress.restored(trainer.global_step)
        self._reported = trainer.global_step

    def on_train_batch_start(self, *_: object) -> None:
        """The phase without steps is over, and with it a save."""
        self._phase.close()
        self._report_saved()

    def on_train_batch_end(self, trainer: Trainer, *_: object) -> None:
        """Report the step, once its last micro-batch is done; at the agreed stop save and end."""
        if trainer.global_step == self._reported:
            return
        self._reported = trainer.global_step
        if self.progress.step(trainer.global_step):
            self._stop(trainer)

    def on_validation_start(self, *_: object) -> None:
        """No steps while validating."""
        self._begin_phase("validate")

    def on_save_checkpoint(self, trainer: Trainer, pl_module: object, checkpoint: dict[str, Any]) -> None:
        """No steps while saving."""
        checkpoint[_ACCUMULATION] = trainer.accumulate_grad_batches
        self._saved = trainer.global_step
        self._begin_phase("save")

    def on_load_checkpoint(self, trainer: Trainer, pl_module: object, checkpoint: Mapping[str, Any]) -> None:
        """Count the epoch's batches anew where a step has another number of them than when they were counted.

        Lightning steps the optimizer where the number of the batch in its epoch is a multiple of
        ``accumulate_grad_batches``; with a number from another division the first step would be a part of a batch.
        """
        before, now = checkpoint.get(_ACCUMULATION), trainer.accumulate_grad_batches
        if before and before != now:
            counted = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]["current"]
            moved = counted["processed"] * now // before - counted["processed"]
            counted.update({name: number + moved for name, number in counted.items()})

    def on_train_end(self, *_: object) -> None:
        """No step comes any more."""
        self._report_saved()
        self.finished = not self.progress.stopped
        self._begin_phase("end")

    @staticmethod
    def _follow_launcher(trainer: Trainer) -> None:
        workers = _number("WORLD_SIZE", 1)
        if trainer.world_size != workers:
            message = (
                f"{type(trainer.strategy).__name__} trains with {trainer.world_size} workers, but {workers} were "
                'started. Give Trainer strategy="ddp" and plugins=[ElasticEnvironment()].'
            )
            raise ValueError(message)
        if hasattr(trainer.strategy, "num_nodes"):
            trainer.strategy.num_nodes = _number("GROUP_WORLD_SIZE", 1)

    def _stop(self, trainer: Trainer) -> None:
        """Save, and end ``fit`` at once.

        Lightning would validate, go on up to ``min_epochs``, and let ``ModelCheckpoint`` save the epoch as if it were
        over, so that its other half would never be trained on.
        """
        trainer.save_checkpoint(os.path.join(self.folder, "last.ckpt"))  # noqa: PTH118  the folder may be a URL
        trainer.should_stop = True
        trainer.limit_val_batches = 0
        trainer.fit_loop.min_epochs, trainer.fit_loop.epoch_loop.min_steps = 0, None
        for callback in trainer.checkpoint_callbacks:
            trainer.callbacks.remove(callback)

    def _report_saved(self) -> None:
        if self._saved is not None:
            self.progress.checkpoint(self._saved)
            self._saved = None

    def _begin_phase(self, name: str) -> None:
        self._phase.close()
        self._phase.enter_context(self.progress.phase(name))


def _number(variable: str, otherwise: int) -> int:
    return int(os.environ.get(variable, otherwise))
