"""From a pod template to a program with its arguments, environment and folder on this machine. Pure.

The module does the work of a container's runtime and the kubelet: variables from values and fields, `$(NAME)`, mounts.
Mounts are not made; their paths are replaced in the command, the arguments and the variables. A script with such a
path in its own text finds no folder there: the script should read `ELASTIC_INFRA_CHECKPOINT_DIR` or another variable.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from elastic_infra.config.env import reserved
from elastic_infra.config.errors import Fault

PYTHON: Final = "python3"


@dataclasses.dataclass(frozen=True)
class Place:
    """The names, folders and variables with which a pod runs here.

    Attributes:
        name: name of the pod.
        fields: the pod's fields by path, such as `status.podIP`.
        folders: mount path to the folder that stands for it.
        home: the folder that stands for the image's working dir.
        python: the interpreter for `python3`.
        machine: this machine's own environment, which stands for the image's.
        values: variables given by the user, for references that only a cluster can resolve.
        overrides: variables that the pod needs on this machine; they win over all others.
    """

    name: str
    fields: Mapping[str, str]
    folders: Mapping[str, str]
    home: str
    python: str
    machine: Mapping[str, str]
    values: Mapping[str, str]
    overrides: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class Program:
    """The command line, environment and folder of one container."""

    argv: tuple[str, ...]
    environ: Mapping[str, str]
    folder: str


def program(container: Mapping[str, Any], operator: Mapping[str, str], place: Place) -> Program:
    """The program of a container.

    Args:
        operator: variables that the operator adds.
    """
    folders = _folders(container.get("workingDir", "/"), place)
    given = {**_variables(container, place), **operator}
    given = {name: mapped(value, folders) for name, value in _expanded(given).items()}
    command = [*container.get("command", ()), *container.get("args", ())]
    argv = tuple(mapped(_expand(word, given), folders) for word in command)
    return Program(
        argv=(place.python, *argv[1:]) if argv[0] == PYTHON else argv,
        environ={**machine_environ(place.machine), **given, **place.overrides},
        folder=mapped(container.get("workingDir", "/"), {"/": place.home, **folders}),
    )


def _folders(working_dir: str, place: Place) -> dict[str, str]:
    """The mounts, and the working dir unless it lies in one of them or is the whole image."""
    if working_dir == "/" or mapped(working_dir, place.folders) != working_dir:
        return dict(place.folders)
    return {working_dir: place.home, **place.folders}


def machine_environ(machine: Mapping[str, str]) -> dict[str, str]:
    """The variables that a pod takes over from this machine: all but those of a launch around this process."""
    return {name: value for name, value in machine.items() if not reserved(name)}


def unresolved(container: Mapping[str, Any], values: Mapping[str, str]) -> tuple[Fault, ...]:
    """References to Secrets and ConfigMaps, which cannot be resolved without a cluster."""
    return tuple(_unresolved(container, values))


def _unresolved(container: Mapping[str, Any], values: Mapping[str, str]) -> Iterator[Fault]:
    for variable in container.get("env", ()):
        source, name = variable.get("valueFrom", {}), variable["name"]
        for kind, what in (("secretKeyRef", "a Secret"), ("configMapKeyRef", "a ConfigMap")):
            if kind in source and not source[kind].get("optional") and name not in values:
                reason = f"comes from {what} of the cluster. Give it here with `--env {name}=VALUE`."
                yield Fault(f"env.{name}", reason)


def _variables(container: Mapping[str, Any], place: Place) -> dict[str, str]:
    found = {variable["name"]: _value(variable, place) for variable in container.get("env", ())}
    return {name: value for name, value in found.items() if value is not None} | dict(place.values)


def _value(variable: Mapping[str, Any], place: Place) -> str | None:
    if "valueFrom" not in variable:
        return str(variable.get("value", ""))
    field = variable["valueFrom"].get("fieldRef")
    return place.fields.get(field["fieldPath"], "") if field else None


_REFERENCE: Final = re.compile(r"\$(\$)?\(([^()]+)\)")


def _expanded(variables: Mapping[str, str]) -> dict[str, str]:
    """`$(NAME)` of the variables before, as the kubelet replaces it."""
    found: dict[str, str] = {}
    for name, value in variables.items():
        found[name] = _expand(value, found)
    return found


def _expand(text: str, variables: Mapping[str, str]) -> str:
    # https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/
    return _REFERENCE.sub(lambda m: f"$({m[2]})" if m[1] else variables.get(m[2], m[0]), text)


def mapped(text: str, folders: Mapping[str, str]) -> str:
    """The text with every path under a mount replaced by the folder that stands for it; the longest mount wins."""
    if not folders:
        return text
    longest_first = sorted((path.rstrip("/") or "/" for path in folders), key=len, reverse=True)
    paths = "|".join(map(re.escape, longest_first))
    return re.sub(rf"(?<![\w./~-])(?:{paths})(?![\w.-])", lambda match: _folder(match[0], folders), text)


def _folder(path: str, folders: Mapping[str, str]) -> str:
    return folders[path] if path in folders else folders[f"{path}/"]
