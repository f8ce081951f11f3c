"""The command line is torchrun's, held by introspecting torchrun's own parser."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from elastic_infra.launcher.command_line import options

NEWER = {
    "event_log_handler", "log_line_prefix_template", "duplicate_stdout_filters", "duplicate_stderr_filters",
    "numa_binding", "signals_to_handle", "shutdown_timeout", "virtual_local_rank", "print_completion",
}  # fmt: skip
"""Options that some torch since 2.6 brought; an older parser may lack them."""

CHANGED = {"master_port": [29500, None]}
"""Defaults that torch changed; 29500 follows later where it matters."""

INTROSPECT = """
import json
from torch.distributed.run import get_args_parser
rows = {}
for action in get_args_parser()._actions:
    rows[action.dest] = {
        "strings": sorted(action.option_strings), "default": action.default, "nargs": action.nargs,
        "choices": list(action.choices) if action.choices else None,
        "type": getattr(action.type, "__name__", None),
        "environment": type(action).__name__ in ("env", "check_env"),
    }
print(json.dumps(rows))
"""


def interpreters() -> list[object]:
    """This interpreter, and one with the oldest torch we claim where the environment names it."""
    old = os.environ.get("ELASTIC_INFRA_OLD_TORCH_PYTHON", "")
    reason = "ELASTIC_INFRA_OLD_TORCH_PYTHON names no interpreter with torch 2.6"
    missing = pytest.mark.skipif(not Path(old).is_file(), reason=reason)
    return [pytest.param(sys.executable, id="newest"), pytest.param(old, id="oldest", marks=missing)]


def our_rows() -> dict[str, dict[str, object]]:
    reads = {(options.variable(option) or "PET_")[4:].lower() for option in options.OPTIONS}
    return {
        action.dest: {
            "strings": sorted(action.option_strings),
            "default": action.default,
            "nargs": action.nargs,
            "choices": list(action.choices) if action.choices else None,
            "type": getattr(action.type, "__name__", None),
            "environment": action.dest in reads,
        }
        for action in options.parser({})._actions  # argparse has no public view of its table
    }


@pytest.mark.parametrize("interpreter", interpreters())
def test_r0_every_torchrun_option(interpreter: str) -> None:
    """R0: strings, defaults, nargs, choices, types and PET_ variables equal torchrun's, and none is missing."""
    pytest.importorskip("torch")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PET_")}
    output = subprocess.run([interpreter, "-c", INTROSPECT], env=clean, capture_output=True, text=True, check=True)
    theirs = json.loads(output.stdout.splitlines()[-1])
    ours = our_rows()

    assert set(ours) - set(theirs) <= NEWER
    assert set(theirs) <= set(ours)
    for name, expected in theirs.items():
        actual = dict(ours[name])
        if name in CHANGED:
            assert expected.pop("default") in CHANGED[name]
            assert actual.pop("default") in CHANGED[name]
        assert {name: expected} == {name: actual}


VALUES = st.sampled_from(["", "0", "1", "1:4", "gpu", "a,b", "a,,b", "x=1,y=2", "3", "0.5", "spawn", "-1", "node"])


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    words: list[str] = []
    for option in draw(st.lists(st.sampled_from(options.OPTIONS), max_size=6)):
        spelling = draw(st.sampled_from(option.strings))
        if option.kind == "flag":
            words.append(spelling)
        elif spelling.startswith("--") and draw(st.booleans()):
            words.append(f"{spelling}={draw(VALUES)}")
        else:
            words.extend([spelling, draw(VALUES)])
    tail = draw(st.lists(st.sampled_from(["train.py", "--lr", "-m", "--nnodes", "2", "--"]), max_size=4))
    return words + tail


VARIABLES = st.dictionaries(
    st.sampled_from(sorted({name for option in options.OPTIONS if (name := options.variable(option))})),
    st.sampled_from(["0", "1", "2", "17", "a,b"]),
    max_size=4,
)


def outcome(parse: object, words: list[str]) -> dict[str, object] | str:
    """The namespace as a dict, or "refused"."""
    assert callable(parse)
    with contextlib.redirect_stderr(io.StringIO()):
        try:
            namespace = parse(words)
        except (SystemExit, ValueError):
            return "refused"
    assert isinstance(namespace, argparse.Namespace)
    return vars(namespace)


def comparable(outcome: dict[str, object] | str, missing: set[str]) -> dict[str, object] | str:
    """Without the options that this torch lacks, and with one value for a default that torch changed."""
    if isinstance(outcome, str):
        return outcome
    kept = {name: value for name, value in outcome.items() if name not in missing}
    return {name: "default" if value in CHANGED.get(name, []) else value for name, value in kept.items()}


@settings(max_examples=300, deadline=None)
@given(words=command_lines(), environ=VARIABLES)
@example(words=["--standalone", "train.py", "--standalone"], environ={})
@example(words=["--nproc_per_node", "2", "-m", "pkg.train", "--", "-m"], environ={"PET_NPROC_PER_NODE": "4"})
def test_r0_random_command_lines(words: list[str], environ: dict[str, str]) -> None:
    """R0: any command line with any PET_ variables parses to torchrun's namespace, or is refused by both."""
    run = pytest.importorskip("torch.distributed.run")
    missing = NEWER - {action.dest for action in run.get_args_parser()._actions}
    spellings = {spelling for action in options.parser({})._actions for spelling in action.option_strings
                 if action.dest in missing}  # fmt: skip
    assume(not spellings & {word.partition("=")[0] for word in words})
    with mock.patch.dict(os.environ, environ):
        expected = outcome(lambda words: run.get_args_parser().parse_args(words), words)
    actual = outcome(lambda words: options.parse(words, environ), words)

    assert comparable(expected, missing) == comparable(actual, missing)


def test_empty_standalone_variable_is_true() -> None:
    """training-operator writes PET_STANDALONE="", which torchrun cannot read."""
    assert options.parse(["train.py"], {"PET_STANDALONE": ""}).standalone is True


@pytest.mark.parametrize(
    ("words", "environ", "message"),
    [
        ([], {}, "training_script"),
        (["--no-such-option", "train.py"], {}, "no-such-option"),
        (["--max-restarts", "many", "train.py"], {}, "invalid int value: 'many'"),
        (["train.py"], {"PET_MODULE": "yes"}, "PET_MODULE must be 0 or 1"),
        (["--start-method", "thread", "train.py"], {}, "invalid choice"),
    ],
)
def test_bad_command_lines(words: list[str], environ: dict[str, str], message: str) -> None:
    """A command line that cannot be read is one error that names the fault."""
    with pytest.raises(options.OptionsError, match=message):
        options.parse(words, environ)
