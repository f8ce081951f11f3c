"""The training operator, the kubelet and the Job controller as a function: (state, event, now) -> (state, actions).

Pure: no process, no clock. Sources: training-operator v1.9.4, `pkg/controller.v1/common/{pod,job}.go`,
`pkg/core/{pod,job}.go` and `pkg/controller.v1/pytorch/pytorchjob_controller.go` (https://github.com/kubeflow/trainer);
https://kubernetes.io/docs/concepts/workloads/controllers/job/#pod-failure-policy.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from elastic_infra.local.faults import (
    Fault,
    KillWorker,
    LoseRendezvous,
    PreemptNode,
    Scale,
    StopWorker,
)
from elastic_infra.local.state import (
    STORE,
    Action,
    Event,
    Exited,
    Interrupted,
    Judged,
    Kill,
    Missed,
    Outcome,
    Pod,
    Rules,
    Signal,
    Start,
    State,
    Step,
    Struck,
    Terminate,
    Tick,
    TimedOut,
    Verdict,
    index_of,
    node,
)

BACK_SECONDS: Final = 2.0
"""From the end of a pod or container to its next start; a cluster takes about as long when the image is there."""
LINGER_SECONDS: Final = 2.0
"""From the first success to SIGTERM for the nodes that are left, as long as the operator takes to see it."""
LAST_GRACE_SECONDS: Final = 15.0
"""Grace of the remaining pods when the job has failed: they need not save a checkpoint."""

_FIRST_RETRIED: Final = 128
"""The lowest exit code that is retried under `ExitCode`; lower codes are permanent."""


def begin(rules: Rules, nodes: int, *, has_store: bool) -> State:
    """The state of a job that was just created."""
    store = (Pod(STORE),) if has_store else ()
    return State(rules, nodes, (*store, *(Pod(node(index)) for index in range(nodes))))


def step(state: State, event: Event, now: float) -> Step:
    """The next state, and the controllers' actions for an event."""
    match event:
        case Tick():
            return _tick(state, now)
        case Exited(name, code):
            return _exited(state, _pod(state, name), code, now)
        case Struck(fault):
            return _struck(state, fault, now)
        case Interrupted():
            return _interrupted(state, now)
        case TimedOut(seconds):
            return _end(state, Outcome(succeeded=False, reason=f"it took longer than {seconds:g} s"), now), ()


def is_over(state: State) -> bool:
    """Whether the job has ended and no pod is left."""
    return state.outcome is not None and not any(pod.phase in {"running", "leaving"} for pod in state.pods)


def is_settled(state: State) -> bool:
    """Whether every pod that should exist is running."""
    running = [pod for pod in state.pods if pod.phase == "running" and pod.name != STORE]
    return len(running) == state.nodes and all(pod.phase == "running" for pod in state.pods)


def deadline(state: State) -> float | None:
    """The time at which a tick has an effect; None: not before the next event."""
    times = [pod.at for pod in state.pods if pod.phase == "leaving" or (pod.phase == "waiting" and not state.outcome)]
    if state.clear_at is not None and _clearable(state):
        times.append(state.clear_at)
    return min(times, default=None)


def _pod(state: State, name: str) -> Pod | None:
    return next((pod for pod in state.pods if pod.name == name), None)


def _with(state: State, pod: Pod) -> State:
    """The state with one pod changed, or added."""
    names = [known.name for known in state.pods]
    if pod.name not in names:
        return replace(state, pods=(*state.pods, pod))
    return replace(state, pods=tuple(pod if known.name == pod.name else known for known in state.pods))


def _without(state: State, name: str) -> State:
    return replace(state, pods=tuple(pod for pod in state.pods if pod.name != name))


def _is_there(pod: Pod | None) -> bool:
    return pod is not None and pod.phase in {"running", "leaving"}


# ---------------------------------------------------------------- time


def _tick(state: State, now: float) -> Step:
    actions: list[Action] = []
    for pod in state.pods:
        changed, wanted = _tick_pod(pod, now, ended=state.outcome is not None)
        state = _with(state, changed)
        actions += wanted
    if state.clear_at is not None and now >= state.clear_at:
        for pod in _clearable(state):
            state, wanted = _delete(state, pod, now)
            actions += wanted
    return state, tuple(actions)


def _tick_pod(pod: Pod, now: float, *, ended: bool) -> tuple[Pod, tuple[Action, ...]]:
    if now < pod.at:
        return pod, ()
    if pod.phase == "waiting" and not ended:
        return replace(pod, phase="running"), (Start(pod.name, pod.is_new),)
    if pod.phase == "leaving":
        return replace(pod, at=now + 1.0), (Kill(pod.name),)  # repeated, in case a process escaped the first signal
    return pod, ()


def _clearable(state: State) -> tuple[Pod, ...]:
    """The pods that an ended job deletes: the remaining nodes, and after those the store."""
    if any(_is_there(pod) and pod.name != STORE for pod in state.pods):
        return tuple(pod for pod in state.pods if pod.phase == "running" and pod.name != STORE)
    return tuple(pod for pod in state.pods if pod.phase == "running")


def _delete(state: State, pod: Pod, now: float) -> Step:
    """The state and actions of deleting a pod."""
    if pod.phase != "running":
        return state, ()
    rules = state.rules
    grace = rules.store_grace_seconds if pod.name == STORE else rules.grace_seconds
    if state.outcome is not None and not state.outcome.succeeded and not state.outcome.interrupted:
        grace = min(grace, LAST_GRACE_SECONDS)
    return _with(state, replace(pod, phase="leaving", at=now + grace)), (Terminate(pod.name),)


# ---------------------------------------------------------------- exits


def _exited(state: State, pod: Pod | None, code: int, now: float) -> Step:
    if pod is None or not _is_there(pod):
        return state, ()
    state, verdict = _judge(state, pod, code, now)
    return state, (Judged(pod.name, code, verdict),)


def _judge(state: State, pod: Pod, code: int, now: float) -> tuple[State, Verdict]:
    """The state and actions after a pod's container has ended."""
    if state.outcome is not None:
        return _with(state, replace(pod, phase="done")), "done"
    if pod.name == STORE:
        return _with(state, _again(pod, now, is_new=pod.phase == "leaving")), "retry"
    if code == 0:
        ended = _end(state, Outcome(succeeded=True, reason=f"{pod.name} succeeded"), now)
        return _with(ended, replace(pod, phase="done")), "done"
    if pod.phase == "leaving":
        if index_of(pod) >= state.nodes:
            return _without(state, pod.name), "done"
        return _with(state, _again(pod, now, is_new=True)), "retry"
    return _failed(state, pod, code, now)


def _failed(state: State, pod: Pod, code: int, now: float) -> tuple[State, Verdict]:
    """The state and actions after a container that failed by itself."""
    if state.rules.workload == "Job":
        return _failed_job_pod(state, pod, code, now)
    if state.rules.restart_policy == "ExitCode":
        if code >= _FIRST_RETRIED:
            return _with(state, _again(pod, now, is_new=True)), "retry"
        return _fail(state, pod, f"{pod.name} ended with {code}, which ExitCode does not retry", now)
    pod = replace(pod, restarts=pod.restarts + 1)
    restarts, limit = sum(p.restarts for p in _with(state, pod).pods if p.name != STORE), state.rules.backoff_limit
    if limit is not None and restarts >= limit:
        return _fail(state, pod, f"{pod.name} ended with {code}, and the job has used its backoff_limit ({limit})", now)
    return _with(state, replace(_again(pod, now, is_new=False), restarts=pod.restarts)), "retry"


def _failed_job_pod(state: State, pod: Pod, code: int, now: float) -> tuple[State, Verdict]:
    if code in state.rules.permanent:
        return _fail(state, pod, f"{pod.name} ended with {code}, which is not retried", now)
    state = replace(state, failures=state.failures + 1)
    limit = state.rules.backoff_limit
    if limit is not None and state.failures > limit:
        return _fail(state, pod, f"{pod.name} ended with {code}, and the job has used its backoff_limit ({limit})", now)
    return _with(state, _again(pod, now, is_new=True)), "retry"


def _fail(state: State, pod: Pod, reason: str, now: float) -> tuple[State, Verdict]:
    return _end(_with(state, replace(pod, phase="done")), Outcome(succeeded=False, reason=reason), now), "permanent"


def _again(pod: Pod, now: float, *, is_new: bool) -> Pod:
    return Pod(pod.name, "waiting", now + BACK_SECONDS, is_new=is_new)


def _end(state: State, outcome: Outcome, now: float) -> State:
    """The state with the outcome, unless one was set; the remaining pods are deleted soon."""
    if state.outcome is not None:
        return state
    return replace(state, outcome=outcome, clear_at=now + (LINGER_SECONDS if outcome.succeeded else 0.0))


def _interrupted(state: State, now: float) -> Step:
    if state.outcome is None:
        return _end(state, Outcome(succeeded=False, reason="it was interrupted", interrupted=True), now), ()
    return state, tuple(Kill(pod.name) for pod in state.pods if _is_there(pod))


# ---------------------------------------------------------------- faults


def _struck(state: State, fault: Fault, now: float) -> Step:
    if state.outcome is not None:
        return state, (Missed(fault, "the job is ending"),)
    if isinstance(fault, Scale):
        return _scaled(state, fault.nodes, now)
    name = STORE if isinstance(fault, LoseRendezvous) else node(fault.node)
    pod = _pod(state, name)
    if pod is None or pod.phase != "running":
        return state, (Missed(fault, f"{name} is not running"),)
    return _hit(state, pod, fault, now)


def _hit(state: State, pod: Pod, fault: Fault, now: float) -> Step:
    match fault:
        case KillWorker(_, rank):
            return state, (Signal(pod.name, rank, "SIGKILL"),)
        case StopWorker(_, rank):
            return state, (Signal(pod.name, rank, "SIGSTOP"),)
        case PreemptNode():
            return _delete(state, pod, now)
        case _:
            return _with(state, replace(pod, phase="leaving", at=now + 1.0)), (Kill(pod.name),)


def _scaled(state: State, nodes: int, now: float) -> Step:
    """Pods with the highest indexes go; new ones start at once, or when their predecessor is gone."""
    actions: list[Action] = []
    for pod in state.pods:
        if pod.name == STORE or index_of(pod) < nodes:
            continue
        if pod.phase in {"waiting", "done"}:
            state = _without(state, pod.name)
        else:
            state, wanted = _delete(state, pod, now)
            actions += wanted
    for index in range(nodes):
        if _pod(state, node(index)) is None:
            state = _with(state, Pod(node(index), at=now))
    return replace(state, nodes=nodes), tuple(actions)
