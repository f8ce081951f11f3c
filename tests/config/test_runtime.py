"""What the launcher enforces, in every spelling that a user may choose."""

from __future__ import annotations

import pytest

from elastic_infra.config import ConfigError
from elastic_infra.manifests.environment import launcher_settings
from tests import jobs


@pytest.mark.parametrize(
    ("given", "text", "settings"),
    [
        ("auto", "auto", "auto"),
        ("off", "off", "off"),
        (False, "off", "off"),
        (600, "600", 600.0),
        (900.0, "900", 900.0),
        ("0900", "900", 900.0),
        (9_999_999, "9999999", 9_999_999.0),
    ],
)
def test_a_hang_timeout(given: object, text: str, settings: object) -> None:
    """Seconds, `auto`, or `off`, which YAML reads as false."""
    config = jobs.job(runtime={"hang_timeout_seconds": given})

    assert config.runtime.hang_timeout_seconds == text
    assert launcher_settings(config).hang_timeout_seconds == settings


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({}, "launcher.webhook.secret"),
        ({"secret": ""}, "launcher.webhook.secret"),
        ({"secret": "hooks", "key": ""}, "launcher.webhook.key"),
        ({"secret": "hooks", "url": "https://example.com"}, "launcher.webhook.url"),
        ("https://example.com", "launcher.webhook"),
    ],
)
def test_a_webhook_is_a_secret_and_no_url(given: object, path: str) -> None:
    """A URL that holds a password would be in the manifest, in the state and in every preview."""
    with pytest.raises(ConfigError) as caught:
        jobs.job(launcher={"webhook": given})

    assert [fault.path for fault in caught.value.faults] == [path]


@pytest.mark.parametrize("given", [0, "00", -1, 1.5, 10_000_000, "soon", "", "²", True, None, []])
def test_what_is_no_hang_timeout_is_refused(given: object) -> None:
    """Zero would be a hang at once."""
    with pytest.raises(ConfigError) as caught:
        jobs.job(runtime={"hang_timeout_seconds": given})

    assert [fault.path for fault in caught.value.faults] == ["runtime.hang_timeout_seconds"]
