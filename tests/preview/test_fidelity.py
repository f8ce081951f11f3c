"""The prediction is held against a real engine: every pair of configs, every object."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pytest

from elastic_infra import ElasticTrainingJob, JobConfig, render
from elastic_infra.manifests import launcher
from elastic_infra.preview import Consequence, JobDiff
from elastic_infra.preview.effects import ENDS_PODS, Effect, effects
from tests.engine.conftest import engine, provider  # noqa: F401 - fixtures
from tests.engine.engine import Engine, Outcome, Program
from tests.preview.pairs import EDITS_OF, config, diff_of, drawn, is_refused, predictions, refused, two_nodes

Pair = tuple[JobConfig, JobConfig]

PAIRS: Final = 324
STACK_SIZE: Final = 80
"""Jobs of one stack: the engine writes its whole state again and again."""

EDITED: Final = {
    "image": "registry.example.com/train:1",
    "script": "train.py",
    "resources": {"cpu": "2", "memory": "4Gi"},
    "env": {"A": "1", "B": "2"},
}

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1200)]  # a minute on an idle machine


@pytest.fixture(autouse=True)
def _small_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """The launcher's content is the same on both sides, and would fill the state of hundreds of jobs."""
    monkeypatch.setattr(launcher, "archive", lambda: b"launcher")


def _program(configs: Sequence[JobConfig]) -> Program:
    def program() -> None:
        for index, each in enumerate(configs):
            ElasticTrainingJob.from_config(f"j{index}", each.model_copy(update={"children": "resource"}))

    return program


def _engine_says(engine: Engine, pairs: Sequence[Pair]) -> list[dict[str, str]]:  # noqa: F811
    """For each pair: role to operation, of the objects that change."""
    said: list[dict[str, str]] = []
    for start in range(0, len(pairs), STACK_SIZE):
        some = pairs[start : start + STACK_SIZE]
        stack = engine.stack()
        created = stack.up(_program([base for base, _ in some]))
        assert not created.failed, created.text[-3000:]
        changed = stack.preview(_program([head for _, head in some]))
        assert not changed.failed, changed.text[-3000:]
        said += _by_job(changed, len(some))
    return said


def _by_job(outcome: Outcome, count: int) -> list[dict[str, str]]:
    said: list[dict[str, str]] = [{} for _ in range(count)]
    for name, op in outcome.ops().items():
        job, _, role = name.partition("-")
        if role:
            said[int(job[1:])][role] = op
    return said


def _consequence(ops: Mapping[str, str]) -> Consequence:
    if ops.get("workload", "update") != "update":
        return Consequence.RESTART
    return Consequence.IN_PLACE if ops else Consequence.NONE


def _ends_pods_in_place(head: JobConfig, changes: Sequence[Effect]) -> bool:
    """The one exception: the engine calls it an update, and no pod runs afterwards."""
    return any(effect.path.endswith(tuple(ENDS_PODS)) for effect in changes) and bool(head.run_policy.suspend)


def _of_one_version(pair: Pair) -> Pair:
    """The pair without a wish for the newest launcher, which is the job's own here and restarts nothing."""
    base, head = pair
    launcher = head.launcher.model_copy(update={"version": base.launcher.version})
    return base, head.model_copy(update={"launcher": launcher})


def _effects(pair: Pair) -> tuple[Effect, ...]:
    return effects(render("j", pair[0]), render("j", pair[1]), pair[1])


def _mismatches(pairs: Sequence[Pair], diffs: Sequence[JobDiff], said: Sequence[Mapping[str, str]]) -> Iterator[str]:
    for pair, diff, ops in zip(pairs, diffs, said, strict=True):
        changes = _effects(pair)
        changed = {effect.role for effect in changes}
        expected = Consequence.RESTART if _ends_pods_in_place(pair[1], changes) else _consequence(ops)
        if diff.consequence is not expected or changed != set(ops):
            yield f"predicted {diff.consequence} in {changed}, the engine says {dict(ops)}: {diff.changes}"


def test_the_engine_agrees_on_every_generated_pair(engine: Engine) -> None:  # noqa: F811
    """For any two valid configs the consequence, and the objects that change, are the engine's own.

    The few that it refuses have a test of their own: one would fail the preview of a whole stack. So a refusal that is
    not foretold fails here.
    """
    compared = [(pair, diff_of(*pair, name="j")) for pair in map(_of_one_version, drawn(PAIRS))]
    pairs, diffs = zip(*(each for each in compared if not is_refused(each[1])), strict=True)
    said = _engine_says(engine, pairs)

    assert len(pairs) >= 300
    assert list(_mismatches(pairs, diffs, said)) == []


def test_the_engine_agrees_on_every_named_edit(engine: Engine) -> None:  # noqa: F811
    """The edits that are tried on a cluster, of each target, are predicted as the engine has them."""
    bases = [{**EDITED, **two_nodes(target)} for target in EDITS_OF]
    pairs = [(config(base), config(head)) for base in bases for _, head, _ in predictions(base)]
    diffs = [diff_of(*pair, name="j") for pair in pairs]
    said = _engine_says(engine, pairs)

    assert len(pairs) >= 100
    assert {_consequence(ops) for ops in said} == {Consequence.NONE, Consequence.IN_PLACE, Consequence.RESTART}
    assert list(_mismatches(pairs, diffs, said)) == []


def test_the_engine_refuses_what_is_said_to_be_refused(engine: Engine) -> None:  # noqa: F811
    """Every change of a made claim fails the engine's preview, and the offline one says so."""
    pairs = list(refused())
    stack = engine.stack()
    created = stack.up(_program([base for base, _ in pairs]))
    changed = stack.preview(_program([head for _, head in pairs]))
    named = {int(number) for number in re.findall(r"'j(\d+)' would go on without its checkpoints", changed.text)}

    assert not created.failed, created.text[-3000:]
    assert [pair for pair in pairs if not is_refused(diff_of(*pair))] == []
    assert changed.failed
    assert named == set(range(len(pairs)))
