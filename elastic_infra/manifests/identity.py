"""The run id of a job in its store: the same for the same workload, another as soon as the workload changes.

The launcher's ConfigMap is no part of it: a newer launcher alone is no other workload.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from elastic_infra.config import JobConfig
from elastic_infra.config.values import is_late
from elastic_infra.manifests.figures import items
from elastic_infra.manifests.launcher import without_digest
from elastic_infra.manifests.model import Value
from elastic_infra.manifests.storage import LAUNCHER_VOLUME


def run_id(name: str, *parts: Value) -> str:
    """``<name>-<hash>`` over the parts whose change restarts the job.

    Late values count by their place only: they are unknown in a preview, and the id must be the same there. Where one
    changes, the component makes the store anew.
    """
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=_late)
    return f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def without_launcher(template: Mapping[str, Value]) -> Value:
    """A pod template without what says which launcher it is: the name of the volume, and the digest in a check."""
    spec = template["spec"]
    if not isinstance(spec, Mapping):
        return spec
    volumes = [each for each in items(spec.get("volumes")) if each.get("name") != LAUNCHER_VOLUME]
    kinds = [kind for kind in ("initContainers", "containers") if kind in spec]
    containers: dict[str, Value] = {kind: [without_digest(each) for each in items(spec[kind])] for kind in kinds}
    return {**template, "spec": {**spec, **containers, "volumes": [*volumes]}}


def taken_on(config: JobConfig) -> tuple[Value, ...]:
    """What has a job take the newest launcher beside a change of the workload: to be asked, and another kind of map."""
    return config.launcher.version, config.launcher.config_map is not None


def _late(value: object) -> str:
    if is_late(value):
        return "late"
    message = f"a manifest cannot hold a {type(value).__name__}"
    raise TypeError(message)
