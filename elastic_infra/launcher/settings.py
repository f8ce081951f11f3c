"""The launcher's settings beyond torchrun's options, as one type for both ends of the wire.

The pod manifest is written with ``to_env()``, the container reads it with ``from_env(environ)``, and
``from_env(to_env(s)) == s`` for every ``s``. Torchrun's options travel as torchrun's own ``PET_*`` variables and
are not repeated here. This module takes no decisions and imports only the standard library.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Final, Literal

PREFIX: Final = "ELASTIC_INFRA_"
"""The prefix of the launcher's variables; users may not set names under it (wire contract)."""

SECRETS: Final = ("store_token", "webhook_url")
"""The fields that no line shows and no worker gets."""

HangTimeout = float | Literal["auto", "off"]
Count = int
"""An integer of 1 or more."""


class SettingsError(ValueError):
    """A variable holds a value that cannot be read; the message names the variable, never its value."""


@dataclasses.dataclass(frozen=True)
class LauncherSettings:
    """The launcher's own settings. The defaults hold for the command line; the component sends the config's values."""

    nccl_collective_timeout_seconds: float | None = None
    """Seconds a collective may take before the process group fails; None leaves torch's own (NCCL 600, gloo 1800)."""

    nccl_heartbeat_timeout_seconds: int | None = None
    """Seconds without a beat of NCCL's monitored thread before the process is ended; None leaves torch's own."""

    nccl_async_error_handling: int | None = None
    """c10d's error mode (0 to 3); None means 3, c10d's own default, where torchrun alone would force 1."""

    nccl_enable_monitoring: bool | None = None
    """Whether NCCL's watchdog thread is itself watched; None leaves torch's own (true)."""

    omp_num_threads: int | None = None
    """Threads of each worker's OpenMP pool; None means 1 when a node runs more than one worker, as torchrun does."""

    shutdown_grace_seconds: float = 30.0
    """Seconds from SIGTERM to SIGKILL for a worker, an upper bound on every path (torchrun's default)."""

    failure_grace_seconds: float | None = None
    """The same bound when a peer failed; None means ``shutdown_grace_seconds``, and 5 s where a peer is lost: work that
    needs all ranks (a collective checkpoint) cannot succeed then."""

    hang_timeout_seconds: HangTimeout = "auto"
    """Seconds without a reported step that count as a hang; "auto" is max(5 x p99 step interval, 600); "off" never."""

    startup_window_seconds: float = 0.0
    """A failure within this many seconds of the workers' start is a start-up failure (two tries); 0 turns it off."""

    startup_wait_seconds: float = 0.0
    """How long the first round waits for ``initial_nodes`` before it starts with fewer; 0 turns it off."""

    startup_patience_seconds: float | None = None
    """How long newcomers wait for workers that have not made a first step; None means three times the longest start
    seen, 30 at least, and 600 while none was seen."""

    initial_nodes: int | None = None
    """Nodes the first round hopes for; None means the maximum of ``--nnodes``."""

    node_unit: Count = 1
    """Nodes train in multiples of this number; a node beyond the last whole multiple waits."""

    world_sizes: tuple[Count, ...] = ()
    """Numbers of workers that the script can use, such as 8,16,32; empty means any."""

    orphan_timeout_seconds: float = 120.0
    """Workers are killed this long after the store last answered: longer than a store pod needs to come back,
    short enough to bound a partition."""

    warm_start: bool = True
    """Keep a parent process that has imported torch, so that a restart forks its workers and imports nothing."""

    log_level: str = "WARNING"
    """Level of the launcher's own log lines (torchrun's LOGLEVEL default)."""

    events: str = ""
    """Where event lines go: a path, or "-" for stderr; empty writes none."""

    metrics_port: int = 0
    """Port of ``/metrics``, ``/healthz`` and ``/status``; with 0 the launcher listens on no port."""

    termination_log: str = "/dev/termination-log"
    """File in which the kubelet expects the root cause; written only if the kubelet has made the file."""

    fault_record: str = ""
    """File in which a runner of faults writes the process id of each worker that it kills, so that the kill is not told
    as a shortage of memory; empty where there is no such runner."""

    store_token: str = dataclasses.field(default="", repr=False)
    """Shared secret that store clients must present; empty means none. The token comes from a Secret (a standalone
    launch makes its own), is never logged, and reaches no worker."""

    webhook_url: str = dataclasses.field(default="", repr=False)
    """URL that gets a message when the job ends; empty sends none. Often a secret: never logged, and reaches no
    worker."""

    replica_index: int | None = None
    """This node's index among the replicas, where there is one: ranks follow it."""

    node_name: str = ""
    """A readable name (the pod's name): a new launcher of the same name proves that a disconnected one is gone."""

    def changed(self) -> dict[str, object]:
        """The fields that differ from their default, in order."""
        return {
            field.name: value
            for field in dataclasses.fields(self)
            if (value := getattr(self, field.name)) != field.default
        }

    def to_env(self) -> dict[str, str]:
        """Variables for every field that differs from its default, in the order of the fields."""
        return {env_name(name): _write(value) for name, value in self.changed().items()}

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> LauncherSettings:
        """Read the settings; unset or empty variables keep their default.

        Raises:
            SettingsError: a variable cannot be read as its type.
        """
        given = {
            field.name: _read(env_name(field.name), str(field.type), text)
            for field in dataclasses.fields(cls)
            if (text := environ.get(env_name(field.name), ""))
        }
        return dataclasses.replace(cls(), **given)  # type: ignore[arg-type]  # types were just parsed


def env_name(field: str) -> str:
    """The variable that carries a field: ``warm_start`` is ``ELASTIC_INFRA_WARM_START``."""
    return PREFIX + field.upper()


def _write(value: object) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _read(name: str, kind: str, text: str) -> object:
    try:
        return _READERS[kind.removesuffix(" | None")](text)
    except ValueError as error:
        message = f"{name} cannot be read as {kind}. Correct it or unset it."
        raise SettingsError(message) from error


def _read_bool(text: str) -> bool:
    if text.lower() in {"1", "true", "yes", "on"}:
        return True
    if text.lower() in {"0", "false", "no", "off"}:
        return False
    message = "not a boolean"
    raise ValueError(message)


def _read_seconds(text: str) -> float:
    seconds = float(text)
    if math.isfinite(seconds) and seconds >= 0:
        return seconds
    message = "not a number of seconds"
    raise ValueError(message)


def _read_sizes(text: str) -> tuple[int, ...]:
    return tuple(sorted({_read_count(size) for size in text.split(",")}))


def _read_count(text: str) -> int:
    count = int(text)
    if count < 1:
        message = "less than one"
        raise ValueError(message)
    return count


def _read_hang_timeout(text: str) -> HangTimeout:
    if text == "auto":
        return "auto"
    if text == "off":
        return "off"
    return _read_seconds(text)


_READERS: Final[Mapping[str, Callable[[str], object]]] = {
    "float": _read_seconds,
    "int": int,
    "bool": _read_bool,
    "str": str,
    "HangTimeout": _read_hang_timeout,
    "Count": _read_count,
    "tuple[Count, ...]": _read_sizes,
}
