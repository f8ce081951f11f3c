"""An elastic Indexed Job, for several nodes without an operator: the Job controller makes a pod for each index.

Its size changes while it runs, as long as parallelism and completions are equal (Kubernetes 1.31):
https://github.com/kubernetes/enhancements/tree/master/keps/sig-apps/3715-elastic-indexed-job
"""

from __future__ import annotations

from elastic_infra.config import JobConfig
from elastic_infra.config.values import Late
from elastic_infra.manifests.batch_job import batch_job, indexed_shape
from elastic_infra.manifests.model import Manifest, Value
from elastic_infra.manifests.rendezvous import rendezvous_settings
from elastic_infra.manifests.service import service_name


def indexed_job(name: str, config: JobConfig, launcher: str | Late | None) -> Manifest:
    """The Job; `initial_nodes` is only where it starts unless the config sets the size.

    It has no `subdomain`: nodes know each other by the pods' addresses, and the store by its Service.
    """
    nodes = config.initial_nodes
    return batch_job(
        name,
        config,
        launcher,
        arguments=[],
        torchrun=torchrun_variables(name, config),
        shape={
            "completionMode": "Indexed",
            "parallelism": nodes,
            "completions": nodes,
            **indexed_shape(),
        },
    )


def torchrun_variables(name: str, config: JobConfig) -> dict[str, Value]:
    """What the operator would tell torchrun: https://docs.pytorch.org/docs/stable/elastic/run.html."""
    elastic = config.elastic
    return {
        "PET_MAX_RESTARTS": str(elastic.max_restarts),
        "PET_NNODES": f"{elastic.min_nodes}:{elastic.max_nodes}",
        "PET_NPROC_PER_NODE": str(config.nproc_per_node),
        "PET_RDZV_BACKEND": elastic.rdzv_backend,
        "PET_RDZV_CONF": ",".join(f"{key}={value}" for key, value in rendezvous_settings(config).items()),
        "PET_RDZV_ENDPOINT": f"{service_name(name, config)}:{config.rendezvous.port}",
    }
