"""Debian's packages of the test cluster: installed only where that may be."""

from __future__ import annotations

import pytest

from tools import debian
from tools.run import SetupError


def test_root_installs_what_is_missing() -> None:
    """The lists first, then the missing packages and nothing that they merely recommend."""
    assert debian.commands(("runc", "iproute2"), root=True, apt=True) == (
        ("apt-get", "update", "-qq"),
        ("apt-get", "install", "-qq", "--no-install-recommends", "runc", "iproute2"),
    )


@pytest.mark.parametrize(("root", "apt"), [(True, True), (False, False)])
def test_nothing_missing_needs_nothing(*, root: bool, apt: bool) -> None:
    """With all packages installed the user's rights are not checked."""
    assert debian.commands((), root=root, apt=apt) == ()


@pytest.mark.parametrize(("root", "apt"), [(False, True), (True, False)])
def test_who_may_not_install_is_told_what_to(*, root: bool, apt: bool) -> None:
    """One line names the packages and the command."""
    with pytest.raises(SetupError, match=r"needs runc\. As root on Debian: apt-get install runc"):
        debian.commands(("runc",), root=root, apt=apt)


def test_a_package_that_is_not_there_is_missing() -> None:
    """An unknown name is not installed on any machine."""
    assert debian.installed("no-such-package-of-debian") == debian.MISSING
