"""A worker without torch whose first argument names its behaviour; writes a journal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from journals import journal  # type: ignore[import-not-found]  # beside this file, as a script's own modules are

RANK = int(os.environ["RANK"])
GENERATION = int(os.environ["ELASTIC_INFRA_GENERATION"])


def forever() -> None:
    while True:
        time.sleep(60)


def die(first: int, signum: int) -> None:
    journal("dying")
    os.kill(first, signum)


def finish() -> None:
    """All ranks exit 0 at once."""


def wait() -> None:
    """All ranks run until they are ended."""
    forever()


def fail() -> None:
    """Rank 0 raises, the others wait."""
    if RANK:
        forever()
    message = "the data is missing"
    raise RuntimeError(message)


def fail_once() -> None:
    """Rank 0 raises in the first generation."""
    if GENERATION == 1:
        fail()


def crash_once() -> None:
    """Rank 1 is killed in the first generation."""
    if GENERATION == 1:
        if RANK == 1:
            die(os.getpid(), signal.SIGKILL)
        forever()


def abort() -> None:
    """Rank 0 aborts, the others wait."""
    if RANK == 0:
        die(os.getpid(), signal.SIGABRT)
    forever()


def save_on_term() -> None:
    """Rank 0 fails once its sibling traps SIGTERM; the sibling needs most of the grace to save, helped by its child."""
    if RANK == 0:
        while not os.path.exists("trapping"):
            time.sleep(0.01)
        sys.exit(3)
    helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])

    def save(*_: object) -> None:
        time.sleep(float(sys.argv[2]))
        journal("saved", helper_alive=helper.poll() is None)
        sys.exit(0)

    signal.signal(signal.SIGTERM, save)
    open("trapping", "w").close()
    forever()


def ignore_term() -> None:
    """All ranks ignore SIGTERM and say so."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    journal("ignoring")
    forever()


def trap_term() -> None:
    """Rank 1 kills itself while generations are few; rank 0 records when SIGTERM comes."""
    last = int(sys.argv[2])
    if GENERATION > last:
        return

    def record(*_: object) -> None:
        journal("told")
        sys.exit(0)

    if RANK == 0:
        signal.signal(signal.SIGTERM, record)
        open(f"ready-{GENERATION}", "w").close()
        forever()
    while not os.path.exists(f"ready-{GENERATION}"):
        time.sleep(0.005)
    die(os.getpid(), signal.SIGKILL)


def leave_children() -> None:
    """Rank 0 starts sleepers, one in another session, and is killed; the next generation looks for them."""
    folders = [f"sleepers-{number}" for number in range(1, GENERATION)]
    old = [int(name) for folder in folders for name in os.listdir(folder)]
    journal("survivors", alive=[pid for pid in old if os.path.exists(f"/proc/{pid}")])
    if GENERATION > int(sys.argv[2]):
        return
    if RANK == 0:
        os.makedirs(f"sleepers-{GENERATION}")
        for number in range(4):
            child = subprocess.Popen(["sleep", "600"], start_new_session=number == 0)
            open(f"sleepers-{GENERATION}/{child.pid}", "w").close()
        die(os.getpid(), signal.SIGKILL)
    forever()


def hang() -> None:
    """Both ranks block after some steps of the first generation; the first step is slow."""
    from elastic_infra.training import Progress

    progress = Progress()
    time.sleep(float(sys.argv[2]))
    for step in range(1, 60):
        if step == 10 and GENERATION == 1:
            waits_for_a_peer_that_is_gone() if RANK == 1 else waits_in_the_collective()
        time.sleep(0.02)
        progress.step(step)


def fail_one_step_further() -> None:
    """Fail ten times, each time a step beyond the last."""
    from elastic_infra.training import Progress

    progress = Progress()
    for step in range(GENERATION):
        progress.step(step)
    if GENERATION <= 10:
        sys.exit(1)


def fail_at_one_step() -> None:
    """Fail in the same step in every generation."""
    from elastic_infra.training import Progress

    Progress().step(5)
    sys.exit(1)


def fail_to_import() -> None:
    """A module is missing, in every generation."""
    import a_module_that_nobody_has  # type: ignore[import-not-found]  # noqa: F401


def kill_itself() -> None:
    """End by a signal at once, in every generation."""
    die(os.getpid(), signal.SIGKILL)


def waits_for_a_peer_that_is_gone() -> None:
    forever()


def waits_in_the_collective() -> None:
    forever()


def orphan_storm() -> None:
    """Leave many orphans that end at once, then exit."""
    for _ in range(10):
        subprocess.Popen(["sh", "-c", "(sleep 0.2 &) ; (sleep 0.2 &)"]).wait()
    time.sleep(0.1)


if __name__ == "__main__":
    journal("started")
    globals()[sys.argv[1]]()
