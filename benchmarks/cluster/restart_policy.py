"""What each restart policy of a PyTorchJob costs on the real training operator: `OnFailure` beside `ExitCode`.

    python -m benchmarks.cluster.restart_policy [--write] [ROW ...]

The pods run a shell command that ends with the code of the row, so that the figures are those of operator and kubelet
alone. `--write` puts the figures into RESTART_POLICY.json and RESTART_POLICY.md beside this file.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal

from benchmarks.cluster.page import facts, page
from benchmarks.cluster.testbed import fresh, running
from benchmarks.common import results
from tests.cluster import jobs, kube
from tests.cluster.cluster import JOB_LABEL, MOUNT, Cluster, Namespace, restarts
from tests.cluster.waiting import until

Policy = Literal["OnFailure", "ExitCode"]
POLICIES: Final[tuple[Policy, ...]] = ("OnFailure", "ExitCode")
JOB: Final = "policy"
NODES: Final = 3
RESULTS: Final = Path(__file__).with_name("RESTART_POLICY.json")
RUN_SECONDS: Final = 3
"""Seconds from a container's start to its end."""
LIMIT_SECONDS: Final = 240
"""How long a figure is waited for; the default `backoff_limit` ends a job sooner."""
WATCH_SECONDS: Final = 60
"""How long a pod that ends repeatedly is watched."""
TTL_SECONDS: Final = 5
POLL_SECONDS: Final = 0.2

NOTE_END: Final = f"date +%s.%N >> {MOUNT}/ends"
STAY: Final = "trap 'exit 143' TERM; sleep infinity & wait"
ALL_END: Final = f"sleep {RUN_SECONDS}; {NOTE_END}; exit CODE"
FIRST: Final = f"case $HOSTNAME in *-worker-1) test -e {MOUNT}/ends ||"
ONE_ENDS: Final = f"{FIRST} {{ sleep {RUN_SECONDS}; {NOTE_END}; exit CODE; }};; esac; {STAY}"
"""Worker 1 ends once; the others and its successor stay."""
ONE_ENDS_ALWAYS: Final = f"case $HOSTNAME in *-worker-1) sleep {RUN_SECONDS}; {NOTE_END}; exit CODE;; esac; {STAY}"
ONE_SUCCEEDS: Final = f"case $HOSTNAME in *-worker-1) sleep {RUN_SECONDS}; {NOTE_END}; exit 0;; esac; {STAY}"


@dataclass(frozen=True)
class Row:
    """The pods' command, and the measurement."""

    command: tuple[str, ...]
    measure: Callable[[Namespace], str]
    ttl: int | None = None


def shell(script: str, code: int = 0) -> tuple[str, ...]:
    """A container's command that ends with this code."""
    return ("sh", "-c", script.replace("CODE", str(code)))


def held(space: Namespace) -> str:
    """Seconds from the first end until no pod of the job holds what it requested."""
    begin = first_end(space)
    seconds = seconds_until(lambda: not holding(pods(space)), begin)
    end = "the job failed" if "Failed" in space.conditions(JOB) else "the job goes on"
    return f"{f'> {LIMIT_SECONDS}' if seconds is None else f'{seconds:.1f}'} s, {starts(space)} starts, {end}"


def returned(space: Namespace) -> str:
    """Seconds from the end of one pod until all run again."""
    begin = first_end(space)
    seconds = seconds_until(lambda: is_whole(pods(space), begin), begin)
    return f"{'never' if seconds is None else f'{seconds:.1f} s'}, {starts(space)} starts"


def repeated(space: Namespace) -> str:
    """What follows for a pod that ends repeatedly."""
    begin = time.monotonic()
    while time.monotonic() - begin < WATCH_SECONDS and "Failed" not in space.conditions(JOB):
        time.sleep(POLL_SECONDS)
    failed = "Failed" in space.conditions(JOB)
    end = f"the job failed after {time.monotonic() - begin:.0f} s" if failed else f"goes on after {WATCH_SECONDS} s"
    return f"{worker_1_starts(space)} starts of it, {end}"


def deleted(space: Namespace) -> str:
    """Seconds from the job's end until the operator deletes it, by its ttl of `TTL_SECONDS`."""
    until("the end", lambda: {"Succeeded", "Failed"} & space.conditions(JOB), LIMIT_SECONDS, describe=space.describe)
    begin = time.time()
    seconds = seconds_until(lambda: space.api.find(space.job(JOB)) is None, begin, limit=60)
    return "never (60 s watched)" if seconds is None else f"{seconds:.1f} s"


ROWS: Final[Mapping[str, Row]] = {
    **{f"all {NODES} nodes end with {code}: held for": Row(shell(ALL_END, code), held) for code in (1, 2, 93)},
    **{
        f"one of {NODES} nodes ends once with {code}: whole again after": Row(shell(ONE_ENDS, code), returned)
        for code in (137, 143, 200)
    },
    f"one of {NODES} nodes ends with 200 always": Row(shell(ONE_ENDS_ALWAYS, 200), repeated),
    "the image has not the program": Row(("no-such-program",), repeated),
    f"ttl of {TTL_SECONDS} s, one node succeeds: deleted after": Row(shell(ONE_SUCCEEDS), deleted, TTL_SECONDS),
    f"ttl of {TTL_SECONDS} s, all nodes end with 1: deleted after": Row(shell(ALL_END, 1), deleted, TTL_SECONDS),
}


def main(arguments: Sequence[str]) -> int:
    """Measure, and print or write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster.restart_policy", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help="parts of the names of rows; all by default")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    wanted = parser.parse_args(arguments)
    rows = [name for name in ROWS if not wanted.rows or any(part in name for part in wanted.rows)]
    found = {name: {} for name in rows} if not wanted.write else read(RESULTS)
    with running() as (cluster, api):
        machine = facts(api, "benchmarks.cluster.restart_policy", arguments, "training-operator")
        if wanted.rows and RESULTS.exists():  # the others stay as they were measured before
            machine = [*results.load(RESULTS)["machine"], *machine]
        for name in rows:
            for policy in POLICIES:
                found.setdefault(name, {})[policy] = measure(cluster, api, ROWS[name], policy)
                print(f"{name}, {policy}: {found[name][policy]}", flush=True)
                if wanted.write:  # what was measured stays, should a later cell fail
                    results.save(RESULTS, {"machine": machine, "found": found}, document)
    print(table(found))
    return 0


def measure(cluster: Cluster, api: kube.Kube, row: Row, policy: Policy) -> str:
    """Runs one job on the cluster and tells the figure of its row."""
    with fresh(cluster, api, "policy") as space:
        space.apply(jobs.toy_config_map())
        for manifest in jobs.objects(JOB, settings(space, row, policy), "idle"):
            if manifest["kind"] == "PyTorchJob":
                template = manifest["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
                template["spec"]["containers"][0].update(command=list(row.command), args=[])
            space.apply(manifest)
        return row.measure(space)


def settings(space: Namespace, row: Row, policy: Policy) -> dict[str, Any]:
    """The job's config, with the package's default `backoff_limit`."""
    elastic = {"nnodes": f"1:{NODES}", "initial_nodes": NODES, "nproc_per_node": 1}
    ttl = {} if row.ttl is None else {"ttl_seconds_after_finished": row.ttl}
    run_policy = {"restart_policy": policy, **ttl}
    return jobs.config(space, jobs.Training(), **{**jobs.IDLE, "elastic": elastic, "run_policy": run_policy})


def pods(space: Namespace) -> list[kube.Object]:
    """All pods of the job, also those on their way out."""
    return space.api.list("v1", "Pod", space.name, f"{JOB_LABEL}={JOB}")


def holding(found: Sequence[kube.Object]) -> int:
    """How many of the pods hold what they requested: the scheduler counts every pod that has not ended."""
    return sum(pod.get("status", {}).get("phase") in {"Pending", "Running"} for pod in found)


def is_whole(found: Sequence[kube.Object], end: float) -> bool:
    """Whether all containers run, and worker 1's is the one after the end.

    The API gives whole seconds; a container that ended had been started `RUN_SECONDS` before.
    """
    began = {str(pod["metadata"]["name"]): _began(pod) for pod in found if "deletionTimestamp" not in pod["metadata"]}
    return len(began) == NODES and all(began.values()) and began[f"{JOB}-worker-1"] > end - RUN_SECONDS / 2


def _began(pod: kube.Object) -> float:
    """When the container that runs in a pod was started; 0 where none runs."""
    running = [status["state"].get("running") for status in pod["status"].get("containerStatuses", [])]
    started = [state["startedAt"] for state in running if state]
    return datetime.fromisoformat(started[0].replace("Z", "+00:00")).timestamp() if started else 0.0


def first_end(space: Namespace) -> float:
    """When a container first ended, in seconds since the epoch, as it noted itself."""
    until("an end", lambda: space.read("ends"), LIMIT_SECONDS, describe=space.describe)
    return float(space.read("ends").split()[0])


def seconds_until(condition: Callable[[], bool], begin: float, limit: float = LIMIT_SECONDS) -> float | None:
    """Seconds since `begin` (of the epoch) when the condition first holds; None where that takes too long."""
    while not condition():
        if time.time() - begin > limit:
            return None
        time.sleep(POLL_SECONDS)
    return time.time() - begin


def starts(space: Namespace) -> int:
    """How often containers of the job were started."""
    return sum(space.starts(JOB).values())


def worker_1_starts(space: Namespace) -> int:
    """Number of starts of worker 1 in any pod: restarts in place, and pods made for it."""
    made = [
        event
        for event in space.api.list("v1", "Event", space.name)
        if event["reason"] == "Scheduled" and event["involvedObject"]["name"] == f"{JOB}-worker-1"
    ]
    in_place = sum(restarts(pod) for pod in pods(space) if pod["metadata"]["name"] == f"{JOB}-worker-1")
    return len(made) + in_place


def table(found: Mapping[str, Mapping[str, str]]) -> str:
    """A row for each event, a column for each policy."""
    head = ["", *POLICIES]
    rows = [[name, *(cells.get(policy, "not run") for policy in POLICIES)] for name, cells in found.items()]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows])


def read(path: Path) -> dict[str, dict[str, str]]:
    """The rows of an earlier run, in the order of `ROWS`: what is not measured anew stays."""
    known = results.load(path)["found"] if path.exists() else {}
    return {name: known.get(name, {}) for name in ROWS}


def document(saved: results.Results) -> str:
    """The page RESTART_POLICY.md of what was saved."""
    note = (
        f"Jobs of {NODES} nodes with the default `backoff_limit` ({NODES * NODES}) and `clean_pod_policy` (`Running`). "
        f"A container runs for {RUN_SECONDS} s. Times begin when the first container ends. A pod holds its GPUs until "
        "it has ended or is gone; a pod whose container waits in CrashLoopBackOff has not ended. A figure is waited "
        f"for {LIMIT_SECONDS} s. A pod that ends repeatedly is watched for {WATCH_SECONDS} s. One run a "
        "cell; a row that is measured again replaces the old one."
    )
    return page("Restart policies on the training operator", saved, note=note, table=table(saved["found"]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
