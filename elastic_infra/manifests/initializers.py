"""Init containers that fill folders before the training starts."""

from __future__ import annotations

import functools
import json
import posixpath
from importlib import resources
from typing import Final

from elastic_infra.config import Initializer, JobConfig
from elastic_infra.manifests.archive import stripped
from elastic_infra.manifests.environment import user_variable
from elastic_infra.manifests.figures import items
from elastic_infra.manifests.init_container import init_container
from elastic_infra.manifests.model import Value

HOMES: Final = frozenset({"HOME", "LOGNAME", "USER", "XDG_CACHE_HOME"})
"""Variables of the training container that programs without a home want."""

QUIET: Final = {"GIT_TERMINAL_PROMPT": "0", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
"""Nobody answers a question, and a log is no place for bars."""


def initializer_container(
    config: JobConfig, initializer: Initializer, mounts: list[Value], environment: list[Value]
) -> Value:
    """One init container.

    Args:
        mounts: those of the training container.
        environment: its variables.
    """
    order = {
        "name": initializer.name,
        "kind": initializer.kind,
        "source": initializer.source,
        "revision": initializer.revision,
        "repository": initializer.repository,
        "command": list(initializer.command),
        "path": initializer.path,
        "own": not is_shared(config, initializer),
        "attempts": initializer.attempts,
    }
    image = {} if initializer.image is None else {"image": initializer.image}
    return {
        **init_container(
            config,
            initializer.name,
            ["python3", "-c", program(), json.dumps(order)],
            mounts=mounts,
            env=_environment(initializer, environment),
        ),
        **image,
    }


@functools.cache
def program() -> str:
    """The program's text without comments: it is read by people who look at a pod."""
    return stripped((resources.files("elastic_infra") / "manifests/fetch.py").read_text("utf-8"))


def is_shared(config: JobConfig, initializer: Initializer) -> bool:
    """Whether the folder lies in a mount of `storage`."""
    checkpoint = config.storage.checkpoint
    places = [mount.mount_path for mount in config.storage.mounts] + ([checkpoint.mount_path] if checkpoint else [])
    return any(posixpath.normpath(initializer.path).startswith(f"{posixpath.normpath(place)}/") for place in places)


def _environment(initializer: Initializer, environment: list[Value]) -> list[Value]:
    homes: list[Value] = [each for each in items(environment) if each["name"] in HOMES - initializer.env.keys()]
    quiet: list[Value] = [
        {"name": name, "value": QUIET[name]} for name in sorted(QUIET.keys() - initializer.env.keys())
    ]
    return [*quiet, *homes, *(user_variable(name, value) for name, value in initializer.env.items())]
