"""What the supervisor does for an agent that is gone."""

from __future__ import annotations

from elastic_infra.launcher.store import wire
from elastic_infra.launcher.supervisor import children
from tests.launcher.store.serving import TOKEN, Served, after_hello, ask, presence


def test_a_farewell_behind_half_a_line_ends_the_node() -> None:
    """An agent dies in mid-line with answers unread; its supervisor's farewell on the held connection still counts."""
    served = Served(TOKEN)
    try:
        with after_hello(served, "a") as agents:
            ask(agents, {"op": "beat", "id": 1})
            held = agents.dup()
            agents.sendall(wire.encode({"op": "get", "id": 2, "key": "x"}) * 1000 + b'{"op": "set", "key": "node/')
        with held:
            children._say_farewell(held)

        assert presence(served, "a") == "ended"
    finally:
        served.close()
