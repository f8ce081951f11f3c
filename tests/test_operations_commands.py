"""`status`, `logs`, `watch`, `scale` and `cancel` on a command line, without a cluster: bad input changes nothing.

A stand-in for kubectl gives one object for each kind and writes down what it is asked; the real one is in
`tests/cluster/test_operations.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import shlex
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from elastic_infra.cli import kubectl
from elastic_infra.cli.kubectl import Answer, ClusterError
from tests import jobs
from tests.cli import Result, elastic_infra
from tests.operations import kube

COMMANDS = [("status",), ("logs",), ("watch",), ("scale", "3"), ("cancel",)]
KUBECTL = """#!{python}
import json, pathlib, sys
folder = pathlib.Path(__file__).parent
with (folder / "asked").open("a") as log:
    log.write(" ".join(sys.argv[1:]) + "\\n")
answers = json.loads((folder / "answers.json").read_text())
code, out, err = answers.get(sys.argv[2], answers.get(sys.argv[1], [0, "", ""]))
sys.stdout.write(out)
sys.stderr.write(err)
sys.exit(code)
"""


class Cluster:
    """A folder on PATH with a kubectl that answers by its second word, or else by its first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        program = folder / "kubectl"
        program.write_text(KUBECTL.format(python=sys.executable))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)

    def answers(self, **answers: tuple[int, str, str]) -> None:
        """Say this from now on; a kind has `_` for `.`."""
        named = {name.replace("_", "."): answer for name, answer in answers.items()}
        (self._folder / "answers.json").write_text(json.dumps(named))

    @property
    def asked(self) -> list[str]:
        """The questions so far."""
        log = self._folder / "asked"
        return log.read_text().splitlines() if log.exists() else []


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """A cluster without any object."""
    monkeypatch.setenv("PATH", str(tmp_path))
    own = Cluster(tmp_path)
    own.answers()
    return own


def run(command: tuple[str, ...], name: str = "job", *options: str) -> Result:
    """A command on a job."""
    return elastic_infra(command[0], name, *command[1:], *options)


def found(thing: dict[str, Any]) -> tuple[int, str, str]:
    """The answer with an object."""
    return 0, json.dumps(thing), ""


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_bad_input_asks_nothing_of_the_cluster(cluster: Cluster, command: tuple[str, ...]) -> None:
    """Exit code 2 and the reason; a name is never taken for an option or another kind."""
    for name in ("a/b", "A", "a b", "", "../x"):
        result = run(command, name)
        assert (result.code, result.out) == (2, "")
        assert "is no name of a job" in result.err

    assert run(command, "job", "--nothing").code == 2
    assert cluster.asked == []


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_job_that_is_not_there_is_said_to_be_missing(cluster: Cluster, command: tuple[str, ...]) -> None:
    """Each kind was asked for, where the flags say; a cluster without the operator has single pods all the same."""
    cluster.answers(pytorchjobs_kubeflow_org=(1, "", 'error: the server doesn\'t have a resource type "pytorchjobs"'))
    result = run(command, "job", "-n", "team", "--context", "prod", "--kubeconfig", "file")

    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("There is no job job in this namespace.")
    assert "-l app.kubernetes.io/managed-by=elastic-infra --context=prod --kubeconfig=file` lists" in result.err
    assert len(cluster.asked) == 3
    assert all(line.endswith("--context=prod --kubeconfig=file --namespace=team") for line in cluster.asked)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_job_of_others_is_left_alone(cluster: Cluster, command: tuple[str, ...]) -> None:
    """A PyTorchJob of the same name is not ours to stop."""
    job = kube.workload("Running")
    job["metadata"]["labels"] = {}
    cluster.answers(pytorchjobs_kubeflow_org=found(job))
    result = run(command)

    assert result.code == 2
    assert "is no job of elastic-infra" in result.err
    assert len(cluster.asked) == 1


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_without_kubectl_there_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    """The line says what is missing and what to do."""
    monkeypatch.setenv("PATH", str(tmp_path))
    result = run(command)

    assert (result.code, result.out) == (2, "")
    assert result.err == "kubectl is not on PATH, and the cluster is asked through it. Install it.\n"


@pytest.mark.parametrize("nodes", ["0", "x", "2.5"])
def test_a_size_is_a_number_of_nodes(cluster: Cluster, nodes: str) -> None:
    """Numbers below one, and text, are refused before the cluster is asked."""
    assert run(("scale", nodes)).code == 2
    assert cluster.asked == []


def test_a_train_job_is_read_with_its_runtime(cluster: Cluster) -> None:
    """The runtime holds the nodes and the pods; the switch that stops the job is the TrainJob's."""
    made = jobs.objects(jobs.train_job())
    own, runtime = ({**made[role], "status": {}} for role in ("workload", "runtime"))
    cluster.answers(
        trainjobs_trainer_kubeflow_org=found(own),
        trainingruntimes_trainer_kubeflow_org=found(runtime),
        patch=(0, "", ""),
    )
    scaled, cancelled = run(("scale", "3")), run(("cancel",))

    assert (scaled.code, "keeps its 4 nodes" in scaled.err) == (2, True), scaled.err
    assert cancelled.code == 0, cancelled.err
    assert cluster.asked[3].split()[:3] == ["get", "trainingruntimes.trainer.kubeflow.org", runtime["metadata"]["name"]]
    assert cluster.asked[-1].startswith("patch trainjobs.trainer.kubeflow.org job --type=merge")


def test_what_undoes_a_cancel_is_meant_for_the_same_cluster(cluster: Cluster) -> None:
    """The command can be pasted: it names the cluster that was named, and the namespace of the job."""
    cluster.answers(pytorchjobs_kubeflow_org=found(kube.workload("Running")))
    result = run(("cancel",), "job", "--context", "my prod", "-n", "default")

    assert shlex.split(result.err.partition("with: ")[2]) == [
        "kubectl", "patch", "pytorchjobs.kubeflow.org", "job", "-n", "default", "--type=merge",
        "-p", '{"spec":{"runPolicy":{"suspend":false}}}', "--context=my prod",
    ]  # fmt: skip


def test_a_train_job_whose_size_moves_has_the_size_of_its_job_set(cluster: Cluster) -> None:
    """The TrainJob and its runtime hold only where it begins; the JobSet is what changes."""
    made = jobs.objects(jobs.train_job(elastic={"nnodes": "2:4", "elastic_job_set": True}))
    own, runtime = ({**made[role], "status": {}} for role in ("workload", "runtime"))
    spec = {"replicatedJobs": [{"name": "node", "template": {"spec": {"parallelism": 2, "completions": 2}}}]}
    answers = {
        "trainjobs_trainer_kubeflow_org": found(own),
        "trainingruntimes_trainer_kubeflow_org": found(runtime),
        "jobsets_jobset_x-k8s_io": found({"metadata": {"name": "job"}, "spec": spec}),
    }
    cluster.answers(**answers)
    result = run(("scale", "2"))
    assert result.err == "job in namespace default has 2 nodes already.\n"
    cluster.answers(**answers | {"jobsets_jobset_x-k8s_io": (0, "", "")})
    result = run(("scale", "3"))

    assert result.err == "job in namespace default goes from 4 to 3 nodes.\n"
    assert cluster.asked[-1].startswith("patch jobsets.jobset.x-k8s.io job --type=json --patch=")
    assert json.loads(cluster.asked[-1].partition("--patch=")[2].partition(" --request")[0]) == [
        {"op": "replace", "path": f"/spec/replicatedJobs/0/template/spec/{field}", "value": 3}
        for field in ("parallelism", "completions")
    ]


def test_a_job_set_whose_size_does_not_move_is_told_without_its_pods(cluster: Cluster) -> None:
    """JobSet names the whole template in its refusal."""
    made = jobs.objects(jobs.train_job(elastic={"nnodes": "2:4", "elastic_job_set": True}))
    own, runtime = ({**made[role], "status": {}} for role in ("workload", "runtime"))
    refusal = 'spec.replicatedJobs: Invalid value: [{"env": "secret"}]: field is immutable'
    cluster.answers(
        trainjobs_trainer_kubeflow_org=found(own),
        trainingruntimes_trainer_kubeflow_org=found(runtime),
        patch=(1, "", f'The JobSet "job" is invalid: {refusal}\n'),
    )
    result = run(("scale", "3"))

    assert result.code == 2
    assert "its feature gate ElasticJobSet is off" in result.err
    assert "secret" not in result.err


def test_a_refused_size_changes_nothing(cluster: Cluster) -> None:
    """The object was read, and nothing else asked."""
    cluster.answers(pytorchjobs_kubeflow_org=found(kube.workload("Running", elastic={"initial_nodes": 2})))
    result = run(("scale", "3"))

    assert result.code == 2
    assert "elastic.initial_nodes: 3" in result.err
    assert [line.split()[0] for line in cluster.asked] == ["get"]


def test_a_size_that_the_job_has_already_is_not_sent(cluster: Cluster) -> None:
    """The job has what is wanted, so the command succeeds."""
    cluster.answers(pytorchjobs_kubeflow_org=found(kube.workload("Running")))
    result = run(("scale", "4"))

    assert (result.code, [line.split()[0] for line in cluster.asked]) == (0, ["get"])
    assert result.err == "job in namespace default has 4 nodes already.\n"


def test_an_indexed_job_is_scaled_by_both_of_its_numbers(cluster: Cluster) -> None:
    """A batch/v1 Job has no scale subresource: one patch changes both."""
    cluster.answers(jobs_batch=found(kube.workload(target="job")))
    result = run(("scale", "3"))

    assert result.err == "job in namespace default goes from 4 to 3 nodes.\n"
    assert cluster.asked[-1].startswith(
        'patch jobs.batch job --type=merge --patch={"spec": {"parallelism": 3, "completions": 3}}'
    )


def test_the_log_of_a_rank_is_that_of_the_newest_pod_of_its_node(cluster: Cluster) -> None:
    """The launchers name nodes by their hosts, kubectl asks for pods."""
    pods = [kube.indexed_pod(0, "a"), kube.indexed_pod(1, "b", "Failed"), kube.indexed_pod(1, "c", made=kube.LATER)]
    cluster.answers(jobs_batch=found(kube.workload(target="job")), pods=found({"items": pods}))
    result = run(("logs",), "job", "--rank", "1")

    assert result.code == 0
    assert cluster.asked[-1].startswith("logs job-1-c ")


def logs_of(cluster: Cluster, pods: list[dict[str, Any]], said: str, *options: str) -> Result:
    """The command `logs` of a whole job with these pods, of which kubectl says this on its stdout."""
    job = found(kube.workload("Running"))
    cluster.answers(pytorchjobs_kubeflow_org=job, pods=found({"items": pods}), logs=(0, said, ""))
    return run(("logs",), "job", *options)


STARTS = 'container "pytorch" in pod "job-worker-1" is waiting to start: ContainerCreating'
NEVER = 'previous terminated container "pytorch" in pod "job-worker-1" not found'


def test_a_node_that_cannot_be_read_ends_no_other_log(cluster: Cluster) -> None:
    """By itself kubectl ends with the first such pod; told otherwise, it says so among the lines."""
    pods, lines = [kube.pod(0), kube.pod(1, "Pending")], "[pod/job-worker-0/pytorch] error: mine\n"
    result = logs_of(cluster, pods, f"error: {STARTS}\n{lines}")

    assert (result.code, result.out, result.err) == (0, lines, f"note: {STARTS}\n")
    assert "--ignore-errors=true" in cluster.asked[-1].split()


def test_only_containers_that_restarted_have_a_log_before(cluster: Cluster) -> None:
    """Of the others there is nothing to note."""
    pods, lines = [kube.pod(0, restartCount=1), kube.pod(1)], "[pod/job-worker-0/pytorch] hello\n"
    result = logs_of(cluster, pods, f"{lines}error: {NEVER}\n", "--previous")

    assert (result.code, result.out, result.err) == (0, lines, "")


@pytest.mark.parametrize(("said", "options"), [(STARTS, ()), (NEVER, ("--previous",))])
def test_a_job_of_which_nothing_can_be_read_is_refused(cluster: Cluster, said: str, options: tuple[str, ...]) -> None:
    """To kubectl that is a success; a job that has written nothing yet is one."""
    pods = [kube.pod(1)]
    result = logs_of(cluster, pods, f"error: {said}\n", *options)

    assert (result.code, result.out) == (2, "")
    assert f"No log of job in namespace default can be read: {said}. `elastic-infra status job` shows" in result.err
    assert logs_of(cluster, pods, "", *options).code == 0


def test_a_right_to_read_logs_that_is_missing_is_named_once(cluster: Cluster) -> None:
    """It is missing for every pod of the namespace."""
    said = forbidden("get", "pods/log", "", "default").replace("Error from server (Forbidden)", "error")
    result = logs_of(cluster, [kube.pod(0), kube.pod(1)], 2 * said)

    assert (result.code, len(result.err.splitlines())) == (2, 1)
    assert result.err.startswith("This account may not get pods/log in namespace default.")


def test_watch_ends_with_the_job(cluster: Cluster) -> None:
    """A job that has ended is shown once; its end is the exit code."""
    none = found({"items": []})
    for end, code in {"Succeeded": 0, "Failed": 1}.items():
        cluster.answers(pytorchjobs_kubeflow_org=found(kube.workload(end)), pods=none, events=none)
        result = run(("watch",))
        assert (result.code, result.out.splitlines()[0].split(":")[1].split()[0]) == (code, end.lower())


def test_watch_draws_in_place_on_a_terminal(cluster: Cluster, tmp_path: Path) -> None:
    """The whole view, in the terminal's own language."""
    none = found({"items": []})
    cluster.answers(pytorchjobs_kubeflow_org=found(kube.workload("Succeeded")), pods=none, events=none)
    ours, terminal = pty.openpty()
    environ = {"PATH": str(tmp_path), "TERM": "xterm", "COLUMNS": "200"}
    command = (sys.executable, "-m", "elastic_infra.cli", "watch", "job")
    with subprocess.Popen(command, stdout=terminal, stderr=terminal, stdin=terminal, env=environ) as watch:
        os.close(terminal)
        drawn = b"".join(_until_closed(ours))
        os.close(ours)

    assert watch.returncode == 0
    assert b"job in namespace default: succeeded after 10:00" in drawn
    assert b"\x1b[" in drawn


def _until_closed(terminal: int) -> Iterator[bytes]:
    with contextlib.suppress(OSError):  # how Linux says that no writer is left
        while data := os.read(terminal, 4096):
            yield data


def test_a_right_that_only_a_part_needs_costs_that_part(cluster: Cluster) -> None:
    """Pods are shown; that events are not, and why, is a note."""
    job = kube.workload("Succeeded")
    refused = (1, "", forbidden("list", "events", "", "default"))
    cluster.answers(pytorchjobs_kubeflow_org=found(job), pods=found({"items": []}), events=refused)
    result = run(("status",))

    assert result.code == 0
    assert "note: This account may not list events in namespace default." in result.out


def forbidden(verb: str, resource: str, group: str, namespace: str) -> str:
    """The API server's own words, as kubectl passes them on."""
    what = f'User "u" cannot {verb} resource "{resource}" in API group "{group}" in the namespace "{namespace}"'
    return f"Error from server (Forbidden): {resource} is forbidden: {what}\n"


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (
            forbidden("patch", "pytorchjobs/scale", "kubeflow.org", "team"),
            "This account may not patch pytorchjobs/scale.kubeflow.org in namespace team. Ask for a Role",
        ),
        (forbidden("get", "pods/log", "", "team"), "This account may not get pods/log in namespace team."),
        ("Error from server (BadRequest): the container is waiting", "The cluster refuses it: Error from server"),
        ('error: error from server (NotFound): pods "job-worker-0" not found', "The cluster refuses it: error: error"),
        ("error: You must be logged in to the server (Unauthorized)", "The cluster does not know this account"),
        ("The connection to the server x was refused", "The cluster cannot be reached"),
    ],
)
def test_what_kubectl_says_becomes_what_to_do(said: str, message: str) -> None:
    """A right that is missing is named with its verb and resource."""
    with pytest.raises(ClusterError) as caught:
        kubectl.checked(Answer(1, "", said))

    assert str(caught.value).startswith(message)
