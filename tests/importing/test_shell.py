"""What a shell does before a program sees its command line is done, or refused."""

from __future__ import annotations

import pytest

from elastic_infra import ConfigError
from elastic_infra.importing.shell import Line, without_shell

LINES: dict[str, list[str]] = {
    "torchrun t.py --x a#b --lr 3  # c #d": ["torchrun", "t.py", "--x", "a#b", "--lr", "3"],
    "# what follows \\\ntorchrun \\\n  t.py": ["torchrun", "t.py"],
    "torchrun t.py '#x' a\\ #b": ["torchrun", "t.py", "#x", "a #b"],
    "torchrun \\\r\n  t.py\r\n": ["torchrun", "t.py"],
    "torchrun t.py '~' \"{a,b}\" \\[0-9] '(c)'": ["torchrun", "t.py", "~", "{a,b}", "[0-9]", "(c)"],
    "torchrun t.py a~b {} {c} sizes=[1,2]": ["torchrun", "t.py", "a~b", "{}", "{c}", "sizes=[1,2]"],
    "bash -c 'exec torchrun t.py'": ["torchrun", "t.py"],
}


@pytest.mark.parametrize(("text", "words"), LINES.items(), ids=LINES.keys())
def test_words_are_those_that_a_shell_gives_the_program(text: str, words: list[str]) -> None:
    """A comment starts only where a word does, and quotes keep what is in them."""
    assert [*without_shell(Line(["bash", "-c", text])).words] == words


@pytest.mark.parametrize("word", ["~/data", "~", "HOME=~/x", "{a,b}", "x{1..3}", "{a,{b,c}}", "part[0-9].tar", "(a)"])
def test_what_a_shell_would_replace_is_refused(word: str) -> None:
    """The program would get the text as it stands."""
    with pytest.raises(ConfigError, match="is more than one plain command in a shell"):
        without_shell(Line(["sh", "-c", f"torchrun t.py {word}"]))


def test_what_no_shell_reads_is_kept() -> None:
    """Kubernetes replaces no tilde and no brackets."""
    words = ["torchrun", "t.py", "~/data", "{a,b}", "[0-9]", "a #b", "(c)"]

    assert without_shell(Line(words)).words == words


def test_variables_before_a_command_are_set_for_it() -> None:
    """Bash starts the first word that is no assignment, and the inner shell's value counts."""
    line = without_shell(Line(["bash", "-c", "A=1 B='x y' bash -c 'A=2 C= exec torchrun t.py D=3'"]))

    assert line == Line(["torchrun", "t.py", "D=3"], {"A": "2", "B": "x y", "C": ""})


def test_variables_alone_start_no_program() -> None:
    """Nothing would train then."""
    with pytest.raises(ConfigError, match="starts no program"):
        without_shell(Line(["bash", "-c", "OMP_NUM_THREADS=1"]))


@pytest.mark.parametrize(
    ("options", "is_told"), [(["-c"], False), (["-lc"], True), (["-l", "-c"], True), (["--login", "-c"], True)]
)
def test_the_profile_of_a_login_shell_is_missed(options: list[str], is_told: bool) -> None:  # noqa: FBT001 - a case
    """It often puts a virtualenv on PATH."""
    notes = without_shell(Line(["bash", *options, "torchrun t.py"])).notes

    assert any("profile of a login shell" in note for note in notes) is is_told
