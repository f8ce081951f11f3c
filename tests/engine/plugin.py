"""The package as a plugin in an engine's own folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import elastic_infra

TOKEN: Final = "elastic-infra:index:ElasticTrainingJob"
VERSION: Final = str(elastic_infra.__version__)


def installed(home: Path) -> Path:
    """Put the program that the package installs, `pulumi-resource-elastic-infra`, where the engine looks for plugins.

    Args:
        home: the engine's folder.
    """
    program = home / f"plugins/resource-elastic-infra-v{VERSION}/pulumi-resource-elastic-infra"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!{sys.executable}\nfrom elastic_infra.plugin import serve\nserve()\n")
    program.chmod(0o755)
    return program
