"""Torchrun's command line, option for option, without torch.

The table below is torchrun 2.15's parser (https://github.com/pytorch/pytorch/blob/main/torch/distributed/run.py);
options that older releases lack are accepted always. This module only turns words and ``PET_*`` variables into a
namespace, which ``plan`` interprets. ``DEVIATIONS`` lists every intended difference from torchrun.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, NoReturn

from ..log import PROGRAM

DEVIATIONS: Final[Mapping[str, str]] = {
    "PET_STANDALONE": 'An empty value is true: training-operator writes PET_STANDALONE="", torchrun fails on it.',
    "last_call_timeout": "5 s instead of torchrun's 30 s: a start with fewer than max nodes waits for it in full.",
    "local_addr": "Defaults to POD_IP where that is set: a pod's own FQDN often does not resolve for its peers.",
    "monitor_interval": "Has no effect: ends of workers are events here, and progress is read at its own pace.",
    "nccl_async_error_handling": "3 when unset, c10d's own default; torchrun forces 1, whose abort may hang.",
    "agent_store": "TORCHELASTIC_USE_AGENT_STORE is False: rank 0 serves a fresh store in every generation.",
    "rdzv_id": 'The id "none" is accepted as by torchrun, with one warning: jobs that share it collide.',
    "run_path": "Runs in a fresh interpreter like any script, not in a multiprocessing child.",
    "start_method": "Only spawn, and only for function entrypoints: forking a process that holds threads is unsafe.",
    "shutdown_timeout": "Bounds every stop of a worker, not only those caused by a signal.",
    "signals_to_handle": "Every one of them stops the job; workers are told by SIGTERM whichever it was.",
    "file_timer": "TORCHELASTIC_ENABLE_FILE_TIMER is not served; training.Progress reports hangs instead.",
    "warm_start": "On by default: workers are forked from a process that has imported what they import.",
    "warnings": "Options without effect here (event_log_handler, start_method and others) are named in one line.",
}
"""The intended differences from torchrun by option, each with its reason."""

SHELLS: Final = ("bash", "zsh", "tcsh")
NUMA_MODES: Final = ("node", "socket", "exclusive", "core-complex")


class OptionsError(ValueError):
    """The command line or a ``PET_*`` variable cannot be used; the message says what to do. Exit code 2."""


@dataclasses.dataclass(frozen=True)
class Option:
    """One option of the command line."""

    name: str
    kind: Literal["env", "flag", "plain"]
    """``env``: the variable ``PET_<DEST>`` is read; ``flag``: the same, without a value; ``plain``: there is no
    variable."""
    help: str
    default: Any = None
    type: Callable[[str], Any] = str
    choices: tuple[str, ...] | None = None
    short: str = ""

    @property
    def strings(self) -> tuple[str, ...]:
        """All spellings: the short one, ``--a-b`` and ``--a_b``."""
        underscored = "--" + self.name[2:].replace("-", "_")
        return (*([self.short] if self.short else []), self.name, *([underscored] if underscored != self.name else []))


def comma_separated_list(text: str) -> list[str]:
    """Split at single commas; a doubled comma stands for a comma."""
    placeholder = "\0"
    return [item.replace(placeholder, ",") for item in text.replace(",,", placeholder).split(",")]


OPTIONS: Final[tuple[Option, ...]] = (
    Option("--nnodes", "env", "Nodes, or their range as MIN:MAX.", "1:1"),
    Option("--nproc-per-node", "env", "Workers per node: a number, auto, cpu, gpu or xpu.", "1"),
    Option("--rdzv-backend", "env", "c10d, etcd-v2, etcd or static.", "static"),
    Option("--rdzv-endpoint", "env", "HOST:PORT of the rendezvous store.", ""),
    Option("--rdzv-id", "env", "Id of the job, the same on every node.", "none"),
    Option("--rdzv-conf", "env", "Rendezvous settings as KEY=VALUE,KEY=VALUE.", ""),
    Option("--standalone", "flag", "One node: choose backend, endpoint and id by itself."),
    Option("--max-restarts", "env", "Restarts of the worker group before the job fails.", 0, int),
    Option("--monitor-interval", "env", "Seconds between looks at the workers.", 0.1, float),
    Option(
        "--start-method",
        "env",
        "How function entrypoints are started.",
        "spawn",
        choices=("spawn", "fork", "forkserver"),
    ),
    Option("--event-log-handler", "env", "Torch's event log handler.", "null"),
    Option("--role", "env", "Role of the workers.", "default"),
    Option("--module", "flag", "Run the script as a module, as 'python -m' does.", short="-m"),
    Option("--no-python", "flag", "Run the script as a program, without Python."),
    Option("--run-path", "flag", "Run the script with runpy.run_path."),
    Option("--log-dir", "env", "Folder for log files; a folder for this run is made in it."),
    Option("--redirects", "env", "Streams that go to files: 0 to 3, or RANK:0..3,...", "0", short="-r"),
    Option("--tee", "env", "Streams that go to files and to the console.", "0", short="-t"),
    Option("--log-line-prefix-template", "env", "Prefix of a console line of a tee'd stream.", ""),
    Option("--local-ranks-filter", "env", "Local ranks whose output reaches the console.", ""),
    Option("--duplicate-stdout-filters", "env", "Copy matching stdout lines to a file.", (), comma_separated_list),
    Option("--duplicate-stderr-filters", "env", "Copy matching stderr lines to a file.", (), comma_separated_list),
    Option("--node-rank", "env", "Rank of this node; only for static rendezvous.", 0, int),
    Option("--master-addr", "env", "Address of node 0; only for static rendezvous.", "127.0.0.1"),
    Option("--master-port", "env", "Port on node 0; only for static rendezvous (29500).", None, int),
    Option("--local-addr", "env", "Address of this node that its peers can reach."),
    Option("--logs-specs", "plain", "Entry point of a torchrun.logs_specs plugin."),
    Option("--numa-binding", "plain", "Bind workers to the CPUs near their GPU.", choices=NUMA_MODES),
    Option("--signals-to-handle", "env", "Signals that stop the job.", "SIGTERM,SIGINT,SIGHUP,SIGQUIT"),
    Option("--shutdown-timeout", "env", "Seconds from SIGTERM to SIGKILL for a worker.", None, int),
    Option("--virtual-local-rank", "flag", "LOCAL_RANK 0 and one visible GPU for every worker."),
)


class Parser(argparse.ArgumentParser):
    """Argparse that raises instead of exiting, so that one place owns the exit code."""

    def error(self, message: str) -> NoReturn:
        """Raise the message that argparse would print."""
        text = f"{message}. See '{PROGRAM} --help'."
        raise OptionsError(text)


def parser(environ: Mapping[str, str]) -> Parser:
    """The parser for this environment: ``PET_*`` variables become defaults, as in torchrun.

    Raises:
        OptionsError: the variable of a flag is not a number.
    """
    built = Parser(
        prog=PROGRAM,
        description="Elastic PyTorch training, a drop-in for torchrun.",
        epilog="Differs from torchrun:\n" + "\n".join(f"  {name}: {text}" for name, text in DEVIATIONS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for option in OPTIONS:
        _add(built, option, environ)
    built.add_argument(
        "--print-completion", "--print_completion", action=_PrintCompletion, choices=_completion_shells(),
        help="Print a shell completion script and exit (needs shtab).",
    )  # fmt: skip
    built.add_argument("training_script", type=str, help="The program to run in every worker.")
    built.add_argument("training_script_args", nargs=argparse.REMAINDER, help="Its own arguments.")
    return built


def parse(arguments: Sequence[str], environ: Mapping[str, str]) -> argparse.Namespace:
    """Read a command line.

    Raises:
        OptionsError: the command line cannot be read.
    """
    return parser(environ).parse_args(arguments)


def variable(option: Option) -> str | None:
    """The ``PET_*`` variable of an option; None for the two options for which torchrun has none."""
    return None if option.kind == "plain" else "PET_" + option.name[2:].replace("-", "_").upper()


def _add(built: Parser, option: Option, environ: Mapping[str, str]) -> None:
    name = variable(option)
    text = environ.get(name) if name else None
    if option.kind == "flag":
        default = False if text is None else _flag(str(name), text)
        built.add_argument(*option.strings, action="store_true", default=default, help=option.help)
        return
    fallback = list(option.default) if isinstance(option.default, tuple) else option.default
    built.add_argument(
        *option.strings,
        type=option.type,
        default=fallback if text is None else text,
        choices=option.choices,
        help=option.help,
    )


def _flag(name: str, text: str) -> bool:
    if name == "PET_STANDALONE" and not text:
        return True
    try:
        return bool(int(text))
    except ValueError as error:
        message = f"{name} must be 0 or 1, it is {text!r}. Correct it or unset it."
        raise OptionsError(message) from error


class _PrintCompletion(argparse.Action):
    def __call__(
        self, parser: argparse.ArgumentParser, _namespace: object, values: object, option_string: str | None = None
    ) -> None:
        try:
            shtab = importlib.import_module("shtab")
        except ImportError:
            message = f"{option_string} needs the shtab package. Install it with 'pip install shtab'"
            raise OptionsError(message) from None
        print(shtab.complete(parser, shell=values))
        parser.exit()


def _completion_shells() -> tuple[str, ...]:
    try:
        return tuple(importlib.import_module("shtab").SUPPORTED_SHELLS)
    except ImportError:
        return SHELLS
