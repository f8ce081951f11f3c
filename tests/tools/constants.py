"""Numbers with a unit in the documentation that no benchmark has measured, each with the place that it comes from."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from tools.run import ROOT

UNITS: Final[Mapping[str, float]] = {
    "s": 1, "ms": 1e-3, "µs": 1e-6, "minute": 60, "minutes": 60, "hour": 3600, "hours": 3600,
    "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "%": 1e-2, "times": 1
}  # fmt: skip
"""What is measured: times, sizes, shares and ratios."""
NUMBER: Final = re.compile(rf"(?<![\w.])(\d[\d.,]*)\s?({'|'.join(UNITS)})(?![\w/])")
_OPERATORS: Final[Mapping[type[ast.operator], Callable[[float, float], float]]] = {
    ast.Mult: operator.mul, ast.Sub: operator.sub, ast.LShift: lambda one, other: int(one) << int(other)
}  # fmt: skip


class Constant(NamedTuple):
    """A number of the documentation with its source."""

    page: str
    text: str
    """As the page has it, in one line."""
    source: str
    """``FILE:NAME`` of a constant in the code, whose value the text has; else the file that does it or the test that
    holds the page against what it says, or the address of who says so."""

    def stated(self) -> list[float]:
        """The numbers of the text, in seconds, bytes or parts of one."""
        return [float(number) * UNITS[unit] for number, unit in NUMBER.findall(self.text)]

    def values(self) -> list[float]:
        """What the code has; empty where the source is no constant."""
        path, _, name = self.source.partition(":")
        if not name or path == "https":
            return []
        return [value for node in _named(path, name) for value in _values(node)]


def _named(path: str, name: str) -> Iterator[ast.expr]:
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        match node:
            case ast.AnnAssign(target=ast.Name(id=found), value=ast.expr() as value) if found == name:
                yield value
            case ast.Assign(targets=[ast.Name(id=found)], value=value) if found == name:
                yield value


def _values(node: ast.expr) -> Iterator[float]:
    if isinstance(node, ast.Dict):
        for value in node.values:
            yield from _values(value)
    elif isinstance(node, ast.BinOp):
        yield _OPERATORS[type(node.op)](next(_values(node.left)), next(_values(node.right)))
    else:
        yield ast.literal_eval(node)


_LAUNCHER: Final = "elastic_infra/launcher"
_LIMITS: Final = f"{_LAUNCHER}/protocol/limits.py"
_SERVER: Final = f"{_LAUNCHER}/store/server.py"
_SUSPENDED: Final = f"{_LAUNCHER}/supervisor/worker_processes.py:SUSPENDED_SECONDS"
_OBJECT: Final = "elastic_infra/manifests/launcher.py:MAX_OBJECT_BYTES"
_PAUSE: Final = f"{_LAUNCHER}/driver/decision.py:LONGEST_PAUSE"
_CONFIG_MAP: Final = "tests/manifests/test_launcher.py"
_PACKAGES: Final = "tests/test_docs.py"
_JIT: Final = "https://github.com/huggingface/transformers/blob/main/src/transformers/trainer_jit_checkpoint.py"

CONSTANTS: Final = (
    Constant("docs/architecture.md", "216 kB of base64", _CONFIG_MAP),
    Constant("docs/architecture.md", "can keep 262 kB", _OBJECT),
    Constant("docs/capacity.md", "up to 32 times", _PAUSE),
    Constant("docs/code-and-data.md", "960 KiB packed", "elastic_infra/config/workdir.py:MAX_ARCHIVE_BYTES"),
    Constant("docs/code-and-data.md", "32 MiB unpacked", "elastic_infra/config/workdir.py:MAX_FOLDER_BYTES"),
    Constant("docs/code-and-data.md", "more than 262 kB", _OBJECT),
    Constant("docs/code-and-data.md", "pauses from 2 s that double", "elastic_infra/manifests/fetch.py"),
    Constant("docs/dependencies.md", "38 packages of 89 MB", _PACKAGES),
    Constant("docs/dependencies.md", "18 MB are gRPC, 14 MB", _PACKAGES),
    Constant("docs/dependencies.md", "32 MB less", _PACKAGES),
    Constant("docs/frameworks.md", "3 s after SIGTERM", _JIT),
    Constant("docs/frameworks.md", "counts its 3 s by itself", _JIT),
    Constant("docs/launcher.md", "takes more than 2 s, where", f"{_LAUNCHER}/workers/bootstrap.py:CLOSE_SECONDS"),
    Constant("docs/launcher.md", "does not move for 10 s", f"{_LAUNCHER}/supervisor/watchdog.py:BUDGET_SECONDS"),
    Constant("docs/launcher.md", "32 MiB for values", f"{_SERVER}:STORED_BYTES"),
    Constant("docs/launcher.md", "32 MiB for unsent or unread bytes", f"{_SERVER}:BUFFERED_BYTES"),
    Constant("docs/launcher.md", "one line of 4 KiB", f"{_LAUNCHER}/store/connection.py:HELLO_BYTES"),
    Constant("docs/launcher.md", "within 10 s. A", f"{_SERVER}:HELLO_SECONDS"),
    Constant("docs/launcher.md", "no more notices beyond 1 MiB", f"{_SERVER}:BACKLOG_BYTES"),
    Constant("docs/launcher.md", "after 5 s without a request", f"{_LAUNCHER}/agent/status_server.py:IDLE_SECONDS"),
    Constant("docs/launcher.md", "copying goes on for 60 s", f"{_LAUNCHER}/agent/agent.py:DELIVERY_SECONDS"),
    Constant("docs/monitoring.md", "has not grown for 20 minutes", "examples/monitoring/prometheus-rule.yaml"),
    Constant("docs/operating.md", "16 MiB are added up", f"{_LAUNCHER}/health.py"),
    Constant("docs/protocol.md", "deletes it 600 s after", f"{_SERVER}:KEEP_SECONDS"),
    Constant("docs/protocol.md", "no beat has come for 5 s", "elastic_infra/config/time_budgets.py:SILENT_SECONDS"),
    Constant("docs/protocol.md", "within 2 s no sign of a lost member", f"{_LIMITS}:loss_wait"),
    Constant("docs/protocol.md", "60 s old, and no member lives", f"{_LIMITS}:forget_final"),
    Constant("docs/protocol.md", "60 s, to show whether", f"{_LAUNCHER}/protocol/group.py:START_VERDICT_SECONDS"),
    Constant("docs/protocol.md", "the last planned change is 30 s ago", f"{_LIMITS}:planned_gap"),
    Constant("docs/protocol.md", "of an unknown start (10 minutes) are killed", f"{_LIMITS}:UNKNOWN_START"),
    Constant("docs/protocol.md", "each other 50 ms after", f"{_LAUNCHER}/protocol/turns.py:TURN_SECONDS"),
    Constant("docs/protocol.md", "disconnected for 1 s, and at once", f"{_LIMITS}:reconnect_wait"),
    Constant("docs/protocol.md", "`orphan_timeout` + 10 s", f"{_LIMITS}:orphan_margin"),
    Constant("docs/protocol.md", "disconnected for 1 s and a launcher", f"{_LIMITS}:reconnect_wait"),
    Constant("docs/protocol.md", "as a failure after 2 s otherwise", f"{_LIMITS}:loss_wait"),
    Constant("docs/protocol.md", "told to end within 2 s", f"{_LIMITS}:loss_wait"),
    Constant("docs/protocol.md", "killed in 3 s unless", _SUSPENDED),
    Constant("docs/protocol.md", "dead only 10 s later", f"{_LIMITS}:orphan_margin"),
    Constant("docs/protocol.md", "after 3 s in any case", _SUSPENDED),
    Constant("docs/protocol.md", "their generation, 3 s at most", _SUSPENDED),
    Constant("docs/reference.md", "up to 32 times. Longer", _PAUSE),
    Constant("docs/reference.md", "a node takes up to 64 KiB,", "elastic_infra/config/warnings.py:BYTES_OF_A_NODE"),
    Constant(
        "docs/reference.md", "one node in 5 minutes, after 10 minutes without", "elastic_infra/config/autoscaling.py"
    ),
    Constant("docs/reference.md", "in batches of 30 s", f"{_LIMITS}:planned_gap"),
    Constant("docs/reference.md", "pauses from 2 s that double", "elastic_infra/manifests/fetch.py"),
    Constant("docs/reference.md", "Add up 16 MiB", f"{_LAUNCHER}/health.py"),
    Constant("docs/reference.md", "besides 60 s for", "elastic_infra/config/time_budgets.py:NODE_LOST_SECONDS"),
    Constant("docs/reference.md", "besides 30 s for", "elastic_infra/manifests/store.py:NODE_LOST_SECONDS"),
    Constant(
        "docs/reference.md",
        "Kubernetes' own is 300 s",
        "https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/",
    ),
    Constant("docs/reference.md", "a container has 64 MiB", "elastic_infra/cli/explanation.py"),
    Constant("docs/reference.md", "delivered in 12 s", f"{_LAUNCHER}/agent/webhook.py:WAIT_SECONDS"),
    Constant("docs/run.md", "is back after 2 s", "elastic_infra/local/controller.py:BACK_SECONDS"),
    Constant("docs/run.md", "counts as training 30 s after", "elastic_infra/local/watch.py:SILENT_SECONDS"),
    Constant(
        "docs/simulate.md", "between 10 MB and 1 GB. In between, a state of 300 MB,", "tests/simulate/test_measured.py"
    ),
    Constant("docs/simulate.md", "its 95 % confidence interval", "elastic_infra/simulate/estimate.py:CONFIDENCE"),
    Constant("docs/simulate.md", "a checkpoint every 5 minutes, restarts of 5", "https://arxiv.org/abs/2410.21680"),
    Constant("docs/simulate.md", "RSC-2's rate, both 2 minutes (with 4: not)", "https://arxiv.org/abs/2410.21680"),
    Constant("docs/simulate.md", "every 18 minutes, 10 minutes without a step", "https://arxiv.org/abs/2602.00277"),
    Constant("docs/simulate.md", "the same with 3 minutes, measured", "https://arxiv.org/abs/2602.00277"),
    Constant("docs/simulate.md", "a pause of 10 s a checkpoint (with 60 s: not)", "https://arxiv.org/abs/2410.21680"),
    Constant("docs/training.md", "30 s by default", f"{_LAUNCHER}/settings.py:shutdown_grace_seconds"),
    Constant("docs/training.md", "steady training within 100 s", "benchmarks/training/labels.py:LOST_SECONDS"),
    Constant("docs/training.md", "every 600 s, or", "elastic_infra/training/loop.py:durable_seconds"),
    Constant("docs/training.md", "one number in 64 KiB", "elastic_infra/training/overlap.py:SAMPLE_BYTES"),
    Constant("docs/training.md", "with more than 1 MiB of tensors", "elastic_infra/training/undo.py:SMALL_BYTES"),
    Constant("docs/training.md", "some 15 kB a worker", "tests/training/test_generators.py"),
    Constant("docs/troubleshooting.md", "last change is 30 s ago", f"{_LIMITS}:planned_gap"),
    Constant("docs/upgrade.md", "216 kB of base64", _CONFIG_MAP),
)
"""Defaults and bounds of the code, limits of Kubernetes, what others have published, and what a test counts."""
