"""Strings that another resource will deliver: real `pulumi.Output`s stay at their leaves, unknown and secret."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pulumi
import pytest
from pulumi.runtime.settings import SETTINGS

from elastic_infra import JobConfig
from elastic_infra.config import ConfigError
from tests import jobs
from tests.strategies import Data

CASES: list[tuple[str, Callable[[Any], Data], Callable[[Any], Any]]] = [
    ("image", lambda late: {"image": late}, lambda pod: pod["containers"][0]["image"]),
    ("args", lambda late: {"args": ["--x", late]}, lambda pod: pod["containers"][0]["args"][-1]),
    ("env", lambda late: {"env": {"A": late}}, lambda pod: pod["containers"][0]["env"][-1]["value"]),
    (
        "env from a secret",
        lambda late: {"env": {"A": {"secret": late, "key": "k"}}},
        lambda pod: pod["containers"][0]["env"][-1]["valueFrom"]["secretKeyRef"]["name"],
    ),
    (
        "service account",
        lambda late: {"security": {"service_account": late}},
        lambda pod: pod["serviceAccountName"],
    ),
    (
        "pull secret",
        lambda late: {"image_pull_secrets": [late]},
        lambda pod: pod["imagePullSecrets"][0]["name"],
    ),
    (
        "claim",
        lambda late: {"storage": {"checkpoint": {"claim": late}}},
        lambda pod: pod["volumes"][-1]["persistentVolumeClaim"]["claimName"],
    ),
]


@pytest.fixture(autouse=True)
def _nothing_outlives_its_loop() -> Iterator[None]:
    """Pulumi waits, at the end of the next program in this process, for every Output it has not seen the end of."""
    yield
    SETTINGS.outputs.clear()


def _future(result: object) -> asyncio.Future[Any]:
    made = asyncio.get_running_loop().create_future()
    made.set_result(result)
    return made


def _at_the_leaf(
    where: tuple[Callable[[Any], Data], Callable[[Any], Any]],
    value: object,
    *,
    known: bool = True,
    secret: bool = False,
) -> tuple[object, bool, bool]:
    """What arrives in the manifest: the value, whether it is known, whether it is secret."""
    put, look = where

    async def rendered() -> tuple[object, bool, bool]:
        late = pulumi.Output(set(), _future(value), _future(known), _future(secret))
        leaf = look(jobs.pod_spec(jobs.job(**put(late))))
        assert isinstance(leaf, pulumi.Output)
        return await leaf.future(), await leaf.is_known(), await leaf.is_secret()

    return asyncio.run(rendered())


everywhere = pytest.mark.parametrize("where", [case[1:] for case in CASES], ids=[case[0] for case in CASES])
Where = tuple[Callable[[Any], Data], Callable[[Any], Any]]


@everywhere
def test_a_late_value_arrives_at_its_own_leaf(where: Where) -> None:
    """The manifest around it is plain, so that a preview shows everything else."""
    assert _at_the_leaf(where, "arrived") == ("arrived", True, False)


@everywhere
def test_a_secret_stays_secret(where: Where) -> None:
    """Only the leaf is secret."""
    assert _at_the_leaf(where, "arrived", secret=True) == ("arrived", True, True)


@everywhere
def test_an_unknown_value_stays_unknown(where: Where) -> None:
    """A preview cannot know it, and does not pretend to."""
    assert _at_the_leaf(where, None, known=False)[1] is False


@everywhere
@pytest.mark.parametrize("value", [3, None, ["hunter2-MARKED"]])
def test_a_late_value_of_the_wrong_type_fails_when_it_arrives(where: Where, value: object) -> None:
    """The check is only put off, and still shows no value."""
    with pytest.raises(ValueError, match=r"A late value .* is not what its field takes") as caught:
        _at_the_leaf(where, value)

    assert "MARKED" not in "".join(traceback.format_exception(caught.value))


def test_a_late_name_is_checked_like_a_plain_one() -> None:
    """The reason is the field's own."""
    case = next(case[1:] for case in CASES if case[0] == "claim")

    with pytest.raises(ValueError, match="must be lower-case letters"):
        _at_the_leaf(case, "No Name")


@pytest.mark.parametrize("field", ["target", "working_dir", "elastic", "script", "wait_timeout_seconds"])
def test_structure_cannot_be_late(field: str) -> None:
    """What decides about objects must be known when the program runs."""

    async def refused() -> str:
        with pytest.raises(ConfigError) as caught:
            jobs.job(**{field: pulumi.Output(set(), _future("x"), _future(result=True), _future(result=False))})
        return str(caught.value)

    assert "must be known when the program runs" in asyncio.run(refused())


def test_the_run_id_does_not_wait_for_late_values() -> None:
    """The same id in a preview, where the image is unknown, and in the update."""

    async def run_id(*, known: bool) -> str:
        late = pulumi.Output(set(), _future("image:1"), _future(known), _future(result=False))
        workload = jobs.objects(jobs.elastic(image=late))["workload"]
        found: str = workload["spec"]["elasticPolicy"]["rdzvId"]
        return found

    assert asyncio.run(run_id(known=True)) == asyncio.run(run_id(known=False))


def test_a_config_with_late_values_is_a_value() -> None:
    """It can be kept, compared with itself and rendered under several names."""

    async def names() -> list[str]:
        late = pulumi.Output(set(), _future("image:1"), _future(result=True), _future(result=False))
        config = JobConfig(image=late, script="train.py")
        return [jobs.objects(config, name)["workload"]["metadata"]["name"] for name in ("a", "b")]

    assert asyncio.run(names()) == ["a", "b"]
