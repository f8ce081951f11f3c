"""Kubernetes Events of a job's failures and of its end, on the real API server."""

from __future__ import annotations

import signal

import pytest

from tests.cluster import faults, jobs, kube
from tests.cluster.cluster import MOUNT, READER, Namespace
from tests.cluster.targets import Target
from tests.cluster.test_capacity import may
from tests.cluster.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
JOB, HOOKS, PORT = "told", "hooks", 8080
POSTED = "posted.json"
LISTENER = f"""
import http.server
class Listener(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with open("{MOUNT}/{POSTED}", "ab") as file:
            file.write(body + b"\\n")
        self.send_response(200)
        self.end_headers()
http.server.HTTPServer(("", {PORT}), Listener).serve_forever()
"""
"""Keeps what is posted to it."""


def told(space: Namespace) -> list[kube.Object]:
    """The events that the driver has made, in their order."""
    found = space.api.list("v1", "Event", space.name)
    own = [each for each in found if each["source"].get("component") == "elastic-infra"]
    return sorted(own, key=lambda each: str(each["firstTimestamp"]))


def listen(space: Namespace) -> None:
    """Has the reader keep what is posted to the URL that a Secret of the namespace has."""
    space.start(READER, LISTENER)
    url = f"http://{space.api.get(space.pod(READER))['status']['podIP']}:{PORT}/"
    space.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": HOOKS}, "stringData": {"url": url}})


def test_a_failure_and_the_end_are_events_of_the_job(space: Namespace, target: Target) -> None:
    """Both are about the job by its uid, as `kubectl describe` looks for them; the account may do nothing else.

    One of the nodes posts a message of the end to the webhook.
    """
    listen(space)
    launcher = {"kubernetes_events": True, "webhook": {"secret": HOOKS}}
    target.start(space, JOB, target.config(space, jobs.Training(reports=True), launcher=launcher))
    jobs.await_world(space, 2)
    faults.signal_worker(space, target.nodes(space, JOB)[0]["metadata"]["name"], signal.SIGKILL)
    until("the failure", lambda: len(told(space)) == 1, describe=space.describe)
    jobs.await_step(space, jobs.last_step(space) + 5)
    jobs.tell_to_finish(space)
    until("the end", lambda: len(told(space)) == 2, describe=space.describe)
    failure, end = told(space)
    job = space.api.get(space.named(target.api_version, target.kind, JOB))
    group, resource = target.api_version.partition("/")[0], f"{target.kind.lower()}s"
    user = f"system:serviceaccount:{space.name}:{JOB}-driver"
    rights = [("get", group, resource, JOB), ("create", "", "events", "")]
    more = [
        ("patch", group, resource, JOB),
        ("get", group, resource, "another"),
        ("list", "", "pods", ""),
        ("list", "", "events", ""),
        ("delete", "", "events", ""),
    ]

    assert (failure["reason"], failure["type"]) == ("WorkerFailed", "Warning")
    assert (end["reason"], end["type"]) == ("TrainingSucceeded", "Normal")
    assert {each["involvedObject"]["uid"] for each in (failure, end)} == {job["metadata"]["uid"]}
    assert [each for each in (*rights, *more) if may(space, user, *each)] == rights
    (posted,) = space.lines(POSTED)
    assert str(posted["job"]).startswith(f"{JOB}-")
    assert (posted["outcome"], posted["exit_code"], posted["restarts"]) == ("succeeded", 0, 1)
