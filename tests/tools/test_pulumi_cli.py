"""Getting an engine: the order of the ways, and an installer without a network, really tried."""

from __future__ import annotations

import contextlib
import http.server
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import pulumi_cli
from tools.run import SetupError


def engine(folder: Path, version: str = "v3.230.0") -> Path:
    """A program that answers as an engine does."""
    program = folder / "pulumi"
    program.write_text(f"#!/bin/sh\necho {version}\n")
    program.chmod(0o755)
    return program


def fails(reason: str) -> pulumi_cli.Way:
    """A way that gives no engine."""

    def way() -> Path:
        raise SetupError(reason)

    return way


def test_the_first_way_that_works_gives_the_engine(tmp_path: Path) -> None:
    """Later ways are not tried; what was found is said."""
    lines: list[str] = []
    ways: dict[str, pulumi_cli.Way] = {
        "on PATH": lambda: None,
        "built before": lambda: engine(tmp_path),
        "from source": fails("tried"),
    }

    assert pulumi_cli.get(ways, lines.append) == tmp_path / "pulumi"
    assert lines == ["pulumi v3.230.0: built before"]


def test_an_engine_that_does_not_run_is_passed_over(tmp_path: Path) -> None:
    """A broken program on PATH does not hide a good one elsewhere."""
    broken = tmp_path / "broken"
    broken.mkdir()
    engine(broken).write_text("#!/bin/sh\nexit 1\n")
    ways: dict[str, pulumi_cli.Way] = {
        "on PATH": lambda: broken / "pulumi",
        "built before": lambda: engine(tmp_path),
    }

    assert pulumi_cli.get(ways, str) == tmp_path / "pulumi"


def test_every_reason_is_told_when_no_way_works() -> None:
    """One line holds all of them; what was merely not there needs no words."""
    ways = {"on PATH": lambda: None, "installer": fails("no network."), "from source": fails("no Go.")}

    with pytest.raises(SetupError, match=r"^not on PATH; installer: no network; from source: no Go$"):
        pulumi_cli.get(ways, str)


def test_the_ways_are_in_their_order(tmp_path: Path) -> None:
    """What is there already comes before any download, the download before the build."""
    ways = pulumi_cli.ways_here(tmp_path, "", str)

    assert list(ways) == ["on PATH", "installed before", "built before", "official installer", "built from source"]


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that takes connections and never answers: a network that swallows everything."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not on PATH, and the installer needs it")


@needs_curl
def test_a_dead_network_ends_the_installer_in_time(silent_port: int, tmp_path: Path) -> None:
    """Without an answer the installer is given up after its bound, and nothing is left behind."""
    with pytest.raises(SetupError, match="was not done within 1 s"):
        pulumi_cli.official("3.230.0", tmp_path / "into", url=f"http://127.0.0.1:{silent_port}", fetch_seconds=1)
    assert not (tmp_path / "into").exists()


@needs_curl
def test_a_refused_connection_is_a_reason(tmp_path: Path) -> None:
    """A port without a listener is told in curl's own words."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(SetupError, match=r"curl.*failed: curl: \(7\)"):
        pulumi_cli.official("3.230.0", tmp_path / "into", url=f"http://127.0.0.1:{port}")


@contextlib.contextmanager
def serving(script: str) -> Iterator[str]:
    """The address of a server that answers every request with a script."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(script.encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class's name
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@needs_curl
def test_an_installer_that_hangs_is_ended(tmp_path: Path) -> None:
    """The script came, but its own download never ends: that too has a bound."""
    with serving("sleep 600\n") as url, pytest.raises(SetupError, match=r"`sh .*was not done within 1 s"):
        pulumi_cli.official("3.230.0", tmp_path / "into", url=url, install_seconds=1)


@needs_curl
def test_the_installer_is_told_version_and_place(tmp_path: Path) -> None:
    """It installs the pinned version into the cache and leaves the user's profile alone."""
    script = 'mkdir -p "$4/bin"; printf "#!/bin/sh\\necho $2 $5\\n" > "$4/bin/pulumi"; chmod +x "$4/bin/pulumi"\n'
    with serving(script) as url:
        program = pulumi_cli.official("3.230.0", tmp_path / "into", url=url)

    lines: list[str] = []
    pulumi_cli.get({"official installer": lambda: program}, lines.append)
    assert lines == ["pulumi 3.230.0 --no-edit-path: official installer"]
