"""Which version of Pulumi's kubernetes provider the components are made for."""

from __future__ import annotations

import functools
from importlib import metadata


@functools.cache
def provider_version() -> str:
    """The installed one, so that a plugin of the same version is taken."""
    return metadata.version("pulumi-kubernetes")
