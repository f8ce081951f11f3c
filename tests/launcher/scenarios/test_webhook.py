"""One message for one end, from real launchers to a real web server."""

from __future__ import annotations

import pathlib
import signal
import time
from collections.abc import Iterator

import pytest

from elastic_infra.launcher.agent import webhook
from tests.launcher import hooks
from tests.launcher.loopback import Job

pytestmark = [pytest.mark.launcher, pytest.mark.timeout(300)]


@pytest.fixture
def job(tmp_path: pathlib.Path) -> Iterator[Job]:
    job = Job(tmp_path, nnodes="2:2")
    job.environ = {"NO_PROXY": "127.0.0.1", "ELASTIC_INFRA_WARM_START": "0"}
    yield job
    job.end()


def end_of(job: Job, url: str) -> list[int]:
    """The exit codes of two nodes that tell this URL of the end."""
    job.environ["ELASTIC_INFRA_WEBHOOK_URL"] = url
    job.start_store()
    for _ in range(2):
        job.start_node()
    return [node.wait(120) for node in job.nodes]


def test_one_of_two_nodes_tells_of_a_failure(job: Job) -> None:
    """The job, its exit code and the worker at fault; neither a log line nor a worker's variable has the URL."""
    script = job.folder / "fail.py"
    script.write_text("import os, sys\nprint(dict(os.environ))\nsys.exit(7 if os.environ['RANK'] == '1' else 0)\n")
    job.script = (str(script),)
    with hooks.serving(503, 200) as server:
        codes = end_of(job, server.url)

        assert codes == [1, 1], job.logs()
        assert server.bodies[0] == server.bodies[1]
        assert len(server.bodies) == 2  # the first was refused
        told = server.bodies[0]
        assert (told["job"], told["outcome"], told["exit_code"], told["generation"]) == ("job", "failed", 1, 1)
        assert (told["cause"]["rank"], told["cause"]["exit_code"]) == (1, 7)
        assert (job.said("TORCHELASTIC_RUN_ID") > 0, job.said(hooks.PATH)) == (True, 0)


@pytest.mark.slow
@pytest.mark.parametrize("code", [200, 500])
def test_a_webhook_changes_no_end(job: Job, code: int) -> None:
    """A job that has succeeded has succeeded, whether its message is taken or not; the log says which."""
    script = job.folder / "succeed.py"
    script.touch()
    job.script = (str(script),)
    with hooks.serving(code) as server:
        assert end_of(job, server.url) == [0, 0], job.logs()
        assert [told["outcome"] for told in server.bodies] == ["succeeded"] * (1 if code == 200 else 3)
    assert job.said("did not take the message of the job's end: it was answered with 500.") == (code == 500)


@pytest.mark.slow
def test_a_launch_that_is_told_to_end_does_not_wait_for_the_answer(job: Job) -> None:
    """The message is out, and the pod's grace is not spent on a server that does not answer."""
    script = job.folder / "succeed.py"
    script.touch()
    job.script, job.nnodes = (str(script),), "1:1"
    with hooks.serving(200) as server:
        server.answering.clear()
        job.environ["ELASTIC_INFRA_WEBHOOK_URL"] = server.url
        node = job.start_node()
        job.wait_until(lambda: bool(server.bodies))
        told_at = time.monotonic()
        node.send_signal(signal.SIGTERM)

        assert node.wait(60) == 128 + signal.SIGTERM
        assert time.monotonic() - told_at < webhook.TRY_SECONDS + webhook.PAUSE_SECONDS
    assert [told["outcome"] for told in server.bodies] == ["succeeded"]
