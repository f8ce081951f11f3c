"""For scripts with ``pytorch_lightning``: ranks from the launcher, reported steps, agreed stops, and checkpoints.

Usage::

    elastic = ElasticCallback(folder)
    trainer = pl.Trainer(
        strategy="ddp",
        devices=int(os.environ["LOCAL_WORLD_SIZE"]),
        accumulate_grad_batches=accumulation_steps(global_batch=64, micro_batch=4),
        plugins=[ElasticEnvironment()],
        callbacks=[elastic, ModelCheckpoint(folder, every_n_train_steps=100)],
    )
    trainer.fit(module, loader, ckpt_path=latest(folder))
    if elastic.finished:
        export(module)

Scripts with the package ``lightning`` use ``elastic_infra.training.lightning``.
"""

from __future__ import annotations

from .accumulation import accumulation_steps
from .adapted import needs
from .lightning_hooks import LauncherEnvironment, StepReports, latest

with needs("pytorch_lightning", __name__):
    from pytorch_lightning import Callback
    from pytorch_lightning.plugins.environments import ClusterEnvironment

__all__ = ["ElasticCallback", "ElasticEnvironment", "accumulation_steps", "latest"]


class ElasticEnvironment(LauncherEnvironment, ClusterEnvironment):
    """Ranks and addresses from the launcher, for ``plugins``; the number of nodes is right without ``num_nodes``.

    ``ElasticCallback`` belongs to this plugin: it corrects the number by which Lightning divides the data. ``devices``
    must be the number of workers on a node. Outside the launcher this is a group of one.
    """


class ElasticCallback(StepReports, Callback):
    """Reports every step to the launcher; at an agreed stop the state is saved and ``fit`` ends.

    ``finished`` is False after a stop, from which other workers go on. Outside the launcher the callback changes
    nothing.

    Args:
        folder: folder for the checkpoint at a stop, ``last.ckpt``; the one that is given to ``latest``.
    """
