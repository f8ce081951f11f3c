"""Runs inline programs on a real Pulumi engine, against a provider in this process. No cluster, no network."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import json
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

import pulumi
from pulumi import automation
from pulumi.automation._stack import StackInitMode
from pulumi.automation.events import EngineEvent, StepEventMetadata, StepEventStateMetadata
from pulumi.runtime._grpc_settings import _GRPC_CHANNEL_OPTIONS
from typing_extensions import override

from tests.collector import uncollected
from tests.engine import key_service

Program = Callable[[], Awaitable[None] | None]

PROJECT: Final = "team-a"
OWN_CONNECTIONS: Final = ("grpc.use_local_subchannel_pool", 1)
"""gRPC's channels share connections by address, and one that was refused counts as refused for seconds. A program that
fails looks for its engine once more when the engine has ended. A later engine may get the same port: without this
option, the later program takes its own engine for ended."""


@dataclasses.dataclass(frozen=True)
class Step:
    """What the engine does with one resource."""

    name: str
    op: str
    provider: str
    state: StepEventStateMetadata
    """The resource after it; before it where it is deleted. Secrets are masked."""

    diff: Mapping[str, str]
    """Path to kind of change, as the provider reported it."""

    @classmethod
    def of(cls, event: StepEventMetadata) -> Step:
        """What an event tells."""
        state = event.new or event.old
        assert state is not None, f"a step on nothing: {event.urn}"
        diff = {path: change.diff_kind.value for path, change in (event.detailed_diff or {}).items()}
        return cls(event.urn.rpartition("::")[2], event.op.value, event.provider, state, diff)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What one preview, update or destruction came to."""

    failed: bool
    text: str
    """Everything that the engine printed."""

    steps: tuple[Step, ...]
    """In the engine's order, those on stacks, providers and records in a `Stash` left out."""

    def ops(self) -> dict[str, str]:
        """What happens to each resource, by its Pulumi name; a replacement is named by what comes first in it.

        Raises:
            AssertionError: the operation failed, with what the engine printed: its steps tell no more than that.
        """
        assert not self.failed, self.text
        return self.attempted()

    def attempted(self) -> dict[str, str]:
        """What happened to each resource before the operation failed, by its Pulumi name."""
        found: dict[str, str] = {}
        for step in self.steps:
            found.setdefault(step.name, step.op)
        return {name: op for name, op in found.items() if op != "same"}

    def diff(self, name: str) -> dict[str, str]:
        """Path to kind of change, for one resource."""
        return dict(self._last(name).diff)

    def inputs(self, name: str) -> dict[str, Any]:
        """The inputs of one resource."""
        return dict(self._last(name).state.inputs or {})

    def _last(self, name: str) -> Step:
        return [step for step in self.steps if step.name == name][-1]


class Stack:
    """A stack whose program is given with each operation."""

    def __init__(self, stack: automation.Stack, file: Path) -> None:
        self._stack = stack
        self._file = file

    @property
    def name(self) -> str:
        """The stack's name, part of every URN in it."""
        return self._stack.name

    def preview(self, program: Program, **options: Any) -> Outcome:
        """What an update would do."""
        return _outcome(lambda **sinks: self._stack.preview(program=program, color="never", **options, **sinks))

    def up(self, program: Program, **options: Any) -> Outcome:
        """Make the stack as the program declares the stack."""
        return _outcome(lambda **sinks: self._stack.up(program=program, color="never", **options, **sinks))

    def refresh(self) -> Outcome:
        """Read what is live, without running the program."""
        return _outcome(lambda **sinks: self._stack.refresh(color="never", **sinks))

    def destroy(self) -> Outcome:
        """Delete everything, as `pulumi destroy` does without running the program."""
        return _outcome(lambda **sinks: self._stack.destroy(color="never", **sinks))

    def outputs(self) -> dict[str, Any]:
        """The stack's outputs, in plain data."""
        return {key: output.value for key, output in automation.Stack.outputs(self._stack).items()}

    def state(self) -> list[dict[str, Any]]:
        """The resources of the stored state, as the backend holds them: secrets encrypted."""
        resources: list[dict[str, Any]] = self._stored().get("resources", [])
        return resources

    def exported(self) -> list[dict[str, Any]]:
        """The same as `pulumi stack export --show-secrets` gives it: secrets in plain text."""
        resources: list[dict[str, Any]] = (self._stack.export_stack().deployment or {})["resources"]
        return resources

    def load(self, resources: list[dict[str, Any]]) -> None:
        """Take these resources as the stack's own."""
        content = {**self._stored(), "resources": resources}
        self._stack.import_stack(automation.Deployment(version=3, deployment=content))

    def _stored(self) -> dict[str, Any]:
        latest: dict[str, Any] | None = json.loads(self._file.read_text())["checkpoint"].get("latest")
        return latest or {}


class _Brief(automation.Stack):
    """Leaves out what Pulumi's API asks for after every operation: three more runs of the CLI that no test reads."""

    @override
    def info(self, show_secrets: bool = True) -> automation.UpdateSummary:
        return automation.UpdateSummary("", datetime.now(timezone.utc), "", {}, {}, "")

    @override
    def outputs(self) -> automation.OutputMap:
        return {}


def _outcome(operation: Callable[..., Any]) -> Outcome:
    lines: list[str] = []
    events: list[EngineEvent] = []
    try:
        # A program makes so many objects that a sixth of the time went into looking for cycles.
        with uncollected():
            operation(on_output=lines.append, on_error=lines.append, on_event=events.append)
        failed = False
    except automation.CommandError:
        failed = True
    found = [event.resource_pre_event.metadata for event in events if event.resource_pre_event]
    ours = tuple(Step.of(step) for step in found if not step.type.startswith("pulumi:"))
    return Outcome(failed=failed, text="\n".join(lines), steps=ours)


@contextlib.contextmanager
def _undebugged() -> Iterator[None]:
    """Leave out what Pulumi tells the engine for `--debug`, which no test asks for: three in four of its calls."""
    before = pulumi.log.debug
    pulumi.log.debug = lambda *_, **__: None
    try:
        yield
    finally:
        pulumi.log.debug = before


class Engine:
    """One folder with a file backend, shared by many stacks."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self._folder = folder
        self.environ = environ
        self._numbers = itertools.count()

    @classmethod
    @contextlib.contextmanager
    def started(cls, pulumi: Path, folder: Path, providers: str) -> Iterator[Engine]:
        """An engine on this CLI; its folder comes first on PATH, for Pulumi's API finds it nowhere else.

        Args:
            pulumi: the CLI.
            folder: an empty folder for state and settings.
            providers: where the providers listen, as PULUMI_DEBUG_PROVIDERS says it.
        """
        (folder / "state").mkdir()
        environ = {
            "PULUMI_CONFIG_PASSPHRASE": "test",
            "PULUMI_DEBUG_PROVIDERS": providers,
            "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
            "PULUMI_HOME": str(folder / "home"),
            "PULUMI_SKIP_UPDATE_CHECK": "true",
        }
        before = os.environ["PATH"]
        os.environ["PATH"] = os.pathsep.join([str(pulumi.parent), before])
        _GRPC_CHANNEL_OPTIONS.append(OWN_CONNECTIONS)
        try:
            with key_service.serving() as found, _undebugged():
                yield cls(folder, {**environ, **found})
        finally:
            _GRPC_CHANNEL_OPTIONS.remove(OWN_CONNECTIONS)
            os.environ["PATH"] = before

    @functools.cached_property
    def _command(self) -> automation.PulumiCommand:
        """The CLI, asked for its version once and not once a stack."""
        return automation.PulumiCommand()

    @property
    def home(self) -> Path:
        """The engine's own folder, where plugins are installed."""
        return self._folder / "home"

    def stack(self) -> Stack:
        """A new, empty stack."""
        work = self._folder / f"stack-{next(self._numbers)}"
        work.mkdir()
        backend = automation.ProjectBackend(url=f"file://{self._folder / 'state'}")
        settings = automation.ProjectSettings(name=PROJECT, runtime="python", backend=backend)
        workspace = automation.LocalWorkspace(
            work_dir=str(work),
            project_settings=settings,
            env_vars=dict(self.environ),
            pulumi_command=self._command,
            secrets_provider=key_service.PROVIDER,
        )
        file = self._folder / "state/.pulumi/stacks" / PROJECT / f"{work.name}.json"
        return Stack(_Brief(work.name, workspace, StackInitMode.CREATE), file)
