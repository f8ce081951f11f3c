"""Elastic PyTorch training on Kubernetes, declared in Pulumi.

Public names load when first used (PEP 562): ``python -m elastic_infra.launcher`` runs this file inside training
images that have neither pulumi nor pydantic.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from elastic_infra.args import ElasticTrainingJobArgs
    from elastic_infra.component import ElasticTrainingJob
    from elastic_infra.config import ConfigError, JobConfig
    from elastic_infra.manifests import Manifests, render
    from elastic_infra.shared_launcher import ElasticLauncher, ElasticLauncherArgs

__all__ = [
    "ConfigError",
    "ElasticLauncher",
    "ElasticLauncherArgs",
    "ElasticTrainingJob",
    "ElasticTrainingJobArgs",
    "JobConfig",
    "Manifests",
    "render",
]

_HOMES: Final = {
    "ConfigError": "elastic_infra.config",
    "ElasticLauncher": "elastic_infra.shared_launcher",
    "ElasticLauncherArgs": "elastic_infra.shared_launcher",
    "ElasticTrainingJob": "elastic_infra.component",
    "ElasticTrainingJobArgs": "elastic_infra.args",
    "JobConfig": "elastic_infra.config",
    "Manifests": "elastic_infra.manifests",
    "render": "elastic_infra.manifests",
}


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib import metadata

        try:
            return metadata.version("elastic-infra")
        except metadata.PackageNotFoundError:
            return metadata.version("elastic-infra-training")  # has this file too, and not the component
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
