"""Controllers beside a running testbed, for the tests that want them: no other test pays for them.

They serve their webhooks with the training operator's certificate, whose name leads to this machine.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.cluster import kube
from tests.cluster.testbed import lifecycle, operator, programs
from tests.cluster.testbed.layout import SYSTEM_PATH, Testbed
from tests.cluster.waiting import until
from tools import build, modules


def everything(_: Mapping[str, Any]) -> bool:
    """All webhooks of a module's file."""
    return True


@dataclass(frozen=True)
class Controller:
    """One program, and what of its module a cluster needs."""

    tool: str
    """The folder of `tools/` that pins it."""
    program: str
    module: str
    crds: str
    """Folder of the definitions, in the module."""
    webhooks: str
    """File of the webhooks, in the module."""
    port: int
    """Of its webhooks; free in the testbed, as is the one after it, for its probes."""
    settings: Mapping[str, Any]
    bad: kube.Object
    """An object that only a webhook that is served refuses."""
    refusal: str
    """A part of what it says then."""
    serves: Callable[[Mapping[str, Any]], bool] = everything
    """Whether the program serves a webhook of the file, with these settings."""
    pods: Mapping[str, Any] | None = None
    """What its webhooks for pods select; None where it has none."""
    arguments: tuple[str, ...] = ()
    wrapper: tuple[str, ...] = ()
    """Before the program: a command that furnishes what it wants and then becomes it."""


class Running:
    """A controller that runs in a testbed."""

    def __init__(self, controller: Controller, root: Path, api: kube.Kube) -> None:
        self._controller, self._root, self._api = controller, root, api
        self._log = root / "logs" / f"{controller.program}.log"
        self._process = _start(controller, root, self._log)

    def await_served(self) -> None:
        """Returns once its webhooks judge what they are asked."""
        what = f"{self._controller.program} to serve"
        until(what, lambda: _refuses(self._controller, self._api, self._process, self._log))

    def end(self) -> None:
        """Stop the program; returns once it has ended."""
        self._process.terminate()
        self._process.wait()

    @contextmanager
    def settings(self, **changed: object) -> Iterator[None]:
        """Meanwhile it runs with other settings, for which it is started again."""
        self._again(dataclasses.replace(self._controller, settings={**self._controller.settings, **changed}))
        yield
        self._again(self._controller)

    def _again(self, controller: Controller) -> None:
        self.end()
        self._process = _start(controller, self._root, self._log)
        self.await_served()


@contextmanager
def running(controller: Controller, root: Path, api: kube.Kube) -> Iterator[Running]:
    """It runs in the testbed meanwhile.

    Raises:
        MissingProgramError: it is not built.
    """
    module = build.module_folder(modules.HERE / controller.tool, controller.module, build.go_program())
    for definition in sorted((module / controller.crds).glob("*_*.yaml")):
        define(definition, api)
    documents = yaml.safe_load_all((module / controller.webhooks).read_text())
    hooks = [_led_here(each, controller, api) for each in documents if each]
    own = Running(controller, root, api)
    try:
        for hook in hooks:
            api.apply(hook)
        own.await_served()
        yield own
    finally:
        for hook in hooks:
            api.delete(hook)
        own.end()


def define(definition: Path, api: kube.Kube) -> None:
    """Applies the definition in a file that is called `<group>_<plural>.yaml`; returns once it is served."""
    group, _, plural = definition.stem.partition("_")
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
    }
    api.request("PATCH", f"{api.path(crd)}?fieldManager=testbed&force=true", definition.read_text(), kube.APPLY)

    def is_served() -> bool:
        told = api.get(crd).get("status", {}).get("conditions") or []
        return any(each["type"] == "Established" and each["status"] == "True" for each in told)

    until(f"{plural} to be served", is_served)


def started(root: Path, log: Path, *command: str) -> subprocess.Popen[bytes]:
    """A program in the testbed's network and mounts, with an administrator's rights; it ends with this process too."""
    with log.open("ab") as output:
        return subprocess.Popen(
            (
                *("nsenter", f"--target={lifecycle.first_process(root)}", "--mount", "--net"),
                *("setpriv", "--pdeathsig", "KILL", *command),
            ),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={"PATH": SYSTEM_PATH, "HOME": "/nonexistent", "KUBECONFIG": str(Testbed.read(root).kubeconfig)},
        )


def _led_here(hook: kube.Object, controller: Controller, api: kube.Kube) -> kube.Object:
    """The webhooks of a module's file, under a name of their own, on the port of this machine."""
    authority = api.get(operator.SECRET)["data"]["ca.crt"]
    hook["webhooks"] = [each for each in hook["webhooks"] if controller.serves(each)]
    for each in hook["webhooks"]:
        path = each["clientConfig"].pop("service")["path"]
        url = f"https://training-operator.{operator.NAMESPACE}.svc:{controller.port}{path}"
        each["clientConfig"] |= {"url": url, "caBundle": authority}
        if any(rule["resources"] == ["pods"] for rule in each["rules"]):
            each["objectSelector"] = controller.pods
    hook["metadata"]["name"] = f"{controller.program}-{hook['metadata']['name']}"
    return hook


def _start(controller: Controller, root: Path, log: Path) -> subprocess.Popen[bytes]:
    program = programs.built(controller.program)
    settings = {
        **controller.settings,
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f":{controller.port + 1}"},
        "leaderElection": {"leaderElect": False},
        "metrics": {"bindAddress": "0"},
        "webhook": {"port": controller.port},
    }
    file = root / f"{controller.program}.json"
    file.write_text(json.dumps(settings))
    return started(root, log, *controller.wrapper, program, f"--config={file}", *controller.arguments)


def _refuses(controller: Controller, api: kube.Kube, process: subprocess.Popen[bytes], log: Path) -> bool:
    """Whether the webhooks judge what they are asked; an `AssertionError` where the program has ended."""
    assert process.poll() is None, f"{controller.program} ended: {log.read_text(errors='replace')[-2000:]}"
    try:
        api.apply(controller.bad, dry_run=True)
    except kube.KubeError as error:
        return controller.refusal in str(error)
    return False
