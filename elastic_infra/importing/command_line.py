"""Reads a container's command, most often torchrun's, as fields of the config."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from elastic_infra.config import ConfigError, Fault
from elastic_infra.importing.shell import SHELLS, Line, without_shell
from elastic_infra.launcher.command_line.options import OPTIONS, OptionsError, parser

_PYTHON: Final = re.compile(r"python[0-9.]*")
_LAUNCHERS: Final = ("torchrun", "elasticrun")
_LAUNCH: Final = "torch.distributed.launch"
_MODULES: Final = ("torch.distributed.run", _LAUNCH, "elastic_infra.launcher")
_STARTERS: Final = ("accelerate", "deepspeed", "horovodrun", "mpiexec", "mpirun")
"""Programs, and packages with a module, that start the processes of a node by themselves."""


@dataclasses.dataclass(frozen=True)
class Command:
    """What a command line says.

    Attributes:
        fields: of the config: what runs, and its arguments.
        elastic: fields of `elastic` that options give.
        notes: what nothing stands for.
        is_torchrun: whether torchrun starts the processes, and not the command one.
        env: variables that a shell sets for it.
    """

    fields: Mapping[str, Any]
    elastic: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()
    is_torchrun: bool = False
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)


def is_program(word: str) -> bool:
    """Whether a word is known to start something: a launcher, Python or a shell."""
    name = _program(word)
    return name in {*_LAUNCHERS, *_STARTERS, *SHELLS} or _PYTHON.fullmatch(name) is not None


def read_command(words: Sequence[str], variables: Collection[str] = ()) -> Command:
    """What a command line runs.

    Args:
        variables: those that Kubernetes puts into a shell's text, for `$(NAME)`, before the shell reads it.

    Raises:
        ConfigError: it runs nothing, a shell or a wrapper does the work, or torchrun's options are wrong.
    """
    line = without_shell(Line(words), variables)
    if not line.words:
        raise ConfigError([Fault("command", UNKNOWN)])
    found = _read(line.words)
    notes = (*line.notes, *_other_folder(line.words[0]), *found.notes)
    return dataclasses.replace(found, env=line.env, notes=notes)


UNKNOWN: Final = "has no command, so what the image runs is not known. Write the command out."


def _program(word: str) -> str:
    return word.rpartition("/")[2]


def _read(words: Sequence[str]) -> Command:
    program = _program(words[0])
    if program in _LAUNCHERS:
        return _torchrun(words[1:])
    if _PYTHON.fullmatch(program):
        return _python([*itertools.dropwhile(lambda word: word == "-u", words[1:])])
    plain = Command({"command": [words[0]], "args": [*words[1:]]})
    if program in _STARTERS:
        return _with_own_processes(plain, program)
    if launcher := next((word for word in words[1:] if _program(word) in _LAUNCHERS or word in _MODULES), None):
        reason = f"runs {launcher} through {program}, which would start once for each worker. Leave {program} out."
        raise ConfigError([Fault("command", reason)])
    return plain


def _with_own_processes(command: Command, program: str) -> Command:
    note = f"starts {program} once a node, for it starts processes of its own: name its script to have the launcher do."
    return dataclasses.replace(command, elastic={"nproc_per_node": "1"}, notes=(note,))


def _other_folder(word: str) -> tuple[str, ...]:
    """What is lost where the interpreter, or torchrun, is one that PATH may not lead to."""
    folder, _, program = word.rpartition("/")
    is_of_python = program in _LAUNCHERS or _PYTHON.fullmatch(program)
    if not is_of_python or folder in {"", "/bin", "/usr/bin", "/usr/local/bin"}:
        return ()
    return (f"runs the image's python3 instead of that in {folder}: have PATH begin with that folder.",)


def _python(words: Sequence[str]) -> Command:
    if words[:1] == ["-m"] and len(words) > 1:
        return _module(words[1], words[2:])
    if not words or words[0].startswith("-"):
        reason = "starts Python with options of its own, or without a script. Name a script or a module."
        raise ConfigError([Fault("command", reason)])
    return Command({"script": words[0], "args": [*words[1:]]})


def _module(name: str, arguments: Sequence[str]) -> Command:
    if name in _MODULES:
        return _torchrun(arguments, has_rank_argument=name == _LAUNCH)
    plain = Command({"module": name, "args": [*arguments]})
    package = name.partition(".")[0]
    return _with_own_processes(plain, package) if package in _STARTERS else plain


_UNSET: Final = object()
_DESTS: Final = tuple(option.name[2:].replace("-", "_") for option in OPTIONS)
_USE_ENV: Final = ("--use-env", "--use_env")
_ALONE: Final = frozenset(text for option in OPTIONS if option.kind == "flag" for text in option.strings) | {*_USE_ENV}
_NUMBERED: Final = frozenset({"node_rank", "master_port"})
"""Options that place a node by a number, which Kubernetes may put in only when the pod starts."""
_ELSEWHERE: Final = frozenset({"rdzv_endpoint", "master_addr", "local_addr", "standalone"})
"""Other options that place a node, for which the job's own objects stand."""
_KNOWN: Final = frozenset(
    {"nnodes", "nproc_per_node", "max_restarts", "monitor_interval", "rdzv_backend", "rdzv_conf", "start_method"}
)
_RANK_ARGUMENT: Final = "drops the argument --local-rank, which torch.distributed.launch adds: read LOCAL_RANK instead."


def _torchrun(words: Sequence[str], *, has_rank_argument: bool = False) -> Command:
    options, script = _options(words)
    given = _given([word for option in options if not _is_dropped(option) for word in option] + script)
    what = given.pop("training_script")
    kind = "module" if given.pop("module", False) else "command" if given.pop("no_python", False) else "script"
    fields = {kind: [what] if kind == "command" else what, "args": given.pop("training_script_args")}
    is_told = has_rank_argument and not any(option[0] in _USE_ENV for option in options)
    return Command(fields, _elastic(given), (*_lost(given), *((_RANK_ARGUMENT,) if is_told else ())), is_torchrun=True)


def _options(words: Sequence[str]) -> tuple[list[Sequence[str]], list[str]]:
    """Torchrun's own options, each with its value, and the words from the script on."""
    options: list[Sequence[str]] = []
    rest = [*words]
    while rest and rest[0].startswith("-"):
        length = 1 if rest[0] in _ALONE or "=" in rest[0] else 2
        options.append(rest[:length])
        rest = rest[length:]
    return options, rest


def _is_dropped(option: Sequence[str]) -> bool:
    name = option[0].partition("=")[0]
    return name in _USE_ENV or name.lstrip("-").replace("-", "_") in _NUMBERED


def _given(words: Sequence[str]) -> dict[str, Any]:
    """What is on the command line; no default, which a variable of the operator might replace."""
    unset = argparse.Namespace(**dict.fromkeys(_DESTS, _UNSET))
    try:
        found = vars(parser({}).parse_args(words, unset))
    except OptionsError as error:
        raise ConfigError([Fault("command", f"is no torchrun command: {error}")]) from None
    return {name: value for name, value in found.items() if value is not _UNSET and name != "print_completion"}


def _lost(given: Mapping[str, Any]) -> Iterator[str]:
    for name in given:
        if name not in _KNOWN and name not in _ELSEWHERE:
            yield f"drops --{name.replace('_', '-')}: the launcher or the job's objects take its place."
    for key in unread_settings(_pairs(given)):
        yield f"drops {key} of --rdzv-conf: the launcher has its own."


def _pairs(given: Mapping[str, Any]) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in given.get("rdzv_conf", "").split(",") if "=" in pair)


def _elastic(given: Mapping[str, Any]) -> Mapping[str, Any]:
    found = {
        name: given[name] for name in ("nnodes", "max_restarts", "monitor_interval", "start_method") if name in given
    }
    if "nnodes" in found:
        low, _, high = str(found["nnodes"]).partition(":")
        found["nnodes"] = low if high in {"", low} else f"{low}:{high}"
    if "nproc_per_node" in given:
        found["nproc_per_node"] = processes(given["nproc_per_node"])
    if str(given.get("rdzv_backend")).startswith("etcd"):
        found |= {"rdzv_backend": given["rdzv_backend"], "rdzv_endpoint": given.get("rdzv_endpoint", "")}
    if budgets := read_budgets(_pairs(given)):
        found["rdzv_configs"] = budgets
    return found


def processes(given: object) -> str:
    """Processes a node; `cpu` counts cores, for which the config has no word: one process a node stands for it."""
    return "auto" if str(given) in {"auto", "cpu", "gpu", "xpu"} else str(given)


def read_budgets(conf: Mapping[str, str]) -> dict[str, int]:
    """The time budgets in a rendezvous' settings."""
    names = ("timeout", "join_timeout", "last_call_timeout")
    return {name: int(conf[name]) for name in names if conf.get(name, "").isdecimal()}


def unread_settings(conf: Mapping[str, str]) -> list[str]:
    """Names of a rendezvous' other settings."""
    return [name for name in conf if name not in read_budgets(conf)]
