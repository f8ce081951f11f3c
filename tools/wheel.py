"""Hatch's hook that puts the launcher's zip into the wheel: one release is the same bytes wherever it is installed.

An editable install gets none, so that a checkout always mounts its present sources.
"""

from __future__ import annotations

import runpy
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class LauncherArchive(BuildHookInterface):  # type: ignore[type-arg]  # hatchling's own parameter, unused
    """Builds `elastic_infra/manifests/launcher.zip` beside the sources of a standard wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before the files are gathered; `version` is the kind of wheel."""
        if version == "standard":
            package = Path(self.root, "elastic_infra")
            archive = Path(tempfile.mkdtemp(prefix="elastic-infra-"), "launcher.zip")
            build = runpy.run_path(str(package / "manifests/archive.py"))["build"]  # its package needs dependencies
            archive.write_bytes(build(package))
            build_data["force_include"][str(archive)] = "elastic_infra/manifests/launcher.zip"
