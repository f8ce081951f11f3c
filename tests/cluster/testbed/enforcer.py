"""Enforces NetworkPolicies on the pods of a running testbed, whose bridge would let everyone in.

    python -m tests.cluster.testbed.enforcer ROOT

A test-only stand-in for a network that enforces policies, inside the testbed's namespaces: it looks at the API server
every half second, and sets iptables in the network of each pod that is selected. What is not let in is dropped, as most
networks do, so a client that is shut out waits in vain and is not refused.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tests.cluster import kube
from tests.cluster.testbed import lifecycle
from tests.cluster.testbed.layout import NODE_ADDRESS, SYSTEM_PATH, Testbed
from tests.cluster.testbed.policies import Opening, Ports, World, address_of
from tests.cluster.testbed.programs import MissingProgramError

POLL_SECONDS: Final = 0.5
SANDBOXES: Final = Path("/var/lib/cni/results")
"""Where the container runtime notes each pod's network, seen from inside the testbed:
https://github.com/containernetworking/cni/blob/v1.1.2/libcni/api.go"""
OPEN: Final = "*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n"


def rules(openings: Iterable[Opening] | None) -> str:
    """What `iptables-restore` reads for a pod that lets in no more than this; None for a pod that lets in all.

    A cluster node always reaches its own pods, and answers come in to whom the pod called.
    """
    if openings is None:
        return OPEN
    allowed = (
        f"-A INPUT -s {source} {_match(ports)} -j ACCEPT"
        for opening in openings
        for source in opening.sources
        for ports in opening.ports
    )
    return "\n".join([
        "*filter",
        ":INPUT DROP [0:0]",
        "-A INPUT -i lo -j ACCEPT",
        "-A INPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT",
        f"-A INPUT -s {NODE_ADDRESS} -j ACCEPT",
        *allowed,
        "COMMIT\n",
    ])  # fmt: skip


def _match(ports: Ports) -> str:
    protocol = ports.protocol.lower()
    return f"-p {protocol}" if ports == Ports(ports.protocol) else f"-p {protocol} --dport {ports.first}:{ports.last}"


@contextmanager
def running(root: Path) -> Iterator[None]:
    """Policies are enforced in the testbed meanwhile, and its pods are open again afterwards.

    Raises:
        MissingProgramError: there is no iptables.
    """
    if shutil.which("iptables-restore", path=SYSTEM_PATH) is None:
        message = "Not installed: iptables. Run `apt-get install iptables`."
        raise MissingProgramError(message)
    log = root / "logs" / "enforcer.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            (
                *("nsenter", f"--target={lifecycle.first_process(root)}", "--mount", "--net"),
                *("setpriv", "--pdeathsig", "KILL", sys.executable, "-m", __name__, str(root)),
            ),
            cwd=lifecycle.REPOSITORY,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={"PATH": SYSTEM_PATH},
        )
    try:
        yield
        assert process.poll() is None, f"the enforcer ended: {log.read_text(errors='replace')[-2000:]}"
    finally:
        process.terminate()
        process.wait()


def main(root: Path) -> None:
    """Enforce until told to end."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    api = kube.Kube(kube.with_token(Testbed.read(root).kubeconfig))
    current: dict[Path, str] = {}
    try:
        while True:
            current = _set(current, _wanted(_world(api)))
            time.sleep(POLL_SECONDS)
    finally:
        _set(current, dict.fromkeys(current, OPEN))


def _world(api: kube.Kube) -> World:
    policies, pods, namespaces = (
        [*api.call("GET", path)["items"]]
        for path in ("/apis/networking.k8s.io/v1/networkpolicies", "/api/v1/pods", "/api/v1/namespaces")
    )
    return World(policies, pods, namespaces)


def _wanted(world: World) -> dict[Path, str]:
    """The rules for the network of each pod that runs."""
    by_uid = {pod["metadata"]["uid"]: rules(world.openings(pod)) for pod in world.pods if address_of(pod)}
    return {sandbox: by_uid[uid] for sandbox, uid in _sandboxes() if uid in by_uid}


def _sandboxes() -> Iterator[tuple[Path, str]]:
    """Each pod's network, and the pod's uid."""
    for note in SANDBOXES.glob("testbed-*"):
        with suppress(FileNotFoundError, json.JSONDecodeError):  # the pod has ended, or has not quite begun
            text = json.loads(note.read_text())
            inside = (each["sandbox"] for each in text["result"]["interfaces"] if "sandbox" in each)
            yield Path(next(inside)), dict(text["cniArgs"])["K8S_POD_UID"]


def _set(current: Mapping[Path, str], wanted: Mapping[Path, str]) -> dict[Path, str]:
    """Replaces the rules that are not as wanted, and returns those that hold now: a pod may end meanwhile."""
    return {
        sandbox: text
        for sandbox, text in wanted.items()
        if current.get(sandbox, OPEN) == text or _is_restored(sandbox, text)
    }


def _is_restored(sandbox: Path, text: str) -> bool:
    command = ("nsenter", f"--net={sandbox}", "iptables-restore", "--wait")
    done = subprocess.run(command, input=text, stdout=subprocess.PIPE, text=True, check=False)  # its errors are the log
    return done.returncode == 0


if __name__ == "__main__":
    main(Path(sys.argv[1]))
