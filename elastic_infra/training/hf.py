"""For scripts with transformers' ``Trainer``: reported steps, agreed stops, and the checkpoint to go on from.

Usage::

    elastic = ElasticCallback()
    arguments = TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=accumulation_steps(global_batch=64, micro_batch=4),
        save_total_limit=2,
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=dataset, callbacks=[elastic])
    trainer.train(resume_from_checkpoint=latest(folder))
    if elastic.finished:
        trainer.save_model(export)
"""

from __future__ import annotations

import contextlib

from .accumulation import accumulation_steps
from .adapted import needs
from .console import warn_for_job
from .hf_checkpoints import latest
from .progress import Progress

with needs("transformers", __name__):
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

__all__ = ["ElasticCallback", "accumulation_steps", "latest"]


class ElasticCallback(TrainerCallback):
    """Reports every step of a ``Trainer`` to the launcher; at an agreed stop the ``Trainer`` saves and ends.

    Loading before the first step, evaluating, saving, and the work after the last step count as phases without steps,
    so that the launcher takes none of them for a hang. Outside the launcher the callback changes nothing.
    """

    def __init__(self) -> None:
        self.progress = Progress()
        self.finished = False
        """Whether training is over, so that the script evaluates and exports. False after a planned stop, from which
        other workers go on."""
        self._phase = contextlib.ExitStack()

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        """Report the checkpoint from which training goes on. A phase without steps begins; the first step ends it."""
        self.progress.restored(state.global_step)
        if args.save_total_limit == 1:
            warn_for_job(
                "save_total_limit is 1, so that a worker killed while saving can leave no whole checkpoint. "
                "Set save_total_limit to 2 or more."
            )
        self._begin_phase("start")

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        """The phase without steps is over."""
        self._phase.close()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        """Report the step; at the agreed stop let the Trainer save and end, without an evaluation."""
        if self.progress.step(state.global_step):
            control.should_save = control.should_training_stop = True
            control.should_evaluate = False
        self._begin_phase_of(control)

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        """A stop in the middle of an epoch is not the epoch's end: nothing is evaluated or saved again."""
        if self.progress.stopped:
            control.should_save = control.should_evaluate = False
        self._begin_phase_of(control)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object) -> None:
        """Report the checkpoint that this rank has written."""
        self.progress.checkpoint(state.global_step)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        """No step comes any more."""
        self.finished = not self.progress.stopped
        self._begin_phase("end")

    def _begin_phase_of(self, control: TrainerControl) -> None:
        if control.should_evaluate or control.should_save:
            self._begin_phase("evaluate" if control.should_evaluate else "save")

    def _begin_phase(self, name: str) -> None:
        self._phase.close()
        self._phase.enter_context(self.progress.phase(name))
