"""What a process holds, as the kernel counts."""

from __future__ import annotations

from pathlib import Path


def holdings(pid: int) -> dict[str, int]:
    """Descriptors, threads and private memory (KiB) of a process.

    Raises:
        OSError: there is no such process.
    """
    process = Path("/proc", str(pid))
    status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
    if "RssAnon" not in status:
        message = f"process {pid} has ended"
        raise ProcessLookupError(message)
    descriptors = len(list((process / "fd").iterdir()))
    return {"descriptors": descriptors, "threads": int(status["Threads"]), "kib": int(status["RssAnon"].split()[0])}
