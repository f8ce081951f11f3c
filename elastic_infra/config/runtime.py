"""The launcher's limits and defaults at run time: collective timeouts, hangs, grace, warm start."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from elastic_infra.config.base import Part, Shorthand
from elastic_infra.config.values import InputKey, InputName, Int, Port, Seconds, Whole


def _is_hang_timeout(text: str) -> str:
    if text in {"auto", "off"} or (text.isdecimal() and int(text[:9]) >= 1 and len(text) <= 7):  # noqa: PLR2004
        return text if text in {"auto", "off"} else str(int(text))
    message = 'must be a number of seconds, "auto" or "off".'
    raise ValueError(message)


def _number_to_text(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "off" if value is False else value
    return str(int(value)) if value == value // 1 else value


class Runtime(Part):
    """Defaults that the launcher applies inside each container; a variable set in `env` always wins."""

    nccl_collective_timeout_sec: Seconds | None = None
    """Seconds a collective may take before its process group fails. Unset leaves torch's own: NCCL 600, gloo 1800."""

    nccl_heartbeat_timeout_sec: Seconds = 300
    """Seconds without a beat of NCCL's monitored thread before the process is ended (torch: 480). 300 as in
    flyte-sdk."""

    nccl_async_error_handling: Annotated[Whole, Field(ge=0, le=3)] | None = None
    """c10d's error mode. Unset means 3 (no abort that may hang), c10d's own default; torchrun alone forces 1."""

    nccl_enable_monitoring: bool = True
    """Whether NCCL's watchdog thread is itself watched, as torch does."""

    omp_num_threads: Annotated[Whole, Field(ge=1, le=1024)] | None = None
    """OpenMP threads of each worker. Unset means 1 when a node runs more than one worker, as torchrun does."""

    shutdown_grace_seconds: Annotated[Whole, Field(ge=0, le=86_400)] = 30
    """Seconds from SIGTERM to SIGKILL for a worker; at most `disruption.termination_grace_period_seconds` minus 5."""

    failure_grace_seconds: Annotated[Whole, Field(ge=0, le=86_400)] | None = None
    """Seconds from SIGTERM to SIGKILL when a peer failed. Unset means `shutdown_grace_seconds`, and 5 when a peer is
    lost."""

    hang_timeout_seconds: Annotated[
        str, AfterValidator(_is_hang_timeout), Shorthand(_number_to_text, {"type": ["integer", "boolean"]})
    ] = "auto"
    """Seconds without a reported step that count as a hang. `auto` is max(5 x p99 step interval, 600); `off` never."""

    startup_window_seconds: Int = 0
    """A failure within so many seconds of the start is a start-up failure, which is tried twice. 0 turns the rule off,
    as in torchrun."""

    startup_wait_seconds: Int = 120
    """Seconds the first round waits for `initial_nodes`, so that late image pulls do not cost a restart each."""

    startup_patience_seconds: Int | None = None
    """Seconds newcomers wait for workers that have not made their first step, so that nodes that trickle in do not
    end every start. Unset means three times the longest start seen, 30 at least, and 600 while none was seen."""

    warm_start: bool = True
    """Keep a parent process that has imported torch: a restart forks its workers, which share the import's memory."""

    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "WARNING"
    """Level of the launcher's log lines; torchrun's default."""


class Webhook(Part):
    """Where the message of the job's end goes: a URL in a Secret."""

    secret: InputName
    """Name of a Secret in the job's namespace. Without it, or without the key, the pods start all the same and nothing
    is sent."""

    key: InputKey = "url"
    """Key inside the Secret that holds the URL, `http://` or `https://`."""


class Launcher(Part):
    """How the launcher gets into the container, and its telemetry."""

    delivery: Literal["configmap", "image"] = "configmap"
    """`configmap` mounts the launcher into any image with python3; `image` expects `elastic_infra` installed in it."""

    config_map: InputName | None = None
    """A ConfigMap in the job's namespace that has the launcher, such as an `ElasticLauncher`'s `config_map`, shared by
    many jobs. Unset makes one for the job."""

    verify: bool = False
    """Compare the mounted launcher with the SHA-256 in the pod's template at each start of a container, and run nothing
    of it where it is another. Needs a `config_map` whose name ends in that digest, as that of an `ElasticLauncher` with
    `verify` does. Off, because it protects only from those who may replace ConfigMaps in the namespace but not the job,
    and because turning it on restarts the job."""

    version: Annotated[str, Field(max_length=63)] = ""
    """Any text; a change of it takes the newest launcher, and restarts the job. Without that a job keeps its launcher
    until something else restarts it."""

    events: Annotated[str, Field(max_length=4096)] = ""
    """File for event lines: a path, or `-` for the container's stderr. Empty writes none."""

    metrics_port: Port | None = None
    """Port of `/metrics`, `/healthz` and `/status`. Unset: the launcher listens on no port."""

    webhook: Webhook | None = None
    """URL that gets one JSON message when the job has succeeded or failed for good. What cannot be delivered in 12 s is
    given up and never changes how the job ends. Unset sends none."""

    kubernetes_events: bool = False
    """Make Kubernetes Events about the job: one for each failure that ends a generation, for a node that is left out,
    and for the end. A container in the store's pod does so, with a token and a Role of its own. Off, because the right
    to create Events is one for the whole namespace."""
