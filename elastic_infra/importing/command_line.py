"""Reads a container's command, most often torchrun's, as fields of the config."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from elastic_infra.config import ConfigError, Fault
from elastic_infra.launcher.command_line.options import OptionsError, parse

_PYTHON: Final = re.compile(r"python[0-9.]*")
_LAUNCHERS: Final = ("torchrun", "elasticrun")
_MODULES: Final = ("torch.distributed.run", "torch.distributed.launch", "elastic_infra.launcher")
_SHELLS: Final = ("bash", "sh")
_SHELL_WORK: Final = re.compile(r"[;&|<>`\n*?$]")
"""What only a shell understands."""

_ELSEWHERE: Final = frozenset({"rdzv_endpoint", "master_addr", "master_port", "node_rank", "local_addr", "standalone"})
"""Options that place a node, for which the job's own objects stand."""


@dataclasses.dataclass(frozen=True)
class Command:
    """What a command line says.

    Attributes:
        fields: of the config: what runs, and its arguments.
        elastic: fields of `elastic` that options give.
        notes: options that nothing stands for.
    """

    fields: Mapping[str, Any]
    elastic: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()


def only_command(text: str, variables: Collection[str] = ()) -> list[str]:
    """The words of the one command in a shell's file, or in the line of its `-c`.

    Args:
        variables: those that Kubernetes puts into the text, for `$(NAME)`, before the shell reads it.

    Raises:
        ConfigError: as `split`, or a shell has more to do than to start that command.
    """
    known = _REFERENCE.sub(lambda found: "known" if found[1] in variables else found[0], text.replace("\\\n", " "))
    if _SHELL_WORK.search(_LITERAL.sub(_left_to_the_shell, known).strip()):
        raise ConfigError([Fault("command", _MORE_THAN_ONE)])
    words = split(text)
    return words[1:] if words[0] == "exec" else words


_REFERENCE: Final = re.compile(r"\$\(([-.\w]+)\)")
_LITERAL: Final = re.compile(
    r"(?P<comment>(?:^|(?<=\s))#.*)|'[^']*'|\"(?P<inside>(?:[^\"\\]|\\.)*)\"|\\.", re.MULTILINE
)
"""What a shell takes as it is: a comment, quoted words, a quoted character."""
_MORE_THAN_ONE: Final = (
    "is more than one plain command in a shell. Move the rest into the image or the script, and leave one."
)


def _left_to_the_shell(literal: re.Match[str]) -> str:
    """What a shell works on all the same: ``$`` and backquotes between double quotes."""
    return "" if literal["comment"] else "quoted" + re.sub(r"[^$`]", "", literal["inside"] or "")


def split(text: str) -> list[str]:
    """The words of a command line; a line that ends in a backslash goes on.

    Raises:
        ConfigError: quotes are not closed, or there is no word.
    """
    try:
        words = shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError as error:
        raise ConfigError([Fault("", f"is no command line that can be read: {error}.")]) from None
    if not words:
        raise ConfigError([Fault("", "is empty. Give a manifest, or a command line of torchrun.")])
    return words


def read_command(words: Sequence[str], variables: Collection[str] = ()) -> Command:
    """What a command line runs.

    Args:
        variables: as in `only_command`.

    Raises:
        ConfigError: it runs nothing, a shell does the work, or torchrun's options are wrong.
    """
    words = _without_shell(words, variables)
    if not words:
        reason = "has no command and no args, so what the image runs is not known. Write the command out."
        raise ConfigError([Fault("command", reason)])
    program = words[0].rpartition("/")[2]
    if program in _LAUNCHERS:
        return _torchrun(words[1:])
    if _PYTHON.fullmatch(program):
        return _python([*itertools.dropwhile(lambda word: word == "-u", words[1:])])
    return Command({"command": [words[0]], "args": [*words[1:]]})


def _without_shell(words: Sequence[str], variables: Collection[str]) -> Sequence[str]:
    """The command that a shell is given as its last word; other words as they are."""
    if not _LINE_FOLLOWS.fullmatch(" ".join(words[1:-1])) or words[0].rpartition("/")[2] not in _SHELLS:
        return words
    return only_command(words[-1], variables)


_LINE_FOLLOWS: Final = re.compile(r"(-\w*o \w+ |-[-\w]+ )*-\w*c\w*")
"""A shell's options that end with `-c`, such as ``-euo pipefail -c``."""


def _python(words: Sequence[str]) -> Command:
    if words[:1] == ["-m"] and len(words) > 1:
        if words[1] in _MODULES:
            return _torchrun(words[2:])
        return Command({"module": words[1], "args": [*words[2:]]})
    if not words or words[0].startswith("-"):
        reason = "starts Python with options of its own, or without a script. Name a script or a module."
        raise ConfigError([Fault("command", reason)])
    return Command({"script": words[0], "args": [*words[1:]]})


def _torchrun(words: Sequence[str]) -> Command:
    try:
        given = parse(words, {})
        defaults = parse([given.training_script], {})
    except OptionsError as error:
        raise ConfigError([Fault("command", f"is no torchrun command: {error}")]) from None
    kind = "module" if given.module else "command" if given.no_python else "script"
    what = [given.training_script] if kind == "command" else given.training_script
    options = {
        name: value
        for name, value in vars(given).items()
        if value != getattr(defaults, name) and name not in {"training_script_args", "module", "no_python"}
    }
    elastic = dict(_elastic(given, options))
    notes = tuple(
        f"drops --{name.replace('_', '-')}: the launcher or the job's objects take its place."
        for name in options
        if name not in _KNOWN and name not in _ELSEWHERE
    )
    return Command({kind: what, "args": [*given.training_script_args]}, elastic, notes)


_KNOWN: Final = frozenset(
    {"nnodes", "nproc_per_node", "max_restarts", "monitor_interval", "rdzv_backend", "rdzv_conf", "start_method"}
)


def _elastic(given: argparse.Namespace, options: Mapping[str, Any]) -> Mapping[str, Any]:
    found: dict[str, Any] = {
        name: options[name]
        for name in ("nnodes", "max_restarts", "monitor_interval", "start_method")
        if name in options
    }
    if "nnodes" in found:
        low, _, high = str(found["nnodes"]).partition(":")
        found["nnodes"] = low if high in {"", low} else f"{low}:{high}"
    processes = str(given.nproc_per_node)
    found["nproc_per_node"] = "auto" if processes in {"auto", "gpu", "xpu"} else processes
    if str(given.rdzv_backend).startswith("etcd"):
        found |= {"rdzv_backend": given.rdzv_backend, "rdzv_endpoint": given.rdzv_endpoint}
    if budgets := read_budgets(dict(pair.split("=", 1) for pair in given.rdzv_conf.split(",") if "=" in pair)):
        found["rdzv_configs"] = budgets
    return found


def read_budgets(conf: Mapping[str, str]) -> dict[str, int]:
    """The time budgets in a rendezvous' settings."""
    names = ("timeout", "join_timeout", "last_call_timeout")
    return {name: int(conf[name]) for name in names if conf.get(name, "").isdecimal()}
