"""What a machine's Python can start from, and how pip's settings reach uv."""

from __future__ import annotations

import pytest

from tools import python_env
from tools.run import SetupError


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
    assert python_env.first_installer((3, 12), ensurepip=ensurepip, uv=uv, pip=pip) == expected


def test_a_python_without_any_installer_is_told_the_package() -> None:
    """Debian's bare python3 lacks ensurepip: one line says what to install."""
    with pytest.raises(SetupError, match=r"neither ensurepip nor pip.*apt-get install python3-venv"):
        python_env.first_installer((3, 12), ensurepip=False, uv=False, pip=False)


def test_an_old_python_is_refused() -> None:
    """The message names both versions and how to choose another Python."""
    with pytest.raises(SetupError, match=r"Python 3\.9 is older than 3\.10\..*make PYTHON=python3\.10"):
        python_env.first_installer((3, 9), ensurepip=True, uv=True, pip=True)


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
