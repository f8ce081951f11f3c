"""What a machine's Python can start from, and how pip's settings reach uv."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools import python_env
from tools.run import ROOT, SetupError


@pytest.mark.parametrize(
    ("ensurepip", "uv", "pip", "expected"),
    [
        (True, True, True, "venv"),
        (True, False, False, "venv"),
        (False, True, True, "uv"),
        (False, True, False, "uv"),
        (False, False, True, "pip"),
    ],
)
def test_the_first_installer_is_what_the_machine_has(
    *, ensurepip: bool, uv: bool, pip: bool, expected: python_env.First
) -> None:
    """The standard library's way first, then uv, then a pip that installs elsewhere."""
    assert python_env.first_installer(ensurepip=ensurepip, uv=uv, pip=pip) == expected


def test_a_python_without_any_installer_is_told_the_package() -> None:
    """Debian's bare python3 lacks ensurepip: one line says what to install."""
    with pytest.raises(SetupError, match=r"neither ensurepip nor pip.*apt-get install python3-venv"):
        python_env.first_installer(ensurepip=False, uv=False, pip=False)


def test_an_old_python_is_refused() -> None:
    """The message comes before any newer syntax is read, and says how to choose another Python."""
    program = "import platform, sys; sys.version_info = (3, 9, 0); import tools"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "is older than 3.10. Install a newer one and name it: make PYTHON=" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("config", "environ", "expected"),
    [
        ("", {}, {}),
        ("global.index-url='https://mirror.test/simple'", {}, {"UV_DEFAULT_INDEX": "https://mirror.test/simple"}),
        (
            ":env:.index-url='https://env.test/simple'\nglobal.index-url='https://mirror.test/simple'",
            {},
            {"UV_DEFAULT_INDEX": "https://env.test/simple"},
        ),
        (
            "global.extra-index-url='https://a.test/simple\\nhttps://b.test/simple'",
            {},
            {"UV_INDEX": "https://a.test/simple https://b.test/simple"},
        ),
        ("global.cert='/etc/ssl/own.pem'\n:env:.default-timeout='180'", {}, {"SSL_CERT_FILE": "/etc/ssl/own.pem"}),
        ("global.index-url='https://mirror.test/simple'", {"UV_DEFAULT_INDEX": "https://own.test"}, {}),
        ("global.disable-pip-version-check='1'\nnot a setting", {}, {}),
    ],
)
def test_uv_is_told_what_pip_is_configured_for(config: str, environ: dict[str, str], expected: dict[str, str]) -> None:
    """A mirror is configured once; what the user has set for uv itself stays."""
    found = python_env.uv_environ(config, environ)

    assert {name: value for name, value in found.items() if name != "UV_HTTP_TIMEOUT"} == expected


def test_an_environment_behind_a_link_is_not_cleared(tmp_path: Path) -> None:
    """It is another checkout's, which works there."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "kept").touch()
    link = tmp_path / ".venv"
    link.symlink_to(tmp_path / "theirs")

    with pytest.raises(SetupError, match="was made for another checkout"):
        python_env.make(link, "venv", clear=True)
    assert (tmp_path / "theirs" / "kept").exists()
