"""Connections that a group made are found and shut down, and no others."""

from __future__ import annotations

import socket

from elastic_infra.training.connections import Connections


def pair() -> tuple[socket.socket, socket.socket]:
    """A connection to ourselves."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        first = socket.create_connection(server.getsockname())
        second, _ = server.accept()
    return first, second


def test_only_the_groups_connections_are_cut() -> None:
    """Not those that stood before, nor a later one that has a descriptor of the group's."""
    made = Connections()
    other = pair()
    with made.noted():
        mine = pair()
        gone = pair()
    for end in gone:
        end.close()
    reused = pair()

    assert made.cut() == 2
    assert [end.recv(1) for end in mine] == [b"", b""]
    for first, second in (other, reused):
        first.sendall(b"1")
        assert second.recv(1) == b"1"
    made.forget()
    assert made.cut() == 0
    for end in (*mine, *other, *reused):
        end.close()


def test_connections_are_cut_while_they_are_made() -> None:
    """A group whose member is lost while it forms waits for that one otherwise."""
    made = Connections()
    with made.noted():
        mine = pair()
        assert made.cut() == 2
        assert mine[0].recv(1) == b""
    for end in mine:
        end.close()
