"""The start of a container with `launcher.verify`: Python runs the mounted launcher only if it has the right digest.

`python3 -I -S -c` runs this in any image: standard library only, and no file of the archive, of the working dir or of
`PYTHONPATH` is imported. Then the process becomes the Python that it would have been without the check: the same id,
flags, variables and exit codes. The text is part of the pod, so that a change of it restarts the jobs with the option.
"""

from __future__ import annotations

import hashlib
import os
import sys
from typing import NoReturn

USAGE = 2  # as the launcher's own exit code: no retry of the pod helps


def main(digest: str, archive: str, *arguments: str) -> NoReturn:
    """Become Python with these arguments if the archive has this SHA-256; else say why not, and end."""
    try:
        with open(archive, "rb") as file:  # noqa: PTH123 - pathlib would take longer to import than the rest
            found = hashlib.sha256(file.read()).hexdigest()
    except OSError as error:
        refuse(f"{archive} cannot be read ({error.strerror}). Look at the pod's volume `launcher` and its ConfigMap.")
    if found != digest:
        refuse(
            f"{archive} is not the launcher that this job was made with: its SHA-256 is {found} and not {digest}. "
            "Nothing of it has run. Its ConfigMap was replaced: find out by whom, delete it, and deploy the job again."
        )
    os.execve(sys.executable, [sys.executable, *arguments], environ())  # noqa: S606 - that is what it is for


def environ() -> dict[bytes, bytes]:
    """The container's variables, without the LC_CTYPE that Python gives itself in the locale C (PEP 538)."""
    with open("/proc/self/environ", "rb") as file:  # noqa: PTH123 - as above
        pairs = (each.partition(b"=") for each in file.read().split(b"\0") if each)
        return {name: value for name, _, value in pairs}


def refuse(why: str) -> NoReturn:
    """Say it in one line, which the pod's status shows."""
    sys.stderr.write(f"launcher.verify: {why}\n")
    sys.exit(USAGE)


if __name__ == "__main__":
    main(*sys.argv[1:])
