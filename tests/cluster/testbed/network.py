"""The testbed's network: a bridge for the pods inside, and the API server's port, relayed to outside and to the pods.

Nothing of the machine's own network changes: the outer listening socket was opened before the testbed entered
its network namespace, and its connections are made inside. No other Service has an address that answers.
"""

from __future__ import annotations

import asyncio
import json
import socket

from tests.cluster.testbed.component import Component, run
from tests.cluster.testbed.layout import NODE_ADDRESS, POD_NETWORK, SERVICE_NETWORK, Testbed

CHUNK = 1 << 16
BRIDGE_MAC = "0a:58:0a:58:00:01"
"""Its own: otherwise a bridge takes the lowest address of its ports, which changes when a pod comes or goes, and then
all other pods lose their way to the DNS until they ask for it anew."""
API_ADDRESS = "10.96.0.1"
"""Of the Service `kubernetes`, which has the first address; its port is 443. Every pod is told both."""
API_PORT = 443
COMMANDS = (
    "ip link set lo up",
    f"ip link add cni0 address {BRIDGE_MAC} type bridge",
    f"ip address add {NODE_ADDRESS}/16 dev cni0",
    "ip link set cni0 up",
    "ip route add default dev cni0",
    f"ip address add {API_ADDRESS}/32 dev lo",
)
"""The default route leads nowhere; programs that look for their own address want one."""


def component(testbed: Testbed) -> Component:
    """The bridge and the pods' address plan."""
    return Component("network", files={testbed.path("cni", "testbed.conflist"): json.dumps(cni())}, prepare=_lay)


def cni() -> dict[str, object]:
    """Pods hang on the bridge with addresses of its network; nothing leads out."""
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipMasq": False,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": POD_NETWORK, "gateway": NODE_ADDRESS}]],
            "routes": [{"dst": SERVICE_NETWORK}],
        },
    }
    return {"cniVersion": "0.4.0", "name": "testbed", "plugins": [bridge]}


def _lay() -> None:
    for command in COMMANDS:
        run(*command.split())


def listen() -> socket.socket:
    """Where pods find the API server."""
    return socket.create_server((API_ADDRESS, API_PORT))


async def relay(listener: socket.socket, port: int) -> None:
    """Passes every connection on to the API server inside, until cancelled."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_copy(reader, inner_writer), _copy(inner_reader, writer))

    server = await asyncio.start_server(serve, sock=listener)
    await server.serve_forever()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(CHUNK):
            target.write(data)
            await target.drain()
    except ConnectionError:
        pass
    finally:
        target.close()
