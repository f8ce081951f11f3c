"""Builds the pinned Go programs into a cache folder and says where they are.

Standard library only, and nothing of the project: this runs before anything is installed.

    python3 -m tools.build build [TOOL ...]   build; skips what is there
    python3 -m tools.build path PROGRAM       where a built program is
    python3 -m tools.build crd                the PyTorchJob CRD of the pinned training operator
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

from tools import modules
from tools.modules import Tool
from tools.run import Say, SetupError, alone, needed, output, stopwatch

PROGRESS_SECONDS: Final = 30
LOCKS: Final = ".locks"
"""The cache's folder with an empty folder for each tool, which whoever builds the tool holds."""
KUBERNETES_MODULE: Final = "k8s.io/kubernetes"
OPERATOR_MODULE: Final = "github.com/kubeflow/training-operator"
TRAINER_MODULE: Final = "github.com/kubeflow/trainer/v2"
CRD_PATH: Final = "manifests/base/crds/kubeflow.org_pytorchjobs.yaml"


def go_program() -> str:
    """The ``go`` on PATH.

    Raises:
        SetupError: there is none.
    """
    return needed("go", "Install Go 1.25 or later to build tools from source.")


def go_version(go: str) -> str:
    """The version of the toolchain that builds, such as ``go1.26.8``."""
    return output([go, "env", "GOVERSION"], folder=modules.HERE)


def build(tool: Tool, cache: Path, go: str, say: Say) -> Path:
    """Build one tool unless it is there; its folder appears whole or not at all.

    Of several checkouts that want it at the same time one builds it, and the others wait.

    Returns:
        The folder that holds its programs.

    Raises:
        SetupError: the build failed; the message ends with the compiler's last words.
    """
    target = modules.built_folder(tool, cache, go_version(go))
    if not modules.is_built(tool, target):  # a cache that has the tool may be read-only
        wait = partial(say, f"{tool.name} {tool.version}: waits for whoever builds it already")
        with alone(cache / LOCKS / target.name, wait):
            if not modules.is_built(tool, target):
                _build(tool, target, go, say)
                return target
    say(f"{tool.name} {tool.version}: there")
    return target


def _build(tool: Tool, target: Path, go: str, say: Say) -> None:
    unfinished = Path(tempfile.mkdtemp(prefix=f".{tool.name}-", dir=target.parent))
    try:
        started = time.monotonic()
        _compile(tool, unfinished, go, say)
        _copy_script(tool, unfinished, go)
        _publish(unfinished, target)
        say(f"{tool.name} {tool.version}: built in {time.monotonic() - started:.0f} s")
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def program_path(program: str, cache: Path, go: str) -> Path:
    """Where a built program is.

    Raises:
        SetupError: no tool has such a program, or it is not built yet.
    """
    tools = modules.load_all()
    tool = next((tool for tool in tools.values() if program in tool.programs), None)
    if tool is None:
        known = ", ".join(sorted(name for tool in tools.values() for name in tool.programs))
        message = f"No tool here has a program {program!r}. Choose one of: {known}."
        raise SetupError(message)
    folder = modules.built_folder(tool, cache, go_version(go))
    if not modules.is_built(tool, folder):
        message = f"{program} is not built yet. Run `make tools`, or `python3 -m tools.build build {tool.name}`."
        raise SetupError(message)
    return folder / program


def module_folder(tool_folder: Path, module: str, go: str) -> Path:
    """The sources of a module that a tool's ``go.mod`` pins, fetched unless they are there."""
    return Path(json.loads(output([go, "mod", "download", "-json", module], folder=tool_folder))["Dir"])


def crd_path(go: str) -> Path:
    """The PyTorchJob CRD of the pinned training operator, in its own module."""
    return module_folder(modules.HERE / "training-operator", OPERATOR_MODULE, go) / CRD_PATH


def build_all(tools: Iterable[Tool], cache: Path, go: str, say: Say) -> list[SetupError]:
    """Build several tools, two at a time, for linking is serial; one that fails does not stop the others."""

    def attempt(tool: Tool) -> SetupError | None:
        try:
            build(tool, cache, go, say)
        except SetupError as error:
            return error
        return None

    with ThreadPoolExecutor(max_workers=2) as pool:
        return [error for error in pool.map(attempt, tools) if error]


def _compile(tool: Tool, out: Path, go: str, say: Say) -> None:
    say(f"{tool.name} {tool.version}: building")
    flags = ["-v", "-trimpath", "-ldflags", modules.linker_flags(tool)]
    command = [go, "build", *flags, "-o", f"{out}{os.sep}", *tool.packages]
    with subprocess.Popen(command, cwd=tool.folder, stderr=subprocess.PIPE, text=True, errors="replace") as process:
        last_words = _follow(process.stderr or (), lambda text: say(f"{tool.name}: {text}"))
    if process.returncode:
        message = f"{tool.name} does not build: {last_words or f'go build ended with {process.returncode}'}"
        raise SetupError(message)


def _follow(lines: Iterable[str], say: Say) -> str:
    """Say how far ``go build -v`` is every half minute; give back its last lines for a failure."""
    fetched, compiled, said = 0, 0, time.monotonic()
    tail: list[str] = []
    for line in lines:
        fetched += line.startswith("go: downloading ")
        compiled += not line.startswith(("go: ", "#", "\t"))
        tail = [*tail[-3:], line.strip()]
        if time.monotonic() - said >= PROGRESS_SECONDS:
            said = time.monotonic()
            say(f"{fetched} modules fetched, {compiled} packages compiled")
    return " / ".join(tail)


def _copy_script(tool: Tool, out: Path, go: str) -> None:
    if script := tool.script:
        source = module_folder(tool.folder.parent / script.tool, script.module, go) / script.path
        shutil.copyfile(source, out / source.name)
        (out / source.name).chmod(0o755)


def _publish(unfinished: Path, target: Path) -> None:
    unfinished.chmod(0o755)
    shutil.rmtree(target, ignore_errors=True)  # only ever one that lacks a program
    unfinished.rename(target)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m tools.build", description="Builds the pinned Go programs.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    names = ", ".join(modules.load_all())
    verbs.add_parser("build", help=f"build all tools, or those named ({names})").add_argument("tool", nargs="*")
    verbs.add_parser("path", help="where a built program is").add_argument("program")
    verbs.add_parser("crd", help="the PyTorchJob CRD of the pinned training operator")
    return parser.parse_args()


def _run(arguments: argparse.Namespace, cache: Path, go: str) -> list[SetupError]:
    if arguments.verb == "build":
        tools = [tool for tool in modules.load_all().values() if tool.packages]
        chosen = [tool for tool in tools if tool.name in arguments.tool or not arguments.tool]
        return build_all(chosen, cache, go, stopwatch())
    print(crd_path(go) if arguments.verb == "crd" else program_path(arguments.program, cache, go))
    return []


def main() -> int:
    """Run one verb; 0 when it did what it says, 1 with the reasons when not."""
    arguments = _arguments()
    try:
        errors = _run(arguments, modules.cache_folder(os.environ, Path.home()), go_program())
    except SetupError as failure:
        errors = [failure]
    for error in errors:
        print(error, file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
