"""The run id of a job in its store: the same for the same workload, another as soon as the workload changes."""

from __future__ import annotations

import hashlib
import json

from elastic_infra.config.values import is_late
from elastic_infra.manifests.model import Value


def run_id(name: str, *parts: Value) -> str:
    """``<name>-<hash>`` over the parts whose change restarts the job.

    Late values count by their place only: they are unknown in a preview, and the id must be the same there.
    """
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=_late)
    return f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _late(value: object) -> str:
    if is_late(value):
        return "late"
    message = f"a manifest cannot hold a {type(value).__name__}"
    raise TypeError(message)
