"""The program of an initializer: one pod fills a folder, the others wait for it, and what is there stays.

`python3 -c` runs it in any image: standard library only, nothing of this package, one JSON argument. Its text is part
of the pod, so that a change of it restarts the jobs that have initializers.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

MARKER = ".initialized.json"
BEAT_SECONDS = 10.0
STALE_SECONDS = 180.0  # longer than a network file system keeps the attributes of a folder
RETRY, CONFLICT = 200, 2
# The files are counted, since the client calls what an earlier attempt has left a success where it reaches no hub.
HUGGING_FACE = (
    "import os, sys, huggingface_hub as hub; name, revision, kind, folder = sys.argv[1:];"
    "found = hub.HfApi().repo_info(name, revision=revision or None, repo_type=kind);"
    "hub.snapshot_download(name, revision=found.sha, repo_type=kind, local_dir=folder);"
    "names = [each.rfilename for each in found.siblings or ()];"
    "missing = [each for each in names if not os.path.exists(os.path.join(folder, each))];"
    "sys.exit(f'{len(missing)} of {len(names)} files are missing' if missing else 0)"
)
S3FS = "import sys, s3fs; s3fs.S3FileSystem().get(sys.argv[1].rstrip('/') + '/', sys.argv[2], recursive=True)"


def main(order: dict[str, Any]) -> int:
    """Fill the folder unless it is there; the last line on stderr says what is wrong."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    target = Path(order["path"])
    if order["own"]:
        return 0 if is_done(target, order) else filled(target, order)
    target.parent.mkdir(parents=True, exist_ok=True)
    lock = target.with_name(f".{target.name}.lock")
    seen, since = 0, time.monotonic()
    while not is_done(target, order):
        if target.is_dir() and any(target.iterdir()):
            return failed(order, f"{target} holds something else. Choose another path, or delete it", CONFLICT)
        if taken(lock):
            return fetched_under(lock, target, order)
        with contextlib.suppress(FileNotFoundError):
            beat = lock.stat().st_mtime_ns
            if beat != seen:
                seen, since = beat, time.monotonic()
            elif time.monotonic() - since > STALE_SECONDS:  # its holder is gone; of several that see it one renames it
                gone = lock.with_name(f"{lock.name}.{unique()}")
                lock.rename(gone)
                gone.rmdir()
        time.sleep(1)
    print(f"initializer {order['name']}: {target} is there.", flush=True)
    return 0


def taken(lock: Path) -> bool:
    """Whether this pod has the lock now: of several that make a folder one succeeds, on network file systems too."""
    try:
        lock.mkdir()
    except FileExistsError:
        return False
    return True


def unique() -> str:
    """A name that no other pod has."""
    return f"{socket.gethostname()}-{os.getpid()}"


def content(order: dict[str, Any]) -> dict[str, Any]:
    """What tells the folder's content from another."""
    return {key: order[key] for key in ("kind", "source", "revision", "repository", "command")}


def is_done(target: Path, order: dict[str, Any]) -> bool:
    """Whether the folder holds what is asked for."""
    try:
        return bool(json.loads((target / MARKER).read_text()) == content(order))
    except (OSError, ValueError):
        return False


def fetched_under(lock: Path, target: Path, order: dict[str, Any]) -> int:
    """Fetch into a folder beside, and give it the name once it is whole."""
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(BEAT_SECONDS):
            with contextlib.suppress(OSError):
                os.utime(lock)

    threading.Thread(target=beat, daemon=True).start()
    for left in target.parent.glob(f".{target.name}.*.draft"):
        shutil.rmtree(left, ignore_errors=True)
    draft = target.with_name(f".{target.name}.{unique()}.draft")
    try:
        draft.mkdir()
        code = filled(draft, order)
        if not code:
            with contextlib.suppress(OSError):  # another was quicker, and its folder is as good
                draft.rename(target)
            if not is_done(target, order):
                return failed(order, f"{target} cannot be given its name", RETRY)
        return code
    finally:
        ended.set()
        shutil.rmtree(draft, ignore_errors=True)
        with contextlib.suppress(OSError):
            lock.rmdir()


def filled(folder: Path, order: dict[str, Any]) -> int:
    """Fetch, with pauses in between where it fails; then write all to the disk, and the marker last."""
    why: str | None = ""
    for attempt in range(1, order["attempts"] + 1):
        why = fetch(folder, order)
        if why is None and not any(each.name != ".git" for each in folder.iterdir()):
            why = "it is empty"
        if why is None:
            shutil.rmtree(folder / ".cache/huggingface", ignore_errors=True)
            flush(folder)
            (folder / MARKER).write_text(json.dumps(content(order)))
            flush(folder)
            print(f"initializer {order['name']}: fetched.", flush=True)
            return 0
        if attempt < order["attempts"]:
            pause = min(60, 2**attempt)
            print(f"initializer {order['name']}: {why}. Again in {pause} s.", file=sys.stderr, flush=True)
            time.sleep(pause)
    what = order["source"] or " ".join(order["command"])
    return failed(order, f"{order['kind']} {what} failed {order['attempts']} times: {why}", RETRY)


def failed(order: dict[str, Any], why: str, code: int) -> int:
    """Say why in the last line, which a pod's status shows."""
    print(f"initializer {order['name']}: {why}.", file=sys.stderr, flush=True)
    return code


def flush(folder: Path) -> None:
    """A node that is lost leaves no file with holes behind the marker."""
    for place, _, names in os.walk(folder):
        for path in (*(Path(place, name) for name in names), Path(place)):
            if not path.is_symlink():
                file = os.open(path, os.O_RDONLY)
                os.fsync(file)
                os.close(file)


def fetch(folder: Path, order: dict[str, Any]) -> str | None:
    """Why it failed, None where it did not."""
    for command in commands(folder, order):
        try:
            process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        except OSError as error:
            return f"{command[0]}: {error.strerror}"
        last = ""
        with process:
            try:
                for line in process.stderr or ():
                    sys.stderr.write(line)
                    last = line.strip() or last
                if code := process.wait():
                    return last or f"{command[0]} ended with code {code}"
            finally:
                process.kill()
    return None


def commands(folder: Path, order: dict[str, Any]) -> list[list[str]]:
    """The commands that fill the folder."""
    source, revision, place = order["source"], order["revision"] or "", str(folder)
    if order["kind"] == "huggingface":
        return [[sys.executable, "-c", HUGGING_FACE, source, revision, order["repository"], place]]
    if order["kind"] == "s3":
        if shutil.which("aws"):
            return [["aws", "s3", "sync", source, place, "--only-show-errors"]]
        return [[sys.executable, "-c", S3FS, source, place]]
    if order["kind"] == "git":
        git = ["git", "-c", "safe.directory=*", "-C", place]
        fetching = [*git, "fetch", "-q", "--depth", "1", source, revision or "HEAD"]
        return [[*git, "init", "-q"], fetching, [*git, "checkout", "-q", "-f", "FETCH_HEAD"]]
    return [[*order["command"]]]


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
