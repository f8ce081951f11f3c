"""The released versions, and what the upgrade page promises of each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]

PROMISES: Final[Mapping[str, str]] = dict(
    re.findall(
        r"^\| (\d[\d.]*) \| yes: [^|]+ \| (restart once|go on) \|$",
        (ROOT / "docs/upgrade.md").read_text("utf-8"),
        re.MULTILINE,
    )
)
"""Version to what becomes of its jobs."""

PODS: Final = Path(__file__).with_name("manifests") / "pods"
"""A folder a version with what restarts its jobs, by shape."""

NEXT: Final = PODS / "next"
"""The same of the version that is not released yet."""
