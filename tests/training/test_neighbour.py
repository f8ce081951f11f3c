"""What a node sends reaches the next node whole, or not at all, and a stranger can neither send nor read."""

from __future__ import annotations

import hashlib
import hmac
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from elastic_infra.training import neighbour
from elastic_infra.training.neighbour import NONCE_BYTES, PART_BYTES, Receiver, Room, Sender, route_to

KEY = b"k" * 32
READY = b"\x02"
CONTENT = bytes(range(256)) * 1000

pytestmark = pytest.mark.timeout(60)


class Node:
    """A receiver and what it has kept."""

    def __init__(self, key: bytes = KEY) -> None:
        self.kept: queue.Queue[bytes] = queue.Queue()
        self.receiver = Receiver(self._room)
        self.receiver.follow(key)
        self.address = ("127.0.0.1", self.receiver.listen())

    def _room(self, place: int, size: int) -> Room | None:
        """Some room: this node has one place."""
        content = bytearray(size if size < 1 << 30 else 0)
        return Room(memoryview(content), lambda: self.kept.put(bytes(content))) if content and not place else None

    def ends(self, send: Callable[[socket.socket, bytes], None]) -> bool:
        """Whether the receiver ends a connection on which this is sent after its nonce, and confirms nothing."""
        with socket.create_connection(self.address, 30) as connection:
            try:
                send(connection, connection.recv(NONCE_BYTES))
                connection.shutdown(socket.SHUT_WR)
                said = connection.recv(100)
                return said in {b"", READY} and connection.recv(100) == b""
            except OSError:  # it was closed while there were bytes to read
                return True


def frame(nonce: bytes, content: bytes, key: bytes = KEY, length: int | None = None) -> bytes:
    """What a sender with the key says."""
    header = (len(content) if length is None else length).to_bytes(8, "little") + bytes(8)
    total = hashlib.sha256(content).digest()
    return header + hmac.digest(key, nonce + header, "sha256") + content + hmac.digest(key, nonce + total, "sha256")


@pytest.fixture
def node() -> Node:
    """The next node, in the sender's generation."""
    return Node()


@pytest.fixture
def warnings() -> list[str]:
    """What the sender has warned of."""
    return []


@pytest.fixture
def sender(node: Node, warnings: list[str]) -> Iterator[Sender]:
    """Sends to the next node."""
    sender = Sender(warnings.append, "it", "it is lost")
    sender.follow(node.address, KEY)
    yield sender
    sender.follow(None, b"")


def test_a_snapshot_arrives_whole(node: Node, sender: Sender) -> None:
    """One after the other, from the sender's own thread."""
    threads = set()

    def content(number: int) -> bytes:
        threads.add(threading.get_ident())
        return CONTENT + bytes([number])

    for number in range(3):
        sender.send(lambda number=number: content(number))  # type: ignore[misc]
        assert node.kept.get(timeout=30) == CONTENT + bytes([number])
    assert len(threads) == 1
    assert threads != {threading.get_ident()}


def test_a_newer_snapshot_takes_the_place_of_one_that_waits(node: Node, sender: Sender) -> None:
    """Training that is faster than the network is not held up, and no backlog grows."""
    begun, go_on = threading.Event(), threading.Event()

    def first() -> bytes:
        begun.set()
        assert go_on.wait(30)
        return b"1"

    sender.send(first)
    assert begun.wait(30)
    sender.send(lambda: b"2")
    sender.send(lambda: b"3")
    go_on.set()

    assert [node.kept.get(timeout=30) for _ in range(2)] == [b"1", b"3"]


@pytest.mark.parametrize("key", [b"another", b""])
def test_a_stranger_sends_nothing(node: Node, key: bytes) -> None:
    """With another key, or none: the connection ends before any content is read."""
    assert node.ends(lambda connection, nonce: connection.sendall(frame(nonce, CONTENT, key)))
    assert node.kept.empty()


def test_a_receiver_without_a_key_takes_nothing() -> None:
    """Before the group has made its key an empty one is no key."""
    node = Node(b"")

    assert node.ends(lambda connection, nonce: connection.sendall(frame(nonce, CONTENT, b"")))
    assert node.kept.empty()


def test_a_recorded_snapshot_is_not_taken_again(node: Node) -> None:
    """The digests are of one connection's nonce, so an old snapshot cannot replace a newer one."""
    said = b""

    def record(connection: socket.socket, nonce: bytes) -> None:
        nonlocal said
        said = frame(nonce, CONTENT)
        connection.sendall(said)

    assert not node.ends(record)
    assert node.kept.get(timeout=30) == CONTENT
    assert node.ends(lambda connection, _: connection.sendall(said))
    assert node.kept.empty()


def test_a_node_of_the_generation_before_is_a_stranger(node: Node, sender: Sender) -> None:
    """It was declared lost and lives on; the new generation has another key."""
    node.receiver.follow(b"n" * 32)
    sent = threading.Event()
    sender.send(lambda: b"old")
    sender.send(lambda: sent.set() or b"old")  # type: ignore[func-returns-value]
    assert sent.wait(30)

    assert not node.ends(lambda connection, nonce: connection.sendall(frame(nonce, b"new", b"n" * 32)))
    assert node.kept.get(timeout=30) == b"new"
    assert node.kept.empty()


@pytest.mark.parametrize("damage", ["content", "cut", "too long"])
def test_a_damaged_snapshot_is_not_kept(node: Node, damage: str) -> None:
    """A wrong byte, a sender that dies while it sends, and a length that no snapshot has."""

    def send(connection: socket.socket, nonce: bytes) -> None:
        said = bytearray(frame(nonce, CONTENT, length=1 << 40 if damage == "too long" else None))
        if damage == "content":
            said[1000] ^= 1
        connection.sendall(said[:2000] if damage == "cut" else said)

    assert node.ends(send)
    assert node.kept.empty()


def test_strangers_that_say_nothing_hold_nothing_up(node: Node, sender: Sender) -> None:
    """Each has a thread of its own for a few seconds; beyond the bound the connection ends at once."""
    silent = [socket.create_connection(node.address, 30) for _ in range(neighbour.MAX_CONNECTIONS - 1)]
    for connection in silent:
        assert len(connection.recv(NONCE_BYTES)) == NONCE_BYTES
    sender.send(lambda: CONTENT)
    assert node.kept.get(timeout=30) == CONTENT

    for connection in silent:
        connection.close()
    sender.send(lambda: b"after")
    assert node.kept.get(timeout=30) == b"after"


def test_a_neighbour_that_cannot_be_reached_is_one_warning(sender: Sender, warnings: list[str]) -> None:
    """It names the address, and what to do; training has not waited."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = taken.getsockname()[:2]
    sender.follow((str(address[0]), int(address[1])), KEY)
    deadline = time.monotonic() + 30
    while not warnings and time.monotonic() < deadline:
        sender.send(lambda: CONTENT)
        time.sleep(0.01)
    for _ in range(5):
        sender.send(lambda: CONTENT)
        time.sleep(0.01)

    (line,) = warnings
    assert f"at 127.0.0.1:{address[1]}: Connection refused. Let the job's nodes reach each other" in line


def test_a_neighbour_that_joins_late_gets_the_snapshot(
    node: Node, sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sender has heard of the generation, and the receiver not yet: the newest snapshot is sent again."""
    monkeypatch.setattr(neighbour, "RETRY_SECONDS", 0.05)
    node.receiver.follow(b"")
    sent = threading.Event()
    sender.send(lambda: sent.set() or CONTENT)  # type: ignore[func-returns-value]
    assert sent.wait(30)
    node.receiver.follow(KEY)

    assert node.kept.get(timeout=30) == CONTENT


def test_the_arrival_is_waited_for(node: Node, sender: Sender) -> None:
    """Nothing on its way has arrived; a snapshot has once it is kept, and one for which there is no room has not."""
    assert sender.await_arrival()
    sender.send(lambda: CONTENT)
    assert sender.await_arrival()
    assert node.kept.get_nowait() == CONTENT
    assert sender.seconds > 0

    sender.follow(node.address, KEY, place=1)
    sender.send(lambda: CONTENT)
    assert not sender.await_arrival()


class Held(Node):
    """Its room is filled only once this is allowed."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.goes_on = threading.Event(), threading.Event()
        self.rooms = 0

    def _room(self, place: int, size: int) -> Room | None:
        self.rooms += 1
        self.begun.set()
        assert self.goes_on.wait(30)
        return super()._room(place, size)


def test_room_may_take_long_to_make(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tens of gigabytes are allocated before the first byte is read: that is no failure of the network."""
    monkeypatch.setattr(neighbour, "SECONDS", 2)
    node, large = Held(), bytes(64 * PART_BYTES)
    sender = Sender(pytest.fail, "it", "it is lost")
    sender.follow(node.address, KEY)
    sender.send(lambda: large)
    assert node.begun.wait(30)
    threading.Timer(2.5, node.goes_on.set).start()

    assert sender.await_arrival()
    assert node.rooms == 1
    sender.follow(None, b"")


def test_an_error_of_any_kind_is_a_snapshot_that_does_not_arrive(node: Node, sender: Sender) -> None:
    """No memory is left, for example: whoever waits for the arrival goes on, and the next snapshot is sent."""

    def fail() -> bytes:
        raise MemoryError

    sender.send(fail)
    assert not sender.await_arrival()
    sender.send(lambda: CONTENT)
    assert sender.await_arrival()
    assert node.kept.get_nowait() == CONTENT


def test_without_threads_for_a_while_snapshots_do_not_arrive(
    node: Node, sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit of processes is reached: neither the training nor the listener ends with it."""

    def fail(_: threading.Thread) -> None:
        message = "can't start new thread"
        raise RuntimeError(message)

    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", fail)
        sender.send(lambda: CONTENT)
        assert not sender.await_arrival()
        with pytest.raises(OSError, match="can't start"):
            Receiver(lambda *_: None).listen()
        for _ in range(2 * neighbour.MAX_CONNECTIONS):
            with socket.create_connection(node.address, 30) as connection:
                assert connection.recv(1) == b""
    sender.send(lambda: CONTENT)
    assert sender.await_arrival()


def test_sending_is_given_up_with_the_generation() -> None:
    """A peer is lost: whoever waits for the arrival is freed, and what the receiver has in part is not kept."""
    node, large = Held(), bytes(64 * PART_BYTES)
    sender = Sender(pytest.fail, "it", "it is lost")
    sender.follow(node.address, KEY)
    sender.send(lambda: large)
    assert node.begun.wait(30)
    threading.Timer(0.1, lambda: sender.follow(None, b"")).start()
    assert sender.await_arrival()

    threading.Timer(0.1, node.goes_on.set).start()
    node.receiver.follow(b"n" * 32)
    assert node.kept.empty()


def test_a_snapshot_may_take_long_while_it_comes(monkeypatch: pytest.MonkeyPatch, node: Node) -> None:
    """Gigabytes over a slow network: the time is that of a part, and not of the whole."""
    monkeypatch.setattr(neighbour, "SECONDS", 0.3)

    def send(connection: socket.socket, nonce: bytes) -> None:
        said = frame(nonce, CONTENT)
        for begin in range(0, len(said), len(said) // 10):
            connection.sendall(said[begin : begin + len(said) // 10])
            time.sleep(0.05)

    assert not node.ends(send)
    assert node.kept.get(timeout=30) == CONTENT


def test_the_address_is_the_one_that_peers_reach() -> None:
    """By the route to the peer, for names, and for both families where the machine has them."""
    assert route_to("localhost", 1) in {"127.0.0.1", "::1"}
    assert route_to("127.0.0.1", 1) == "127.0.0.1"
