"""Reads what a shell reads: the one command in it, where there is no more for the shell to do."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from elastic_infra.config import ConfigError, Fault
from elastic_infra.importing.plain import REFERENCE

SHELLS: Final = ("bash", "sh")

_SHELL_WORK: Final = re.compile(
    r"[;&|<>()`\n*?$]"
    r"|(?<!\S)(\w+=)?~"
    r"|(?<!\S)[^\s=]*\[[^\]\s]+\]"  # behind a `=`, as in `sizes=[1,2]`, no file has such a name
    r"|\{[^\s{}]*(,|\.\.)\S*\}"
)
"""What only a shell understands."""

_LITERAL: Final = re.compile(
    r"(?P<comment>(?<!\S)(?<!\\\s)#.*)|'[^']*'|\"(?P<inside>(?:[^\"\\]|\\.)*)\"|\\.", re.MULTILINE
)
"""What a shell takes as it is: a comment, quoted words, a quoted character."""
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_MORE_THAN_ONE: Final = (
    "is more than one plain command in a shell. Move the rest into the image or the script, and leave one. "
    "Quote what is meant as it stands."
)
_PROFILE: Final = (
    "runs without the profile of a login shell: what it sets, such as PATH, has to be in the image or in `env`."
)


@dataclasses.dataclass(frozen=True)
class Line:
    """A command line as the program that it starts sees it.

    Attributes:
        words: the program and its arguments.
        env: variables that a shell sets for it.
        notes: what the shell would do besides.
    """

    words: Sequence[str]
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()


def without_shell(line: Line, variables: Collection[str] = ()) -> Line:
    """The command that a shell is given as its last word, or the line as it is.

    Args:
        variables: those that Kubernetes puts into the text, for `$(NAME)`, before the shell reads it.

    Raises:
        ConfigError: as `split`, or a shell has more to do than to start that command.
    """
    shell, *options = line.words[:-1] or [""]
    if not _LINE_FOLLOWS.fullmatch(" ".join(options)) or shell.rpartition("/")[2] not in SHELLS:
        return line
    env, words = _only_command(line.words[-1], variables)
    notes = (_PROFILE,) if any(_LOGIN.fullmatch(option) for option in options) else ()
    return without_shell(Line(words, {**line.env, **env}, (*line.notes, *notes)), variables)


_LINE_FOLLOWS: Final = re.compile(r"(-\w*o \w+ |-[-\w]+ )*-\w*c\w*")
"""A shell's options that end with `-c`, such as ``-euo pipefail -c``."""
_LOGIN: Final = re.compile(r"-\w*l\w*|--login")


def _only_command(text: str, variables: Collection[str]) -> tuple[dict[str, str], list[str]]:
    """The variables that are set for the one command in a shell's text, and its words."""
    known = REFERENCE.sub(lambda found: "known" if found[1] in variables else found[0], _joined(text))
    if _SHELL_WORK.search(_LITERAL.sub(_left_to_the_shell, known).strip()):
        raise ConfigError([Fault("command", _MORE_THAN_ONE)])
    words, env = split(text), {}
    while words and (found := _ASSIGNMENT.fullmatch(words[0])):
        env[found[1]] = found[2]
        del words[0]
    words = words[1:] if words[:1] == ["exec"] else words
    if not words:
        raise ConfigError([Fault("command", "starts no program. Name the program that is to run.")])
    return env, words


def _joined(text: str) -> str:
    """The text without comments, and with the lines that a backslash continues as one."""
    lines = text.replace("\r\n", "\n")
    return _LITERAL.sub(lambda found: "" if found["comment"] else found[0], lines).replace("\\\n", " ")


def _left_to_the_shell(literal: re.Match[str]) -> str:
    """What a shell works on all the same: ``$`` and backquotes between double quotes."""
    return "quoted" + re.sub(r"[^$`]", "", literal["inside"] or "")


def split(text: str) -> list[str]:
    """The words of a command line; a line that ends in a backslash goes on.

    Raises:
        ConfigError: quotes are not closed, or there is no word.
    """
    try:
        words = shlex.split(_joined(text))
    except ValueError as error:
        raise ConfigError([Fault("", f"is no command line that can be read: {error}.")]) from None
    if not words:
        raise ConfigError([Fault("", "is empty. Give a manifest, or a command line of torchrun.")])
    return words
