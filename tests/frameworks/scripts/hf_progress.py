"""Lets `transformers.Trainer` save and stop at the step on which all nodes agree when nodes come or go."""

from elastic_infra.training import Progress
from transformers import TrainerCallback


class ReportProgress(TrainerCallback):
    def __init__(self):
        self.progress = Progress()

    def on_step_end(self, args, state, control, **kwargs):
        if self.progress.step(state.global_step):
            control.should_save = control.should_training_stop = True
