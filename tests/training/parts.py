"""What a durable snapshot holds of a rank."""

from __future__ import annotations

from elastic_infra.training.snapshots import Folder


def content(folder: Folder, step: int, rank: int = 0) -> bytes | None:
    """The bytes of a rank's part; None where the snapshot has no such rank."""
    pieces = folder.part(step, rank)
    return b"".join(pieces) if pieces is not None else None
