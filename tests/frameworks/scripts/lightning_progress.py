"""Lets Lightning's Trainer save and stop at the step on which all nodes agree when nodes come or go."""

from elastic_infra.training import Progress
from lightning.pytorch.callbacks import Callback


class ReportProgress(Callback):
    def __init__(self, path):
        self.progress, self.path = Progress(), path

    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        if self.progress.step(trainer.global_step):
            trainer.save_checkpoint(self.path)
            trainer.should_stop = True
