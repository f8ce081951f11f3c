"""The store's token on a real engine: made once, kept, and never to be read outside of the cluster."""

from __future__ import annotations

import base64
import json
import secrets

import pytest

from tests.engine.engine import Stack
from tests.engine.jobs import job

SECRET = "train-token"
TOKEN_BYTES = 32
"""Other random words, of fewer bytes, are no secrets."""


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every token that a program made, as it is and in base64."""
    found: list[str] = []
    token_hex = secrets.token_hex

    def noted(size: int) -> str:
        token = token_hex(size)
        if size == TOKEN_BYTES:
            found.extend([token, base64.b64encode(token.encode()).decode()])
        return token

    monkeypatch.setattr(secrets, "token_hex", noted)
    return found


def test_the_token_is_made_once_and_kept_encrypted(stack: Stack, made: list[str]) -> None:
    """Two previews and an update of an unchanged program change nothing, and no state and no output shows a token."""
    up = stack.up(job())
    again = [stack.preview(job()), stack.preview(job()), stack.up(job())]

    assert up.ops()[SECRET] == "create"
    assert [outcome.ops() for outcome in again] == [{}, {}, {}]
    assert len(made) == 8
    written = json.dumps(stack.state()) + up.text + "".join(outcome.text for outcome in again)
    assert [token for token in made if token in written] == []
    assert "ciphertext" in str(_data(stack.state()))


def test_the_store_and_the_nodes_wait_for_the_token(stack: Stack) -> None:
    """A store that starts before its Secret is there would be open."""
    stack.up(job())
    needs = {resource["urn"].rpartition("::")[2]: resource.get("dependencies", []) for resource in stack.state()}

    for child in ("train-store", "train-workload"):
        assert SECRET in {urn.rpartition("::")[2] for urn in needs[child]}


def test_a_single_pod_has_no_secret(scratch: Stack) -> None:
    """It serves its store to itself, with a token that its launcher makes."""
    assert SECRET not in scratch.preview(job(elastic={"nnodes": "1"})).ops()


def _data(state: list[dict[str, object]]) -> object:
    (found,) = (resource for resource in state if str(resource["urn"]).endswith(f"::{SECRET}"))
    inputs = found["inputs"]
    assert isinstance(inputs, dict)
    return inputs["data"]
