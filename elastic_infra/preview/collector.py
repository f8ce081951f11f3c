"""Runs one Pulumi program under mocks and writes its jobs. A separate program, which the package never imports.

Started with ``python -I`` by `programs.run_program`, which says on stdin what to run and where to write.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import runpy
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""How Pulumi writes an unknown string: https://github.com/pulumi/pulumi/blob/v3.230.0/sdk/go/common/resource/plugin/rpc.go"""


def main() -> None:
    """Run the program that stdin names."""
    order = json.load(sys.stdin)
    sys.path.insert(0, order["package"])
    found: list[tuple[str, dict[str, Any]]] = []
    _record_jobs(found)
    asyncio.set_event_loop(loop := asyncio.new_event_loop())
    loop.run_until_complete(_run(order))
    declared = [(name, loop.run_until_complete(_plain(data, order["late"]))) for name, data in found]
    Path(order["result"]).write_text(json.dumps(declared), "utf-8")


def _record_jobs(found: list[tuple[str, dict[str, Any]]]) -> None:
    """Have every config noted when it is rendered for the component."""
    from elastic_infra import inputs

    rendered: Callable[..., Any] = inputs.rendered

    def noted(name: str, args: Any) -> Any:  # noqa: ANN401 - passed through
        config, manifests = rendered(name, args)
        found.append((name, config.model_dump(exclude_unset=True)))
        return config, manifests

    inputs.rendered = noted


async def _run(order: dict[str, Any]) -> None:
    import pulumi
    from pulumi.runtime.stack import wait_for_rpcs

    pulumi.runtime.set_mocks(_mocks(), project=order["project"], stack=order["stack"], preview=True)
    pulumi.runtime.set_all_config(order["config"])
    entrypoints: list[Callable[[], Awaitable[Any]]] = []

    def taken(program: Callable[[], Awaitable[Any]]) -> None:
        entrypoints.append(program)

    if hasattr(pulumi, "run"):  # from 3.254 on; under mocks Pulumi refuses it, since it takes the program for over
        pulumi.run = taken
    _program(Path(order["main"]))
    for entrypoint in entrypoints:
        await entrypoint()
    await wait_for_rpcs()


def _mocks() -> Any:  # noqa: ANN401 - a class of pulumi, imported late
    import pulumi

    class Mocks(pulumi.runtime.Mocks):
        """Makes every resource as requested; lookups find no resource, and values of other stacks are unknown."""

        def new_resource(self, args: pulumi.runtime.MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
            if args.typ == "pulumi:pulumi:StackReference":
                return args.name, {"name": args.name, "outputs": UNKNOWN, "secretOutputNames": []}
            return f"{args.name}-id", dict(args.inputs)

        def call(self, args: pulumi.runtime.MockCallArgs) -> tuple[dict[str, Any], None]:
            return dict(args.args), None

    return Mocks()


def _program(path: Path) -> None:
    """The program as Pulumi runs it: its folder on the path, the arguments those of a script."""
    folder = path if path.is_dir() else path.parent
    sys.path.insert(0, str(folder))
    sys.argv = [str(path)]
    runpy.run_path(str(path), run_name="__main__")


async def _plain(value: Any, late: Any) -> Any:  # noqa: ANN401 - JSON with late leaves
    """The config as JSON.

    Args:
        late: stands in place of a value that another resource delivers: under mocks it is made up.
    """
    import pulumi

    if isinstance(value, pulumi.Output):
        return {**late, "secret": await _digest(value)}
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, dict):
        return {key: await _plain(each, late) for key, each in value.items()}
    return [await _plain(each, late) for each in value] if isinstance(value, list | tuple) else value


async def _digest(value: Any) -> str | None:  # noqa: ANN401 - an Output of any value
    """Tells a secret from another without telling it; None for what is no secret, or not known before `up`."""
    if not (await value.is_known() and await value.is_secret()):
        return None
    return hashlib.sha256(repr(await value.future()).encode()).hexdigest()


if __name__ == "__main__":
    main()
