"""Keeps the launcher of a rendered file until something else restarts the job, as the component does for its jobs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import yaml

from elastic_infra.config import JobConfig
from elastic_infra.config.values import digest_in
from elastic_infra.manifests import Manifest, Manifests, render
from elastic_infra.manifests.figures import RUNTIME_KIND, WORKLOAD_KINDS
from elastic_infra.manifests.launcher import ARCHIVE
from elastic_infra.manifests.updates import restarting


def rendered_with_kept_launcher(name: str, config: JobConfig, document: str) -> Manifests:
    """The objects of a job, with the launcher that an earlier document has where the rest would not restart the job.

    A change of `launcher.version` is seen by the run id that it changes; not where `elastic.rdzv_id` fixes that.

    Raises:
        ConfigError: as in `render`.
    """
    newest = render(name, config)
    before = _objects(document)
    launcher = next((each for each in before if ARCHIVE in (each.get("binaryData") or ())), None)
    if newest.launcher is None or launcher is None:
        return newest
    kept_name = launcher["metadata"]["name"]
    if config.launcher.verify and digest_in(kept_name) is None:  # made before the option, which restarts the job
        return newest
    kept = render(name, config, kept_name)
    if _restarting(config, before) != _restarting(config, [each for _, each in kept.objects()]):
        return newest
    return dataclasses.replace(kept, launcher=_renewed(newest.launcher, launcher))


def _renewed(newest: Manifest, kept: Mapping[str, Any]) -> Manifest:
    """The kept launcher with today's labels and namespace."""
    metadata = newest["metadata"]
    own = {**metadata} if isinstance(metadata, Mapping) else {}
    return {**newest, "metadata": {**own, "name": kept["metadata"]["name"]}, "binaryData": kept["binaryData"]}


def _restarting(config: JobConfig, objects: list[Manifest]) -> object:
    by_kind = {str(each["kind"]): each for each in objects}
    workload = next((by_kind[kind] for kind in WORKLOAD_KINDS if kind in by_kind), None)
    if workload is None:
        return None
    return restarting(config, Manifests(workload, store=by_kind.get("Deployment"), runtime=by_kind.get(RUNTIME_KIND)))


def _objects(document: str) -> list[dict[str, Any]]:
    """The objects of a file; none where it is not YAML of objects, and so nothing that this program wrote."""
    try:
        found = list(yaml.load_all(document, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except yaml.YAMLError:
        return []
    return found if all(map(_is_object, found)) else []


def _is_object(value: object) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("metadata"), dict):
        return False
    return "name" in value["metadata"] and (value.get("kind") != "Deployment" or "spec" in value)
