"""The pure comparison: consequences, causes, and what is never shown."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given, settings
from rich.console import Console

from elastic_infra import JobConfig, render
from elastic_infra.config.values import KnownLater
from elastic_infra.manifests.figures import figures
from elastic_infra.manifests.render import lasting
from elastic_infra.preview import Change, Comparison, Consequence, JobDiff, SideFault, compare
from elastic_infra.preview.as_json import as_json
from elastic_infra.preview.deltas import container_restarts, restarts_within
from elastic_infra.preview.effects import effects
from elastic_infra.preview.markdown import MAX_LENGTH, as_markdown
from elastic_infra.preview.model import Delta, worst
from elastic_infra.preview.redaction import HIDDEN, redacted
from elastic_infra.preview.text import print_text
from tests.preview.cases import LLM, SMALL, changed, side
from tests.preview.pairs import config, diff_of, pairs


@settings(max_examples=60)
@given(pairs())
def test_changes_explain_the_whole_consequence(pair: tuple[JobConfig, JobConfig]) -> None:
    """Every changed place has a cause in the config, and the worst cause is the job's consequence.

    A launcher of another name is no change, since a job keeps its own.
    """
    diff = diff_of(*pair)
    total = effects(lasting("train", pair[0]), lasting("train", pair[1]), pair[1])
    explained = {place for change in diff.changes for place in change.manifest_paths}

    assert {effect.path for effect in total} <= explained
    assert diff.consequence is worst(*(change.consequence for change in diff.changes))


def test_each_change_has_its_own_consequence() -> None:
    """A restart beside an update in place does not make both restarts."""
    head = changed(LLM, image="registry.example.com/llm:2", run_policy={"backoff_limit": 40})
    found = {change.path: change.consequence for change in diff_of(config(LLM), config(head)).changes}

    assert found == {"image": Consequence.RESTART, "run_policy.backoff_limit": Consequence.IN_PLACE}


def test_an_adopted_job_is_left_alone_until_its_key_goes() -> None:
    """No change reaches it; then it is made anew, whatever else changes."""
    adopted, edited = changed(LLM, adopted=True), changed(LLM, adopted=True, image="registry.example.com/llm:2")
    (taken,) = compare(side(), side(llm=adopted)).jobs
    found = [diff_of(config(base), config(head)) for base, head in ((adopted, edited), (adopted, LLM), (edited, LLM))]

    assert (taken.consequence, [change.path for change in taken.changes]) == (Consequence.NONE, ["adopted"])
    assert [each.consequence for each in found] == [Consequence.NONE, Consequence.RESTART, Consequence.RESTART]
    assert [change.path for change in found[0].changes] == ["image"]
    (change,) = found[1].changes
    assert (change.path, change.consequence) == ("adopted", Consequence.RESTART)
    assert change.manifest_paths == ("PyTorchJob (made anew)",)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({}, {"backoff_limit": 40}, None),
        ({}, {"restart_policy": "OnFailure"}, Delta("none (pods are made anew)", 18)),
        ({"restart_policy": "OnFailure"}, {"restart_policy": "OnFailure", "backoff_limit": -1}, Delta(18, "no limit")),
    ],
)
def test_container_restarts_are_those_that_count(
    before: dict[str, Any], after: dict[str, Any], expected: Delta | None
) -> None:
    """A limit says nothing where pods are made anew, from the config and from the object alike."""
    old, new = config(changed(LLM, run_policy=before)), config(changed(LLM, run_policy=after))
    found = [figures(dict(render("train", each).workload)) for each in (old, new)]

    assert diff_of(old, new).deltas.get("container_restarts") == expected
    assert [restarts_within(each.backoff_limit, each.restarts_in_place) for each in found] == [
        container_restarts(each) for each in (old, new)
    ]


@pytest.mark.parametrize("given", [{}, {"elastic__rdzv_id": "own"}], ids=["our run id", "a run id of one's own"])
@pytest.mark.parametrize("launcher", [{"version": "2"}, {"config_map": "shared"}], ids=["version", "config map"])
def test_what_takes_the_newest_launcher_is_a_restart(given: dict[str, Any], launcher: dict[str, str]) -> None:
    """A job that asks for it, or that shares one, whatever its run is called."""
    before = changed(LLM, **given)
    diff = diff_of(config(before), config(changed(before, launcher=launcher)))

    assert diff.consequence is Consequence.RESTART


def test_another_shared_launcher_restarts_nothing() -> None:
    """The job keeps the one that it started with."""
    before, after = (changed(LLM, launcher={"config_map": name}) for name in ("old", "new"))

    assert diff_of(config(before), config(after)).consequence is Consequence.NONE


def test_what_an_autoscaler_owns_is_no_change() -> None:
    """The number of nodes is only where a job starts."""
    scaled = changed(LLM, autoscaling={"metrics": [{"type": "cpu", "target": 80}]}, elastic__initial_nodes=2)
    diff = diff_of(config(scaled), config(changed(scaled, elastic__initial_nodes=3)))

    assert "PyTorchJob spec.pytorchReplicaSpecs.Worker.replicas" not in diff.changes[0].manifest_paths


def test_the_order_of_labels_reaches_nothing() -> None:
    """Named as an order, with the consequence that it has: none."""
    labels = {"team": "a", "cost": "b"}
    (change,) = diff_of(
        config(changed(LLM, labels=labels)), config(changed(LLM, labels=dict(reversed(labels.items()))))
    ).changes

    assert (change.path, change.is_order, change.consequence) == ("labels", True, Consequence.NONE)


def test_the_order_of_variables_restarts() -> None:
    """They are a list in the pod's template."""
    (change,) = diff_of(config(LLM), config(changed(LLM, env=dict(reversed(LLM["env"].items()))))).changes

    assert (change.path, change.is_order, change.consequence) == ("env", True, Consequence.RESTART)


def test_a_broken_job_is_neither_added_nor_removed() -> None:
    """What cannot be read is an error, not news."""
    fault = SideFault("base", "llm.yaml", "is a binary file", "llm")
    comparison = compare(side(fault, eval=SMALL), side(llm=LLM, eval=SMALL))

    assert [job.name for job in comparison.jobs] == ["eval"]
    assert comparison.errors == (fault,)


def test_a_job_is_known_by_its_namespace_too() -> None:
    """One name in two namespaces is two jobs, and each is compared with its own."""
    here, there = (changed(LLM, name="llm", namespace=each) for each in ("here", "there"))
    edited = changed(there, image="registry.example.com/llm:2")
    comparison = compare(side(one=here, two=there), side(two=edited, one=here))
    document: Any = as_json(comparison)

    assert comparison.errors == ()
    assert [(job.title, job.consequence) for job in comparison.jobs] == [
        ("there/llm", Consequence.RESTART),
        ("here/llm", Consequence.NONE),
    ]
    assert [(job["name"], job["namespace"]) for job in document["jobs"]] == [("llm", "there"), ("llm", "here")]


def test_a_job_that_moved_is_known_by_its_name() -> None:
    """Whatever else changes with its namespace, and whether a job of its name stays in another."""
    here, there = (changed(LLM, name="llm", namespace=each) for each in ("here", "there"))
    moved = changed(SMALL, name="llm", namespace="elsewhere")
    alone, beside = compare(side(one=here), side(one=moved)), compare(side(a=here, b=there), side(a=here, b=moved))

    assert [job.title for job in alone.jobs] == ["llm"]
    assert [(job.title, job.consequence) for job in beside.jobs] == [
        ("elsewhere/llm", Consequence.RESTART),
        ("here/llm", Consequence.NONE),
    ]
    assert "namespace" in [change.path for change in beside.jobs[0].changes]


def test_namespaces_that_are_known_later_tell_no_jobs_apart() -> None:
    """They may be one and the same."""
    late = changed(LLM, name="llm", namespace=KnownLater())
    comparison = compare(side(), side(one=late, two=late))

    assert comparison.jobs == ()
    assert "the two cannot be told apart" in comparison.errors[0].reason


def test_secrets_do_not_show() -> None:
    """Values of variables never; options, keys and addresses that speak of a secret neither."""
    config_ = JobConfig.from_mapping(changed(LLM, env={"PASSWORD": "hunter2", "X": {"secret": "hf", "key": "token"}}))

    assert redacted("env.PASSWORD", config_.env["PASSWORD"]) == HIDDEN
    assert redacted("env.X", config_.env["X"]) == "secret hf, key token"
    assert redacted("args", ["--api-key", "abc", "--epochs", "3", "--token=abc"]) == [
        "--api-key", HIDDEN, "--epochs", "3", f"--token={HIDDEN}",
    ]  # fmt: skip
    assert redacted("annotations['example.com/token']", "abc") == HIDDEN
    assert redacted("elastic.rdzv_endpoint", "https://user:pass@etcd:2379") == f"https://{HIDDEN}@etcd:2379"
    assert redacted("image_pull_secrets", ("registry",)) == ["registry"]


def test_a_comment_is_never_too_long() -> None:
    """Thousands of jobs: counts and the worst lines stay, the rest is said to be left out."""
    change = Change("image", "a", "b", Consequence.RESTART)
    jobs = (JobDiff(f"job-{i}", Consequence.RESTART, (change,)) for i in range(5000))
    text = as_markdown(Comparison(tuple(jobs)))

    assert len(text.encode()) <= MAX_LENGTH
    assert "**5000 restarts**" in text
    assert "more jobs." in text


def test_details_go_before_lines() -> None:
    """Every job keeps its line while there is room for all lines."""
    base = side(**{f"job-{i}": LLM for i in range(300)})
    head = side(**{f"job-{i}": changed(LLM, args=["y" * 400]) for i in range(300)})
    text = as_markdown(compare(base, head))

    assert len(text.encode()) <= MAX_LENGTH
    assert text.count("| 🔁 restart |") == 300
    assert "is too long for a comment" in text


def test_a_comment_cannot_be_broken_out_of() -> None:
    """Values are shown as they are: no markup, mention or table cell of theirs takes effect."""
    nasty = "`` | <img src=x> @everyone ]( \n| a | b |"
    text = as_markdown(compare(side(llm=LLM), side(llm=changed(LLM, args=[nasty], labels={"team": "a"}))))
    (row,) = [line for line in text.splitlines() if line.startswith("| `args`")]

    assert row.replace("\\|", "").count("|") == 6
    assert "⏎" in row
    assert "```" in row


def test_the_same_comparison_gives_the_same_text() -> None:
    """Whatever the order of the files."""
    jobs = {"a": LLM, "b": SMALL, "c": LLM}
    one = compare(side(**jobs), side(**{name: changed(job, args=["1"]) for name, job in jobs.items()}))
    other = compare(
        side(**dict(reversed(jobs.items()))), side(**{name: changed(job, args=["1"]) for name, job in jobs.items()})
    )

    assert as_markdown(one) == as_markdown(other)
    assert json.dumps(as_json(one)) == json.dumps(as_json(other))


def test_the_json_has_the_agreed_shape() -> None:
    """Other programs read these keys."""
    document: Any = as_json(compare(side(llm=LLM), side(llm=changed(LLM, elastic__nnodes="2:8"))))
    (job,) = document["jobs"]

    assert set(document) == {"jobs", "errors"}
    assert {"name", "consequence", "changes", "deltas"} <= set(job)
    assert {"path", "old", "new", "consequence", "manifest_paths"} <= set(job["changes"][0])
    assert job["deltas"]["nodes"] == {"old": "2:6", "new": "2:8"}


IN_TEXT = [
    ("curl -H 'Authorization: Bearer abcdef1234567890' x", "abcdef1234567890"),
    ("Proxy: basic dXNlcjpwYXNzd29yZA==", "dXNlcjpwYXNzd29yZA"),
    ("login --with hf_AbCdEfGhIjKlMnOp", "AbCdEfGh"),
    ("openai sk-proj-abcDEF123456", "abcDEF123456"),
    ("git clone with ghp_0123456789abcdefghij0123456789abcdef", "0123456789"),
    ('{"user": "a", "password": "hunter2 and more", "n": 3}', "hunter2"),
    ("{'db_password': 'hunter2'}", "hunter2"),
    ("export API_KEY=hunter2 && train", "hunter2"),
    ("https://hooks.slack.com/services/T000/B000/XXXX", "T000"),
    ("see https://discord.com/api/webhooks/123/abc for it", "123/abc"),
    ("https://acme.webhook.office.com/webhookb2/11-22", "11-22"),
    ("s3://bucket/x?X-Amz-Signature=0123abcd&v=1", "0123abcd"),
    ("eyJhbGciOi.eyJzdWIiOi.SflKxwRJ", "SflKxwRJ"),
]


@pytest.mark.parametrize(("text", "secret"), IN_TEXT, ids=range(len(IN_TEXT)))
def test_well_known_secrets_inside_a_text_are_hidden(text: str, secret: str) -> None:
    """In text, Markdown and JSON alike: a shell script as the command, a header, a body, a webhook."""
    base, head = config(changed(LLM, args=["-c", "echo"])), config(changed(LLM, args=["-c", text]))
    diff = diff_of(base, head)
    console = Console(record=True, width=10_000, file=io.StringIO())
    print_text(Comparison((diff,)), console)

    for form in (console.export_text(), as_markdown(Comparison((diff,))), json.dumps(as_json(Comparison((diff,))))):
        assert secret not in form
        assert HIDDEN in form


def test_what_is_no_secret_stays_to_be_read() -> None:
    """Addresses, paths and words that only look alike."""
    for text in ("https://example.com/hooksville", "s3://bucket/sk-learn.tar", "--lr=3e-4", "basic training"):
        assert redacted("args", text) == text
