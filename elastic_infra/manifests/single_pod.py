"""A batch/v1 Job of one pod, for `nnodes: 1`. The Job controller retries the pod when its cluster node is lost."""

from __future__ import annotations

from elastic_infra.config import JobConfig
from elastic_infra.config.values import Late
from elastic_infra.manifests.batch_job import batch_job
from elastic_infra.manifests.model import Manifest


def single_pod_job(name: str, config: JobConfig, launcher: str | Late | None) -> Manifest:
    """The Job, with the launcher in standalone mode."""
    torchrun = {"PET_MAX_RESTARTS": str(config.elastic.max_restarts), "PET_NPROC_PER_NODE": str(config.nproc_per_node)}
    return batch_job(name, config, launcher, arguments=["--standalone"], torchrun=torchrun, shape={})
