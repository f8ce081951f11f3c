"""Between a Pulumi program and the pure core: what comes in as a config, what Pulumi records of it, what it refuses.

Renders nothing and registers nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final, cast

import pulumi

from elastic_infra.args import ElasticTrainingJobArgs
from elastic_infra.config import ConfigError, JobConfig, warnings
from elastic_infra.manifests import Manifest, Manifests, Value, render
from elastic_infra.manifests.launcher import digest
from elastic_infra.manifests.updates import restart_paths

INEFFECTIVE_OPTIONS: Final = (
    "additional_secret_outputs",
    "custom_timeouts",
    "ignore_changes",
    "replace_on_changes",
)
"""Resource options that Pulumi takes for a component and then ignores: https://github.com/pulumi/pulumi/issues/9877"""

RESTARTS_ON: Final = "restarts_on"
"""Key of the component's inputs that holds what a guarded job's restart would depend on."""


def rendered(name: str, args: ElasticTrainingJobArgs | JobConfig) -> tuple[JobConfig, Manifests]:
    """The config in a program's arguments, and its objects.

    Raises:
        pulumi.RunError: something is wrong; Pulumi prints its text, every fault on a line, without a traceback.
    """
    try:
        config = args if isinstance(args, JobConfig) else JobConfig.from_mapping(cast("Mapping[str, Any]", args))
        return config, render(name, config)
    except ConfigError as error:
        faults = "".join(f"\n  - {fault}" for fault in error.faults)
        message = f"ElasticTrainingJob {name!r} cannot be deployed. Mend these:{faults}"
        raise pulumi.RunError(message) from None


def summary(config: JobConfig, manifests: Manifests) -> dict[str, Value]:
    """What a preview shows first and policies read: the few facts by which people tell jobs apart."""
    gpu = config.resources.gpu
    facts: dict[str, Value] = {
        "image": config.image,
        "namespace": config.namespace,
        "nnodes": config.elastic.nnodes,
        "nproc_per_node": config.nproc_per_node,
        "gpus_per_node": gpu.count if gpu else 0,
        "workload": manifests.workload["kind"],
    }
    if manifests.launcher is not None:
        facts["launcher"] = digest()
    if config.run_policy.on_restart == "refuse":
        facts[RESTARTS_ON] = restart_record(manifests.workload, restart_paths(config))
    return facts


def notices(config: JobConfig, opts: pulumi.ResourceOptions | None) -> Iterator[str]:
    """What is allowed and likely to surprise, in the config and in the component's options."""
    yield from map(str, warnings(config))
    for option in INEFFECTIVE_OPTIONS:
        if getattr(opts, option, None):
            yield (
                f"Pulumi ignores {option} on a component. Use `transforms` in its options, which reach every child: "
                "https://www.pulumi.com/docs/iac/concepts/resources/options/transforms/"
            )


def restart_record(workload: Manifest, paths: tuple[str, ...]) -> dict[str, Value]:
    """The parts of the workload whose change ends its pods, by path."""
    parts = {path: _at(workload, path) for path in (*paths, "metadata.namespace")}
    return {path: part for path, part in parts.items() if part is not None}


def _at(manifest: Value, path: str) -> Value:
    for key in path.split("."):
        manifest = manifest.get(key) if isinstance(manifest, Mapping) else None
    return manifest


def refuse_restart(name: str) -> Callable[[pulumi.ResourceHookArgs], Awaitable[None]]:
    """A hook that fails the component's update when it would restart the job; nothing has been touched then.

    It looks at the component and not at the workload, since the provider decides on some replacements itself, and a
    hook on deletion would stand in the way of `pulumi destroy`.
    """

    async def check(change: pulumi.ResourceHookArgs) -> None:
        old, new = [
            await _resolved((inputs or {}).get(RESTARTS_ON)) for inputs in (change.old_inputs, change.new_inputs)
        ]
        paths = list(changed_paths(old, new)) if old is not None else []
        if paths:
            message = (
                f"ElasticTrainingJob {name!r} would be restarted, and its run_policy.on_restart is 'refuse'. "
                f"Nothing was changed. What differs: {', '.join(paths)}. "
                "Undo the change, or set on_restart to 'replace' to restart the job from its checkpoint."
            )
            raise pulumi.RunError(message)

    return check


async def _resolved(value: Any) -> Any:  # noqa: ANN401 - JSON, secrets as Outputs
    return await pulumi.Output.from_input(value).future(with_unknowns=True)


def changed_paths(old: Any, new: Any, path: str = "") -> Iterator[str]:  # noqa: ANN401 - JSON
    """Where two JSON values differ; what is unknown in a preview counts as equal."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in dict.fromkeys([*old, *new]):
            yield from changed_paths(old.get(key), new.get(key), f"{path}.{key}" if path else key)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from changed_paths(before, after, f"{path}[{index}]")
    elif old != new and not isinstance(new, pulumi.output.Unknown):
        yield path
