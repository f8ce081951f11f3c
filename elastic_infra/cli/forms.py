"""The forms in which commands print an answer."""

from __future__ import annotations

from enum import Enum


class Format(str, Enum):
    """Text for readers, or JSON for programs."""

    TEXT = "text"
    JSON = "json"
