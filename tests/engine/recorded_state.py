"""The state of a stack as one version leaves it, in a file, for later versions to take over.

``python -m tests.engine.recorded_state`` records this version's, and what restarts its jobs, once, when it is released:
what is recorded is never recorded anew.
"""

from __future__ import annotations

import base64
import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import elastic_infra
from elastic_infra import JobConfig, render
from elastic_infra.manifests import launcher
from tests.engine.alone import empty_stack
from tests.engine.engine import PROJECT
from tests.engine.jobs import FULL, JOB, job
from tests.released import NEXT, PODS

RECORDED: Final[Mapping[str, Path]] = {
    path.stem.removeprefix("state-"): path for path in sorted(Path(__file__).parent.glob("testdata/state-*.json"))
}
"""The state of each released version."""
VOLATILE: Final = ("created", "modified", "sourcePosition", "stackTrace")
"""What differs from run to run, or names the machine."""


def recorded(resources: list[dict[str, Any]], stack: str) -> str:
    """An exported state as text; the launcher's archive is left out for its size, its name stays.

    Args:
        resources: with secrets in plain text, since another stack has another key.
        stack: name of the stack that has them.
    """
    kept = [{key: value for key, value in each.items() if key not in VOLATILE} for each in resources]
    text = json.dumps(kept, indent=1)
    for name, placeholder in {_archive(): "@ARCHIVE@", **_names(stack)}.items():
        text = text.replace(name, placeholder)
    return f"{text}\n"


def restored(text: str, stack: str) -> list[dict[str, Any]]:
    """A recorded state as that of another stack.

    Version 0.1.0 did not keep a job's launcher, so that its state has the present one's name in place of its own.
    """
    workload = json.loads(json.dumps(render("train", JobConfig.from_mapping({**JOB, **FULL})).workload))
    values = {
        "@ARCHIVE@": _archive(),
        "@DIGEST@": launcher.digest(),
        "@RUN@": workload["spec"]["elasticPolicy"]["rdzvId"],
        **{placeholder: name for name, placeholder in _names(stack).items()},
    }
    for placeholder, value in values.items():
        text = text.replace(placeholder, value)
    resources: list[dict[str, Any]] = json.loads(text)
    return resources


def _archive() -> str:
    return base64.b64encode(launcher.archive()).decode()


def _names(stack: str) -> dict[str, str]:
    """What holds the stack's name, and what stands for it."""
    return {
        f"urn:pulumi:{stack}::": "urn:pulumi:recorded::",
        f"{PROJECT}-{stack}": f"{PROJECT}-recorded",
    }


def main() -> None:
    """Record the state and the pods of this version.

    Raises:
        SystemExit: the version has its state already, or there is no engine.
    """
    version = str(elastic_infra.__version__)
    if version in RECORDED:
        sys.exit(f"{RECORDED[version]} is there, and a recorded state stays as it is. Raise the version first.")
    with empty_stack() as stack:
        stack.up(job(**FULL)).ops()
        text = recorded(stack.exported(), stack.name)
    Path(__file__).with_name("testdata").joinpath(f"state-{version}.json").write_text(text)
    shutil.copytree(NEXT, PODS / version)


if __name__ == "__main__":
    main()
