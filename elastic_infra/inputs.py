"""Between a Pulumi program and the pure core: arguments become a config, and Pulumi gets its summary.

The module registers no resources.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

import pulumi
import pydantic

from elastic_infra.args import ElasticTrainingJobArgs
from elastic_infra.config import ConfigError, JobConfig, warnings
from elastic_infra.config.base import Part
from elastic_infra.config.errors import Fault, faults_of
from elastic_infra.config.names import label_faults
from elastic_infra.config.values import InputNamespace
from elastic_infra.config.workdir_files import with_workdir
from elastic_infra.manifests import Manifests, Value
from elastic_infra.manifests.launcher import digest
from elastic_infra.manifests.render import lasting

INEFFECTIVE_OPTIONS: Final = (
    "additional_secret_outputs",
    "custom_timeouts",
    "ignore_changes",
    "replace_on_changes",
)
"""Resource options that Pulumi takes for a component and then ignores: https://github.com/pulumi/pulumi/issues/9877"""


def rendered(name: str, args: ElasticTrainingJobArgs | JobConfig) -> tuple[JobConfig, Manifests]:
    """The config in a program's arguments, and its objects of `lasting`: those to register may differ in the launcher.

    Raises:
        pulumi.RunError: something is wrong; the text has every fault as `path: reason`.
    """
    try:
        config = args if isinstance(args, JobConfig) else JobConfig.from_mapping(cast("Mapping[str, Any]", args))
        config = with_workdir(config, Path.cwd())  # Pulumi starts programs and plugins in the program's folder
        return config, lasting(name, config)
    except ConfigError as error:
        raise _refusal(error.faults, "ElasticTrainingJob", name) from None


class SharedLauncher(Part):
    """The arguments of an `ElasticLauncher`."""

    namespace: InputNamespace = "default"
    """Namespace of the ConfigMap."""

    verify: bool = False
    """Whether the ConfigMap's name ends in the whole digest."""


def shared_launcher(name: str, args: Mapping[str, Any]) -> SharedLauncher:
    """The arguments of an `ElasticLauncher`.

    Raises:
        pulumi.RunError: the name or an argument is not valid, as in `rendered`.
    """
    try:
        found = SharedLauncher.model_validate(args)
    except pydantic.ValidationError as error:
        raise _refusal((*label_faults(name), *faults_of(error, SharedLauncher)), "ElasticLauncher", name) from None
    if faults := label_faults(name):
        raise _refusal(faults, "ElasticLauncher", name)
    return found


def _refusal(faults: Iterable[Fault], kind: str, name: str) -> pulumi.RunError:
    """Pulumi prints its text, every fault on a line, without a traceback."""
    listed = "".join(f"\n  - {fault}" for fault in faults)
    return pulumi.RunError(f"{kind} {name!r} cannot be deployed. Fix these:{listed}")


def summary(name: str, config: JobConfig, manifests: Manifests) -> dict[str, Value]:
    """The facts by which readers distinguish jobs: a preview shows them first, and policies read them."""
    gpu = config.resources.gpu
    facts: dict[str, Value] = {
        "name": name,
        "image": config.image,
        "namespace": config.namespace,
        "nnodes": config.elastic.nnodes,
        "nproc_per_node": config.nproc_per_node,
        "gpus_per_node": gpu.count if gpu else 0,
        "workload": manifests.workload["kind"],
    }
    if manifests.launcher is not None:
        facts["launcher"] = digest()
    return facts


def late_variables(config: JobConfig) -> dict[str, pulumi.Output[str]]:
    """Variables whose value another resource delivers."""
    return {name: each.value for name, each in config.env.items() if isinstance(each.value, pulumi.Output)}


def secret_notice(name: str) -> str:
    """That a secret of Pulumi is none in the cluster."""
    return (
        f"env.{name}: the value is a secret in Pulumi, and plain text in the pod's manifest: every account that may "
        "read the job in the cluster may read the value. Put the value into a Kubernetes Secret and name that: "
        f"env: {{{name}: {{secret: NAME_OF_THE_SECRET, key: KEY}}}}."
    )


def notices(config: JobConfig, opts: pulumi.ResourceOptions | None) -> Iterator[str]:
    """Warnings about settings that are allowed but likely to surprise, in the config and in the component's options."""
    yield from map(str, warnings(config))
    if config.adopted:
        yield (
            "adopted: the job goes on as something else made it, and nothing of this config reaches it. Take the key "
            "out to have the job made anew as the config has it, which restarts it from its checkpoint."
        )
    for option in INEFFECTIVE_OPTIONS:
        if getattr(opts, option, None):
            yield (
                f"Pulumi ignores {option} on a component. Use `transforms` in its options, which reach every child: "
                "https://www.pulumi.com/docs/iac/concepts/resources/options/transforms/"
            )
