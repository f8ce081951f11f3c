"""The launcher's own lines, whose reader may be paused, slow or gone."""

from __future__ import annotations

import fcntl
import os
import threading

from elastic_infra.launcher import console


def test_a_paused_reader_keeps_nobody_and_drops_are_counted() -> None:
    """Lines wait for their reader up to the bound; the rest is dropped, and their number told."""
    begun, reader_is_back, shown = threading.Event(), threading.Event(), []

    def write(data: bytes) -> None:
        begun.set()
        reader_is_back.wait(60)
        shown.append(data)

    lines = console.Console(write, lines=2)
    lines.run()
    lines.write(b"first\n")
    begun.wait(60)
    for number in range(5):
        lines.write(b"line %d\n" % number)
    assert not lines.close(0.1)
    reader_is_back.set()

    assert lines.close(60)
    text = b"".join(shown)
    assert text.startswith(b"first\n")
    assert text.count(b"line ") == 2
    assert b"lines of the launcher were dropped" in text


def test_a_reader_that_is_gone() -> None:
    """Lines without a reader are dropped, and closing does not wait."""
    reader, writer = os.pipe()
    os.close(reader)
    lines = console.Console.start(writer)
    lines.write(b"line\n")

    assert lines.close(60)
    os.close(writer)


def test_a_shared_stream_keeps_its_mode() -> None:
    """A blocking stream stays blocking, and one that another program made non-blocking gets every byte."""
    for flags in (0, os.O_NONBLOCK):
        reader, writer = os.pipe()
        before = fcntl.fcntl(writer, fcntl.F_GETFL) | flags
        fcntl.fcntl(writer, fcntl.F_SETFL, before)
        data = b"x" * 200_000
        thread = threading.Thread(target=console.write_all, args=(writer, data))
        thread.start()
        received = b""
        while len(received) < len(data):
            received += os.read(reader, 1 << 16)
        thread.join()

        assert received == data
        assert fcntl.fcntl(writer, fcntl.F_GETFL) == before
        os.close(reader)
        os.close(writer)


def test_a_line_that_must_not_wait_is_dropped() -> None:
    """On a full pipe nothing is written; on a free one the line is."""
    reader, writer = os.pipe()
    console.say_if_ready(writer, "first")
    assert os.read(reader, 100) == b"elasticrun: first\n"
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(writer, True)

    console.say_if_ready(writer, "second")
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        assert b"second" not in pipe.read()
