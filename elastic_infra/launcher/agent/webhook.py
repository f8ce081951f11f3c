"""The message of a job's end, posted as JSON to the URL that the job's owner has given (``ELASTIC_INFRA_WEBHOOK_URL``).

Only the node sends it whose compare-and-set ended the job, so that there is one message for one end. It goes out from a
thread, once nothing trains any more, and never changes how the launch ends. The URL may be a secret: no line shows it.
"""

from __future__ import annotations

import json
import threading
import time
from typing import Final

from .. import event_log
from ..protocol.records import Cause, Generation

TRIES: Final = 3
TRY_SECONDS: Final = 3.0
"""How long one try may take to connect, and then to be answered."""
PAUSE_SECONDS: Final = 1.0
"""Between two tries."""
WAIT_SECONDS: Final = 12.0
"""How long the end of the launch may wait for the message, all tries together."""
LEAVING_SECONDS: Final = 1.5
"""The same for a launch that was told to end: its supervisor waits for little more."""

_TRANSIENT: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Answers after which another try may succeed."""


def message(run_id: str, end: Generation) -> dict[str, object]:
    """The JSON object that tells of the end of a job.

    Args:
        run_id: the job's, as ``--rdzv-id`` has it.
        end: the final record.
    """
    code = end.exit_code or 0
    outcome = "failed" if code else "succeeded"
    why = f": {end.cause.message}" if code and end.cause is not None and end.cause.message else ""
    return {
        "text": f"{run_id} {outcome} (exit code {code}) after {end.budget.charged} restarts{why}",
        "job": run_id,
        "outcome": outcome,
        "exit_code": code,
        "generation": end.number,
        "restarts": end.budget.charged,
        "cause": _cause(end.cause) if code and end.cause is not None else None,
        "ended_at": event_log.utc(end.ended_at),
    }


def _cause(cause: Cause) -> dict[str, object]:
    return {
        "kind": cause.kind,
        "node": cause.node,
        "rank": cause.rank,
        "exit_code": cause.exit_code,
        "step": cause.step,
        "message": cause.message,
    }


class Delivery:
    """One message on its way, in a thread that ends with the process."""

    def __init__(self, url: str, content: dict[str, object], pause_seconds: float = PAUSE_SECONDS) -> None:
        self._url = url.strip()  # a Secret made of a file often ends with a new line
        self._data = json.dumps(content).encode()
        self._pause = pause_seconds
        self._trouble = "it was not answered in time"
        self._thread = threading.Thread(target=self._run, name="webhook", daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> str:
        """Wait until the message is delivered or given up; returns why it was not delivered, empty where it was."""
        self._thread.join(seconds)
        return self._trouble

    def _run(self) -> None:
        for attempt in range(TRIES):
            if attempt:
                time.sleep(self._pause)
            self._trouble, is_worth_another = _post(self._url, self._data)
            if not is_worth_another:
                return


def _post(url: str, data: bytes) -> tuple[str, bool]:
    """One try: what went wrong, empty where nothing did, and whether another try may help."""
    from http.client import HTTPException  # here, because only the last moments of one node need them
    from urllib import error, request

    class Unmoved(request.HTTPRedirectHandler):
        def redirect_request(self, *_: object) -> None:
            """Follow no redirection: it would send the message elsewhere, or without its body."""

    if not url.startswith(("http://", "https://")):
        return "its URL does not begin with http:// or https://", False
    headers = {"Content-Type": "application/json", "User-Agent": "elastic-infra"}
    try:
        asked = request.Request(url, data, headers)  # noqa: S310 - the scheme was looked at
        request.build_opener(Unmoved).open(asked, timeout=TRY_SECONDS).close()
    except error.HTTPError as refused:
        refused.close()
        return f"it was answered with {refused.code}", refused.code in _TRANSIENT
    except OSError as failure:
        return _words(getattr(failure, "reason", failure)), True
    except (HTTPException, ValueError) as failure:
        return type(failure).__name__, False
    return "", False


def _words(failure: object) -> str:
    """The system's words for an error, and of another error only the type: its words may quote the URL or the host."""
    kind = type(failure)
    of_system = isinstance(failure, OSError) and kind.__module__ in {"builtins", "socket"} and failure.strerror
    return of_system or kind.__name__
